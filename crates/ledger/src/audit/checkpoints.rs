//! The logs of a ledger, their keys and their checkpoints.

use pg::Session;
use tlog::{Checkpoint, SignedNote, Trust, VerifierKey};

use super::tree::LogState;
use super::{Audit, ask, number, one_row};

const LOGS_SQL: &str = "\
    select i.no::text, (select min(split_part(k.vkey, '+', 1)) from countersign.log_key k where k.log_no = i.no) \
    from countersign.identity i order by i.no";
/// The newest first.
const NOTES_SQL: &str = "\
    select c.note from countersign.checkpoint c where c.log_no = $1::integer order by c.size desc, c.signed_at desc limit $2::bigint";
const KEYS_SQL: &str = "\
    select k.vkey, k.retired_at is not null from countersign.log_key k \
    where k.log_no = coalesce($1::integer, (select max(i.no) from countersign.identity i)) order by k.added_at";
/// The keys of the log come first.
const SIGNERS_SQL: &str = "\
    select s.vkey from (select k.vkey, 0, k.added_at from countersign.log_key k where k.log_no = $1::integer \
    union all select w.vkey, 1, w.added_at from countersign.witness w where w.log_no = $1::integer) s (vkey, rank, at) \
    order by s.rank, s.at";
const AGE_SQL: &str = "\
    select extract(epoch from clock_timestamp() - max(c.signed_at))::bigint::text from countersign.checkpoint c \
    where c.log_no = $1::integer and c.note = $2";
pub(super) const STORE_SQL: &str = "select countersign.store_checkpoint($1::bigint, $2)";
/// The number of the newest notes that are searched for a cosignature.
const RECENT: u32 = 200;

const ADD_KEY_SQL: &str = "select countersign.add_log_key($1, $2)";
const RETIRE_KEY_SQL: &str = "select countersign.retire_log_key($1, $2)";

/// The keys whose signatures make a checkpoint trusted.
#[derive(Debug, Clone)]
pub enum TrustedKeys {
    /// The keys that the ledger stores. The owner of its tables can change them.
    Ledger,
    /// Keys that the auditor has. A log is rejected if none of them has its name.
    Given(Vec<VerifierKey>),
}

/// A verified checkpoint from outside the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptCheckpoint {
    /// Where the checkpoint was found, for messages.
    pub place: String,
    pub checkpoint: Checkpoint,
}

impl KeptCheckpoint {
    pub(super) fn stored(checkpoint: Checkpoint) -> Self {
        Self { place: format!("the checkpoint of size {} in the database", checkpoint.size), checkpoint }
    }
}

/// How much of the current log is signed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignatureState {
    /// The number of keys that sign the log.
    pub keys: usize,
    pub entries: u64,
    /// The number of entries that the newest checkpoint covers.
    pub signed: u64,
    pub age_s: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogKey {
    /// The public key: `name+hash+base64`.
    pub vkey: String,
    /// Whether the key no longer signs.
    pub is_retired: bool,
}

/// One log of the ledger. A copied database starts another one.
pub(super) struct Log {
    /// `identity.no`.
    pub(super) log_no: i64,
    /// The name of the log's keys; `None` if it has no keys.
    pub(super) origin: Option<String>,
}

impl Audit {
    /// The keys of the current log, the oldest first.
    pub async fn keys(&self) -> Result<Vec<LogKey>, pg::Error> {
        let rows = self.ask(KEYS_SQL, &[None]).await?;
        rows.into_iter().map(|row| one_row(vec![row]).map(log_key)).collect()
    }

    /// The id of the ledger, a UUID. A fork of the ledger gets a new one.
    pub async fn ledger_id(&self) -> Result<String, pg::Error> {
        load_ledger_id(self.acquire().await?.session()).await
    }

    /// The newest signed checkpoint of the current log.
    pub async fn newest_checkpoint(&self) -> Result<Option<SignedNote>, pg::Error> {
        let mut lease = self.acquire().await?;
        let log = LogState::load(lease.session()).await?;
        Ok(load_newest(lease.session(), log.log_no).await?.map(|(note, _)| note))
    }

    /// How much of the current log is signed.
    pub async fn signatures(&self) -> Result<SignatureState, pg::Error> {
        let keys = self.keys().await?.iter().filter(|key| !key.is_retired).count();
        let mut lease = self.acquire().await?;
        let session = lease.session();
        let log = LogState::load(session).await?;
        let Some((note, checkpoint)) = load_newest(session, log.log_no).await? else {
            return Ok(SignatureState { keys, entries: log.size, ..SignatureState::default() });
        };
        let [age] = one_row(ask(session, AGE_SQL, &[Some(log.log_no.to_string()), Some(note.to_string())]).await?)?;
        let age_s = u64::try_from(number(age.as_ref())?).unwrap_or_default();
        Ok(SignatureState { keys, entries: log.size, signed: checkpoint.size, age_s })
    }

    /// Adds a key that signs the checkpoints of the log. Only members of the ledger's owner may do this.
    ///
    /// # Errors
    /// The query failed; with SQLSTATE 22023 if the other keys have another name.
    pub async fn add_key(&self, key: &VerifierKey, person: &str) -> Result<(), pg::Error> {
        self.ask(ADD_KEY_SQL, &[Some(key.to_string()), Some(person.to_owned())]).await.map(drop)
    }

