//! Signing: the tree of the log becomes a checkpoint, which is signed outside of the database.
//!
//! The signer keeps the last checkpoint that it signed in a file beside its key. What the database has must go on from
//! there, so a database that was restored from a backup, or in which leaves were altered, is not signed for.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pg::Session;
use tlog::{Checkpoint, Hash, SignedNote, SigningKey, VerifierKey, tiles_for_root};

use super::checkpoints::load_newest;
use super::sign_error::SignError;
use super::tree::{LogState, tiles};
use super::{Audit, ask, one_row, sign_command};

/// What signs the checkpoints of a log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signing {
    /// Files with private keys. Those that are keys of the log sign, all of them while a key is replaced. The last signed
    /// checkpoint is kept beside the first one.
    pub key_files: Vec<PathBuf>,
    /// A command that reads the text of a note and prints an Ed25519 signature of it in base64, such as the client of
    /// a key management service.
    pub command: Option<String>,
    /// The folder of key files where none is configured, and of what was signed by a command.
    pub directory: Option<PathBuf>,
}

/// The outcome of an attempt to sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signed {
    /// The newest checkpoint of the log, as a signed note.
    Note(SignedNote),
    /// No private key of the log is here.
    NoKey {
        /// What would be signed.
        checkpoint: Checkpoint,
        /// The keys that sign it elsewhere.
        keys: Vec<VerifierKey>,
    },
}

const LEDGER_SQL: &str = "select i.ledger_id::text from countersign.identity i order by i.no desc limit 1";
const KEYS_SQL: &str = "select k.vkey from countersign.log_key k where k.log_no = $1::integer and k.retired_at is null order by k.added_at";
const STORE_SQL: &str = "select countersign.store_checkpoint($1::bigint, $2)";

impl Signing {
    /// The file with the private key of a ledger, if none is configured.
    #[must_use]
    pub fn default_key_file(&self, ledger_id: &str) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{ledger_id}.key")))
    }

    fn key_files(&self, ledger_id: &str) -> Vec<PathBuf> {
        if !self.key_files.is_empty() {
            return self.key_files.clone();
        }
        let found = self.directory.as_deref().and_then(|directory| directory.read_dir().ok()).into_iter().flatten();
        let paths = found.flatten().map(|entry| entry.path());
        let is_own = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with(ledger_id) && name.ends_with(".key")
        };
        let mut paths: Vec<PathBuf> = paths.filter(is_own).collect();
        paths.sort();
        paths
    }
}

/// The keys of a log, and which of them are here.
struct LogKeys {
    known: Vec<VerifierKey>,
    signers: Vec<SigningKey>,
    /// The file with the last signed checkpoint, and the file that is locked while it is written.
    state: Option<PathBuf>,
}

impl Audit {
    /// Signs a checkpoint of everything that is sealed, unless the newest one has that size already.
    ///
    /// # Errors
    /// [`SignError`]; nothing was signed.
    pub async fn sign(&self, signing: &Signing) -> Result<Signed, SignError> {
        let mut lease = self.acquire().await?;
        let session = lease.session();
        let transaction = session.begin(Some("isolation level repeatable read read only"), &[]).await;
        transaction.map_err(|failed| failed.error)?;
        let log = LogState::load(session).await?;
        let [ledger_id] = one_row(ask(session, LEDGER_SQL, &[]).await?)?;
        let keys = load_keys(session, log, signing, &ledger_id.unwrap_or_default()).await?;
        let state = keys.state.as_deref().filter(|_| !keys.signers.is_empty() || signing.command.is_some());
        let last = state.map(read_state).transpose()?.flatten();
        let newest = load_newest(session, log.log_no).await?;
        let stored = newest.as_ref().map(|(_, checkpoint)| checkpoint);
        let root = checked_root(session, log, stored, last.as_ref().zip(state)).await?;
        session.batch_execute("commit").await?;
        let origin = keys.known.first().map(|key| key.name().to_owned()).unwrap_or_default();
        let checkpoint = Checkpoint { origin, size: log.size, root };
        let Some(state) = state.filter(|_| !keys.known.is_empty()) else {
            return Ok(Signed::NoKey { checkpoint, keys: keys.known });
        };
        if let Some((note, _)) = newest.filter(|(_, newest)| newest.size == log.size) {
            return Ok(Signed::Note(note));
        }
        let text = checkpoint.to_string();
        let note = match &signing.command {
            Some(command) => sign_command::sign(command, &text, &keys.known).await?,
            None => SignedNote::sign(text, &keys.signers),
        };
        write_state(state, &note, log.size)?;
        self.ask(STORE_SQL, &[log.size.to_string(), note.to_string()].map(Some)).await?;
        Ok(Signed::Note(note))
    }
}

