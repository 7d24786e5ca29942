//! Signing: a checkpoint of the log's tree is signed outside of the database.
//!
//! The signer stores the last checkpoint that it signed in a file beside its key. The log in the database must extend
//! that checkpoint. So the signer does not sign for a database that was restored from a backup, or whose leaves were
//! altered.

use pg::Session;
use tlog::{Checkpoint, Hash, SignedNote, SigningKey, VerifierKey, tiles_for_root};

use super::checkpoints::{STORE_SQL, load_ledger_id, load_newest};
use super::sign_error::SignError;
use super::signing::{Signing, StateFile, read_key};
use super::tree::{LogState, tiles};
use super::{Audit, ask, begin_snapshot, may_only_read, sign_command};

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
            Some(command) => sign_command::sign(command, &text, &keys.known).await?,
            None => SignedNote::sign(text, &keys.signers),
        };
        state.keep(&note, log.size)?;
        self.ask(STORE_SQL, &[log.size.to_string(), note.to_string()].map(Some)).await?;
        Ok(Signed::Note(note))
    }
}

impl Audit {
    /// Checks that the log extends the last checkpoint that was signed here. Succeeds if there is none, or if this
    /// login may not read the log.
    ///
    /// # Errors
    /// [`SignError::Behind`] or [`SignError::Inconsistent`] if the database was restored from a backup, or entries
    /// were altered. Otherwise the query failed.
    pub(crate) async fn check_signed(&self, signing: &Signing, ledger_id: &str) -> Result<(), SignError> {
        // A file that cannot be read is reported when the log is signed.
        let state = signing.state_file(ledger_id);
        let last = state.as_ref().and_then(|state| state.read().ok().flatten());
        let Some((last, state)) = last.as_ref().zip(state.as_ref()) else { return Ok(()) };
        match self.compare_signed(last, state).await {
            Err(SignError::Database(error)) if may_only_read(&error) => Ok(()),
            Err(error) if error.is_contradiction() || matches!(error, SignError::Database(_)) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn compare_signed(&self, last: &Checkpoint, state: &StateFile) -> Result<Hash, SignError> {
        let mut lease = self.acquire().await?;
        let session = lease.session();
        begin_snapshot(session).await?;
        let log = LogState::load(session).await?;
        let compared = checked_root(session, log, None, Some((last, state))).await?;
        session.batch_execute("commit").await?;
        Ok(compared)
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
        return Err(SignError::Behind { size: log.size, signed: last.size, state: state.path().to_owned() });
    }
    let stored = stored.map(|newest| (newest.size, newest.root, "the newest checkpoint in the database".to_owned()));
    let kept = last.map(|(last, state)| (last.size, last.root, state.path().display().to_string()));
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