    /// Retires a key. Only members of the ledger's owner may do this.
    ///
    /// # Errors
    /// The query failed; with SQLSTATE 22023 if the log does not have the key.
    pub async fn retire_key(&self, vkey: &str, person: &str) -> Result<(), pg::Error> {
        self.ask(RETIRE_KEY_SQL, &[Some(vkey.to_owned()), Some(person.to_owned())]).await.map(drop)
    }
}

fn log_key([vkey, is_retired]: [Option<String>; 2]) -> LogKey {
    LogKey { vkey: vkey.unwrap_or_default(), is_retired: is_retired.as_deref() == Some("t") }
}

pub(super) async fn load_logs(session: &mut Session) -> Result<Vec<Log>, pg::Error> {
    let rows = ask(session, LOGS_SQL, &[]).await?;
    rows.into_iter()
        .map(|row| {
            let [log_no, origin] = one_row(vec![row])?;
            Ok(Log { log_no: number(log_no.as_ref())?, origin })
        })
        .collect()
}

/// The stored checkpoints of a log. Those that no trusted key has signed prove nothing, since the servers' login can
/// store any text.
pub(super) struct StoredCheckpoints {
    pub(super) trusted: Vec<KeptCheckpoint>,
    /// The number of the others.
    pub(super) others: usize,
    /// Whether not even a key that the ledger names has signed the newest one. An auditor need not know each of these
    /// keys; a text that none of them has signed was stored by somebody without a key.
    pub(super) is_newest_forged: bool,
}

pub(super) async fn load_checkpoints(
    session: &mut Session,
    log_no: i64,
    trusted: &TrustedKeys,
) -> Result<StoredCheckpoints, pg::Error> {
    let own = Trust { keys: load_keys(session, log_no).await?, policy: None };
    let trust = match trusted {
        TrustedKeys::Given(keys) => Trust { keys: keys.clone(), policy: None },
        TrustedKeys::Ledger => own.clone(),
    };
    let notes: Vec<String> = load_notes(session, log_no, None).await?;
    let opened = notes.iter().filter_map(|note| open(note, &trust));
    let trusted: Vec<_> = opened.map(|(_, checkpoint)| KeptCheckpoint::stored(checkpoint)).collect();
    let is_newest_forged = notes.first().is_some_and(|note| open(note, &trust).or_else(|| open(note, &own)).is_none());
    Ok(StoredCheckpoints { others: notes.len() - trusted.len(), trusted, is_newest_forged })
}

/// The newest checkpoint of a log that one of its keys has signed.
pub(super) async fn load_newest(
    session: &mut Session,
    log_no: i64,
) -> Result<Option<(SignedNote, Checkpoint)>, pg::Error> {
    let trust = Trust { keys: load_keys(session, log_no).await?, policy: None };
    // Load all notes only if the newest ones are not signed by a key of the log.
    for most in [Some(10), None] {
        let notes = load_notes(session, log_no, most).await?;
        if let Some(newest) = notes.iter().find_map(|note| open(note, &trust)) {
            return Ok(Some(newest));
        }
    }
    Ok(None)
}

async fn load_notes(session: &mut Session, log_no: i64, most: Option<u32>) -> Result<Vec<String>, pg::Error> {
    let params = [Some(log_no.to_string()), most.map(|most| most.to_string())];
    Ok(ask(session, NOTES_SQL, &params).await?.into_iter().flatten().flatten().collect())
}

/// Every key of a log, including retired ones, and the keys of its witnesses.
pub(super) async fn load_keys(session: &mut Session, log_no: i64) -> Result<Vec<VerifierKey>, pg::Error> {
    let rows = ask(session, SIGNERS_SQL, &[Some(log_no.to_string())]).await?;
    Ok(rows.into_iter().filter_map(|row| row.into_iter().next()??.parse().ok()).collect())
}

/// The newest stored checkpoint that a witness has cosigned, and its age in seconds.
pub(super) async fn load_cosigned(
    session: &mut Session,
    log_no: i64,
    witness: &VerifierKey,
) -> Result<Option<(Checkpoint, u64)>, pg::Error> {
    let trust = Trust { keys: load_keys(session, log_no).await?, policy: None };
    for note in load_notes(session, log_no, Some(RECENT)).await? {
        let Some((_, checkpoint)) =
            open(&note, &trust).filter(|(note, _)| note.verify(std::slice::from_ref(witness)).is_ok())
        else {
            continue;
        };
        let [age] = one_row(ask(session, AGE_SQL, &[Some(log_no.to_string()), Some(note)]).await?)?;
        return Ok(Some((checkpoint, u64::try_from(number(age.as_ref())?).unwrap_or_default())));
    }
    Ok(None)
}

pub(super) async fn load_ledger_id(session: &mut Session) -> Result<String, pg::Error> {
    const LEDGER_SQL: &str = "select i.ledger_id::text from countersign.identity i order by i.no desc limit 1";
    let [id] = one_row(ask(session, LEDGER_SQL, &[]).await?)?;
    Ok(id.unwrap_or_default())
}

fn open(note: &str, trust: &Trust) -> Option<(SignedNote, Checkpoint)> {
    let note: SignedNote = note.parse().ok()?;
    let (checkpoint, _) = trust.open(&note).ok()?;
    Some((note, checkpoint))
}