async fn load_keys(
    session: &mut Session,
    log: LogState,
    signing: &Signing,
    ledger_id: &str,
) -> Result<LogKeys, SignError> {
    let rows = ask(session, KEYS_SQL, &[Some(log.log_no.to_string())]).await?;
    let known: Vec<VerifierKey> = rows.into_iter().flatten().flatten().filter_map(|vkey| vkey.parse().ok()).collect();
    let files = signing.key_files(ledger_id);
    let mut signers = Vec::new();
    for path in &files {
        let key = read_key(path)?;
        if known.contains(key.verifier_key()) {
            signers.push(key);
        }
    }
    let state = match (signing.key_files.first(), &signing.directory) {
        (Some(file), _) => Some(file.with_extension("checkpoint")),
        (None, directory) => directory.as_ref().map(|directory| directory.join(format!("{ledger_id}.checkpoint"))),
    };
    Ok(LogKeys { known, signers, state })
}

/// The root of the log, if the log goes on from what was signed before.
async fn checked_root(
    session: &mut Session,
    log: LogState,
    stored: Option<&Checkpoint>,
    last: Option<(&Checkpoint, &Path)>,
) -> Result<Hash, SignError> {
    if let Some((last, state)) = last.filter(|(last, _)| last.size > log.size) {
        return Err(SignError::Behind { size: log.size, signed: last.size, state: state.to_owned() });
    }
    let stored = stored.map(|newest| (newest.size, newest.root, "the newest checkpoint in the database".to_owned()));
    let kept = last.map(|(last, state)| (last.size, last.root, state.display().to_string()));
    let earlier: Vec<_> = stored.into_iter().chain(kept).collect();
    let sizes = earlier.iter().map(|(size, ..)| *size).chain([log.size]);
    let set = tiles(session, log.log_no, sizes.flat_map(tiles_for_root)).await?;
    let root = |size| set.root(size).map_err(|error| SignError::Incomplete(error.to_string()));
    for (size, signed, by) in earlier {
        if root(size)? != signed {
            return Err(SignError::Inconsistent { size, by });
        }
    }
    root(log.size)
}

/// Reads a private key.
///
/// # Errors
/// [`SignError::Key`], also if others than its owner may read the file.
pub fn read_key(path: &Path) -> Result<SigningKey, SignError> {
    use std::os::unix::fs::PermissionsExt;
    let refused = |why: String| SignError::Key { path: path.to_owned(), why };
    let file = File::open(path).map_err(|error| refused(error.to_string()))?;
    let mode = file.metadata().map_err(|error| refused(error.to_string()))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(refused(format!("others than its owner may read it (mode {:o}): chmod 600", mode & 0o7777)));
    }
    let text = std::io::read_to_string(file).map_err(|error| refused(error.to_string()))?;
    text.trim_end().parse().map_err(|error| refused(format!("{error}")))
}

/// Writes a new private key, which only its owner may read.
///
/// # Errors
/// [`SignError::Key`], also if the file exists.
pub fn write_key(path: &Path, key: &SigningKey) -> Result<(), SignError> {
    let refused = |error: std::io::Error| SignError::Key { path: path.to_owned(), why: error.to_string() };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(refused)?;
    }
    // Whole or not at all: another process may read it as soon as it is there.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new).map_err(refused)?;
    let written = file.write_all(format!("{}\n", key.to_secret_text()).as_bytes()).and_then(|()| file.sync_all());
    let linked = written.and_then(|()| std::fs::hard_link(&new, path));
    std::fs::remove_file(&new).and(linked).map_err(refused)
}

/// The last checkpoint that was signed.
fn read_state(path: &Path) -> Result<Option<Checkpoint>, SignError> {
    let refused = |why: String| SignError::State { path: path.to_owned(), why };
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let note: SignedNote = text.parse().map_err(|error| refused(format!("it is malformed: {error}")))?;
            note.text().parse().map(Some).map_err(|error| refused(format!("it is malformed: {error}")))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refused(error.to_string())),
    }
}

/// Keeps a checkpoint, unless a larger one is kept already.
fn write_state(path: &Path, note: &SignedNote, size: u64) -> Result<(), SignError> {
    let refused = |error: std::io::Error| SignError::State { path: path.to_owned(), why: error.to_string() };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(refused)?;
    }
    let lock = File::create(path.with_extension("lock")).map_err(refused)?;
    lock.lock().map_err(refused)?;
    if read_state(path)?.is_some_and(|kept| kept.size >= size) {
        return Ok(());
    }
    let new = path.with_extension("new");
    let mut file = File::create(&new).map_err(refused)?;
    file.write_all(note.to_string().as_bytes()).and_then(|()| file.sync_all()).map_err(refused)?;
    std::fs::rename(&new, path).map_err(refused)
}
