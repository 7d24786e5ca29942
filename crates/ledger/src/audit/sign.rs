//! Signing: a checkpoint of the log's tree is signed outside of the database.
//!
//! The signer stores the last checkpoint that it signed in a file beside its key. The log in the database must extend
//! that checkpoint. So the signer does not sign for a database that was restored from a backup, or whose leaves were
//! altered.

use pg::Session;
use tlog::{Checkpoint, Hash, SignedNote, SigningKey, VerifierKey, tiles_for_root};
use tokio::process::Command;

use super::checkpoints::{self, STORE_SQL, load_ledger_id, load_newest};
use super::sign_error::{Contradiction, SignError};
use super::signing::{Signing, StateFile, read_key};
use super::tree::{LogState, tiles};
use super::{Audit, ask, begin_snapshot, may_only_read};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signed {
    /// The newest checkpoint of the log, as a signed note.
    Note(SignedNote),
    /// This signer has no private key of the log.
    NoKey {
        /// The checkpoint to be signed elsewhere.
        checkpoint: Checkpoint,
        /// The keys of the log, which other signers have.
        keys: Vec<VerifierKey>,
    },
}

const KEYS_SQL: &str = "select k.vkey from countersign.log_key k where k.log_no = $1::integer and k.retired_at is null order by k.added_at";
const LEAF_SQL: &str =
    "select l.hash::text from countersign.leaf l where l.log_no = $1::integer and l.leaf_index = $2::bigint";

/// The keys of a log, and those whose private keys are available here.
struct LogKeys {
    known: Vec<VerifierKey>,
    signers: Vec<SigningKey>,
    state: Option<StateFile>,
}

impl Audit {
    /// Signs a checkpoint of everything that is sealed, unless the newest checkpoint has that size already. A signer
    /// that has not signed this log before first asks the witnesses for checkpoints that were signed elsewhere.
    pub async fn sign(&self, signing: &Signing) -> Result<Signed, SignError> {
        self.learn_from_witnesses(signing).await?;
        let mut lease = self.acquire().await?;
        let session = lease.session();
        begin_snapshot(session).await?;
        let log = LogState::load(session).await?;
        let ledger_id = load_ledger_id(session).await?;
        let keys = load_keys(session, log, signing, &ledger_id).await?;
        let state = keys.state.filter(|_| !keys.signers.is_empty() || signing.command.is_some());
        let last = state.as_ref().map(StateFile::read).transpose()?.flatten();
        let newest = load_newest(session, log.log_no).await?;
        let stored = newest.as_ref().map(|(_, checkpoint)| checkpoint);
        let root = checked_root(session, log, stored, last.as_ref().zip(state.as_ref())).await?;
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
            Some(command) => sign_by_command(command, &text, &keys.known).await?,
            None => SignedNote::sign(text, &keys.signers),
        };
        state.keep(&note, log.size)?;
        self.ask(STORE_SQL, &[log.size.to_string(), note.to_string()].map(Some)).await?;
        Ok(Signed::Note(note))
    }
}

impl Audit {
    /// How the log contradicts the last checkpoint that was signed here, if it does. A file of another log, or one that
    /// cannot be read, says nothing: it is reported when the log is signed. Nor does a login that may not read the log.
    pub(crate) async fn contradiction(
        &self,
        signing: &Signing,
        ledger_id: &str,
    ) -> Result<Option<Contradiction>, pg::Error> {
        let state = signing.state_file(ledger_id);
        let last = state.as_ref().and_then(|state| state.read().ok().flatten());
        let Some((last, state)) = last.as_ref().zip(state.as_ref()) else { return Ok(None) };
        match self.compare_signed(last, state).await {
            Ok(()) => Ok(None),
            Err(SignError::Contradiction(contradiction)) => Ok(Some(contradiction)),
            Err(SignError::Database(error)) if !may_only_read(&error) => Err(error),
            Err(_) => Ok(None),
        }
    }

    async fn compare_signed(&self, last: &Checkpoint, state: &StateFile) -> Result<(), SignError> {
        let mut lease = self.acquire().await?;
        let session = lease.session();
        begin_snapshot(session).await?;
        let log = LogState::load(session).await?;
        let keys = checkpoints::load_keys(session, log.log_no).await?;
        if keys.is_empty() || keys.iter().any(|key| key.name() == last.origin) {
            checked_root(session, log, None, Some((last, state))).await?;
        }
        session.batch_execute("commit").await?;
        Ok(())
    }

    /// The last entry below the newest signed checkpoint: its index, and its hash as `bytea` in text form.
    pub(crate) async fn last_signed(&self, log_no: i64) -> Result<Option<(u64, String)>, pg::Error> {
        let mut lease = self.acquire().await?;
        let session = lease.session();
        let newest = load_newest(session, log_no).await?;
        let Some(index) = newest.and_then(|(_, checkpoint)| checkpoint.size.checked_sub(1)) else { return Ok(None) };
        let hash = ask(session, LEAF_SQL, &[Some(log_no.to_string()), Some(index.to_string())]).await?;
        Ok(hash.into_iter().flatten().flatten().next().map(|hash| (index, hash)))
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
    Ok(LogKeys { known, signers, state: signing.state_file(ledger_id) })
}

/// The root hash of the log, after a check that the log extends what was signed before.
async fn checked_root(
    session: &mut Session,
    log: LogState,
    stored: Option<&Checkpoint>,
    last: Option<(&Checkpoint, &StateFile)>,
) -> Result<Hash, SignError> {
    if let Some((last, state)) = last.filter(|(last, _)| last.size > log.size) {
        let (signed, state) = (last.size, state.path().to_owned());
        return Err(Contradiction::Behind { size: log.size, signed, state }.into());
    }
    let stored = stored.map(|newest| (newest.size, newest.root, "the newest checkpoint in the database".to_owned()));
    let kept = last.map(|(last, state)| (last.size, last.root, state.path().display().to_string()));
    let earlier: Vec<_> = stored.into_iter().chain(kept).collect();
    let sizes = earlier.iter().map(|(size, ..)| *size).chain([log.size]);
    let set = tiles(session, log.log_no, sizes.flat_map(tiles_for_root)).await?;
    let root = |size| set.root(size).map_err(|error| SignError::Incomplete(error.to_string()));
    for (size, signed, by) in earlier {
        if root(size)? != signed {
            return Err(Contradiction::Inconsistent { size, by }.into());
        }
    }
    root(log.size)
}

/// Signs the text by a command, such as the client of a key management service. It must sign with one of these keys.
async fn sign_by_command(command: &str, text: &str, keys: &[VerifierKey]) -> Result<SignedNote, SignError> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    let printed = os::child_output(shell, text.as_bytes()).await;
    let printed = printed.map_err(|error| SignError::Command(types::visible(&error.to_string())))?;
    let printed = String::from_utf8_lossy(&printed);
    let signed = keys.iter().find_map(|key| key.accept(text, printed.trim()));
    let signature = signed.ok_or_else(|| {
        SignError::Command(
            "printed no signature by a key of this log: it takes 64 bytes in base64 (Ed25519 over standard input)"
                .to_owned(),
        )
    })?;
    Ok(SignedNote::new(text.to_owned(), vec![signature]))
}
