//! The reasons for which no server writes to a ledger, whatever its calls are. Servers, `/readyz`, `doctor` and `audit
//! verify` tell the same ones, which [`crate::Ledger::obstacle`] finds.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use types::{CorrelationId, ErrorCode, Failure};

use crate::audit::Contradiction;
use crate::write::failures::WriteError;

/// What to do about a log that lacks something.
const REMEDY: &str = "If a standby took over: the former primary may still have what is missing, so fail back to it, or keep a copy \
    of its data. If a backup was restored: restore a newer one. If the database is to go on as it is: `countersign audit fork --restored`";

/// Why no server writes to the ledger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerObstacle {
    #[error(
        "the ledger in database \"{database}\" was made for another database: this one is a copy, was restored from a dump, \
         or was upgraded with pg_upgrade. Its open proposals may be executed in the original. If the two are to go on apart, run \
         `countersign audit fork` on this one, as a member of countersign_owner"
    )]
    Copied { database: String },
    #[error(
        "the log of the ledger in database \"{database}\" contradicts what was signed: {contradiction}. Nothing is written. {REMEDY}"
    )]
    Contradicted { database: String, contradiction: Contradiction },
    #[error("the database \"{database}\" lacks what was acknowledged: {loss}. Nothing is written. {REMEDY}")]
    Lost { database: String, loss: Loss },
}

/// What a server has missed, as `countersign.loss` has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Loss {
    pub found_at: String,
    /// The writes that the server remembers, the oldest first. There may be more.
    pub records: Vec<CorrelationId>,
    /// When it had acknowledged the first of them.
    pub since: Option<String>,
    /// The number of entries of the log.
    pub entries: u64,
    /// The number of entries that were known to be signed, if some of them are missing.
    pub signed_entries: Option<u64>,
    pub timeline_before: Option<i64>,
    pub timeline: Option<i64>,
}

/// The maximum number of writes in a message.
const MAX_NAMED: usize = 5;

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { found_at, records, since, entries, signed_entries, timeline_before, timeline } = self;
        if !records.is_empty() {
            let named: Vec<_> = records.iter().take(MAX_NAMED).map(ToString::to_string).collect();
            let more = if records.len() > MAX_NAMED { ", .." } else { "" };
            let since = since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
            write!(f, "writes{since} are missing, at least {} ({}{more}); ", records.len(), named.join(", "))?;
        }
        match signed_entries {
            Some(signed) if signed > entries => {
                write!(f, "its log has {entries} entries, and {signed} were signed; ")?;
            }
            Some(signed) => write!(f, "its log has others than the {signed} entries that were signed; ")?,
            None => {}
        }
        match (timeline_before, timeline) {
            (Some(before), Some(now)) if before != now => {
                write!(f, "the timeline has changed from {before} to {now}, as by a promotion of a standby")?;
            }
            _ => write!(f, "a standby that lacked it was promoted, or a backup was restored")?,
        }
        write!(f, " (found at {found_at})")
    }
}

impl LedgerObstacle {
    /// What callers are told, who see neither files nor hosts.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let why = match self {
            Self::Copied { .. } => "the database is a copy, and its ledger belongs to the original".to_owned(),
            Self::Contradicted { .. } => {
                "the log of the ledger contradicts what was signed: a standby that lacked entries was \
                promoted, a backup was restored, or the ledger was altered"
                    .to_owned()
            }
            Self::Lost { loss, .. } => format!("the database lacks what was acknowledged: {loss}"),
        };
        let failure = Failure::new(ErrorCode::DbError, format!("nothing was written, and nothing can be: {why}"));
        Failure { retryable: false, ..failure }
            .hint("Reads go on. The operator finds the cause and what to do with `countersign doctor`.")
    }
}

/// The obstacle that stops the writes of this server. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteStop(Arc<Mutex<Option<LedgerObstacle>>>);

impl WriteStop {
    /// Stops writes, or resumes them. Logs what has changed.
    pub(crate) fn set(&self, obstacle: Option<LedgerObstacle>) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *current == obstacle {
            return;
        }
        match &obstacle {
            Some(stop @ LedgerObstacle::Lost { loss, .. }) => {
                let missing: Vec<_> = loss.records.iter().map(ToString::to_string).collect();
                tracing::error!(missing = missing.join(" "), "writes are stopped: {stop}");
            }
            Some(stop) => tracing::error!("writes are stopped: {stop}"),
            None => tracing::warn!("writes go on"),
        }
        *current = obstacle;
    }

    /// The obstacle that was found last.
    pub(crate) fn current(&self) -> Option<LedgerObstacle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fails while writes are stopped. After a loss PostgreSQL refuses them itself, until a fork.
    pub(crate) fn check(&self) -> Result<(), WriteError> {
        match self.current() {
            None | Some(LedgerObstacle::Lost { .. }) => Ok(()),
            Some(obstacle) => Err(obstacle.failure().into()),
        }
    }
}

/// What the database lacked for the last write. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shortage(Arc<Mutex<Option<(Instant, &'static str)>>>);

impl Shortage {
    /// How long it is reported. A server that is not ready gets no writes, which could show that it has ended.
    const REPORTED_FOR: Duration = Duration::from_secs(60);

    pub(crate) fn note<T>(&self, written: &Result<T, WriteError>) {
        let found = match written {
            Ok(_) => None,
            Err(error) => match error.failure.sqlstate.as_deref() {
                Some("53100") => Some("a disk of the database is full (53100)"),
                Some("58030") => Some("a file of the database cannot be read or written (58030)"),
                _ => return,
            },
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = found.map(|found| (Instant::now(), found));
    }

    pub(crate) fn current(&self) -> Option<&'static str> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _)| at.elapsed() < Self::REPORTED_FOR).map(|(_, what)| *what)
    }
}
