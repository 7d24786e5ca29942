//! The logs of a ledger, their keys and their checkpoints.

use pg::Session;
use tlog::{Checkpoint, SignedNote, Trust, VerifierKey};

use super::finding::VerifyFinding;
use super::{Audit, ask, number, one_row};

const LOGS_SQL: &str = "\
    select i.no::text, (select min(split_part(k.vkey, '+', 1)) from countersign.log_key k where k.log_no = i.no) \
    from countersign.identity i order by i.no";
const CHECKPOINTS_SQL: &str = "\
    select c.note, c.size::text, encode(c.root, 'hex') from countersign.checkpoint c where c.log_no = $1::integer order by c.size";
const KEYS_SQL: &str = "\
    select k.vkey, k.retired_at is not null from countersign.log_key k \
    where k.log_no = coalesce($1::integer, (select max(i.no) from countersign.identity i)) order by k.added_at";
const ADD_KEY_SQL: &str = "select countersign.add_log_key($1, $2)";
const RETIRE_KEY_SQL: &str = "select countersign.retire_log_key($1, $2)";

/// The keys by which checkpoints are accepted.
#[derive(Debug, Clone)]
pub enum TrustedKeys {
    /// The keys that the ledger names. Whoever owns its tables can put others there.
    Ledger,
    /// Keys that the auditor has. A log without a key of its name among them is not accepted.
    Given(Vec<VerifierKey>),
}

/// A verified checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptCheckpoint {
    /// Where it is, for messages.
    pub place: String,
    /// What it says.
    pub checkpoint: Checkpoint,
}

/// A key of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogKey {
    /// The public key: `name+hash+base64`.
    pub vkey: String,
    /// Whether it does not sign any more.
    pub is_retired: bool,
}

/// One log of the ledger; a copied database goes on with another one.
pub(super) struct Log {
    /// `identity.no`.
    pub(super) log_no: i64,
    /// The name of its keys, if it has keys.
    pub(super) origin: Option<String>,
}

impl Audit {
    /// The keys of the current log, the oldest first.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn keys(&self) -> Result<Vec<LogKey>, pg::Error> {
        let rows = self.ask(KEYS_SQL, &[None]).await?;
        rows.into_iter().map(|row| one_row(vec![row]).map(log_key)).collect()
    }

    /// The id of the ledger, a UUID. A forked ledger has another one.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn ledger_id(&self) -> Result<String, pg::Error> {
        let sql = "select i.ledger_id::text from countersign.identity i order by i.no desc limit 1";
        let [id] = one_row(self.ask(sql, &[]).await?)?;
        Ok(id.unwrap_or_default())
    }

    /// Lets a key sign the checkpoints of the log. For members of the ledger's owner.
    ///
    /// # Errors
    /// An error of the database: SQLSTATE 22023 if its name is not that of the other keys.
    pub async fn add_key(&self, key: &VerifierKey, person: &str) -> Result<(), pg::Error> {
        self.ask(ADD_KEY_SQL, &[Some(key.to_string()), Some(person.to_owned())]).await.map(drop)
    }

    /// Ends the use of a key. For members of the ledger's owner.
    ///
    /// # Errors
    /// An error of the database: SQLSTATE 22023 if it is no key of the log.
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

/// The checkpoints that the ledger has of a log, if each is signed by a trusted key.
pub(super) async fn load_checkpoints(
    session: &mut Session,
    log: &Log,
    trusted: &TrustedKeys,
) -> Result<Result<Vec<KeptCheckpoint>, VerifyFinding>, pg::Error> {
    let keys = match trusted {
        TrustedKeys::Given(keys) => keys.clone(),
        TrustedKeys::Ledger => {
            let rows = ask(session, KEYS_SQL, &[Some(log.log_no.to_string())]).await?;
            rows.into_iter().filter_map(|row| row.into_iter().next()??.parse().ok()).collect()
        }
    };
    let mut checkpoints = Vec::new();
    for row in ask(session, CHECKPOINTS_SQL, &[Some(log.log_no.to_string())]).await? {
        let [note, size, root] = one_row(vec![row])?.map(Option::unwrap_or_default);
        let place = format!("the checkpoint of size {size} in the database");
        match open(&note, &keys) {
            Ok(checkpoint) if checkpoint.size.to_string() != size || checkpoint.root.to_hex() != root => {
                let why = "its note says something else".to_owned();
                return Ok(Err(VerifyFinding::Checkpoint { place, why }));
            }
            Ok(checkpoint) => checkpoints.push(KeptCheckpoint { place, checkpoint }),
            Err(why) => return Ok(Err(VerifyFinding::Checkpoint { place, why })),
        }
    }
    Ok(Ok(checkpoints))
}

/// Reads a checkpoint that one of the keys has signed.
fn open(note: &str, keys: &[VerifierKey]) -> Result<Checkpoint, String> {
    let note: SignedNote = note.parse().map_err(|error| format!("{error}"))?;
    let trust = Trust { keys: keys.to_vec(), policy: None };
    trust.open(&note).map(|(checkpoint, _)| checkpoint).map_err(|error| error.to_string())
}
