//! T1: the intent is committed before anything else happens, and an identical call is found.
//!
//! ```text
//! caller A   admit -> run            | execute ........ commit |
//! caller B          admit -> in_flight  contend  contend ...  contend -> duplicate of A
//! ```
//! B waits only after its own T1 has committed, and holds no connection meanwhile: otherwise the waiting ones could
//! take every connection that A needs to finish.

use std::time::Duration;

use contract::{CorrelationId, ErrorCode, Failure};
use pg::{Lease, Writer};
use serde_json::Value;
use tokio::time::Instant;

use crate::gate::{RESOLVE_TIMEOUT, Stopped};
use crate::intent::Intent;
use crate::memory::Memory;
use crate::resolve;

/// What T1 found.
pub(crate) enum Verdict {
    /// Go on, on this session.
    Run(Box<Lease>),
    /// It is done already.
    Duplicate { original: CorrelationId, cached_result: Value },
    /// The record says no.
    Refused(Failure),
}

const ADMIT_SQL: &str = "select * from countersign.admit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
const CONTEND_SQL: &str = "select * from countersign.contend($1)";
const GIVE_UP_SQL: &str = "select countersign.finish_failure($1, 'duplicate_in_flight', null, $2)";

/// The SQLSTATE of a record that is no longer this attempt's (migrations).
pub(crate) const FENCED: &str = "CS001";

/// How often a waiting duplicate asks again: soon at first, since most writes take milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// How long it may take after the deadline to write down that a duplicate gave up.
const GIVE_UP_TIMEOUT: Duration = Duration::from_secs(2);

/// What a duplicate is told that waited in vain.
pub(crate) const STILL_RUNNING: &str =
    "an identical write is still running and did not finish within the deadline; this call wrote nothing";

/// T1 of one attempt.
pub(crate) struct Admission<'a> {
    pub(crate) writer: &'a Writer,
    pub(crate) memory: &'a Memory,
    pub(crate) intent: &'a Intent,
    pub(crate) deadline: Instant,
    /// Whether the intent waits for the disk by itself.
    pub(crate) durable: bool,
}

impl Admission<'_> {
    /// Records the intent and waits for an identical call that is still running.
    pub(crate) async fn admit(&self) -> Result<Verdict, Stopped> {
        let id = Some(self.intent.correlation_id.to_string());
        let mut answer = self.record().await?;
        let mut pause = FIRST_PAUSE;
        loop {
            match answer {
                Answer::Run(lease) => return Ok(Verdict::Run(lease)),
                Answer::Duplicate { original, cached_result } => {
                    return Ok(Verdict::Duplicate { original, cached_result });
                }
                Answer::KeyReused => return Ok(Verdict::Refused(key_reused())),
                Answer::InFlight => {}
            }
            if Instant::now() + pause >= self.deadline {
                return self.give_up().await;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            answer = match ask(self.writer, CONTEND_SQL, std::slice::from_ref(&id), self.deadline).await {
                Ok(answer) => answer,
                // As far as is known the identical write still runs.
                Err(pg::Error::Deadline) => return self.give_up().await,
                Err(error) => return Err(self.abandoned(error).await),
            };
        }
    }

    async fn record(&self) -> Result<Answer, Stopped> {
        let mut admit_params = self.intent.columns().to_vec();
        admit_params.push(Some(self.durable.to_string()));
        match ask(self.writer, ADMIT_SQL, &admit_params, self.deadline).await {
            Ok(answer) => Ok(answer),
            Err(pg::Error::Lost(error)) => {
                tracing::info!(%error, "a pooled connection was lost; admitting again on a fresh one");
                self.forget();
                match resolve::is_recorded(self.writer, self.intent.correlation_id, self.deadline).await {
                    Ok(false) => {}
                    Ok(true) => return Err(self.abandoned(pg::Error::Lost(error)).await),
                    // It may have been recorded, and it cannot be asked now.
                    Err(error) => return Err(self.abandoned(error).await),
                }
                match ask(self.writer, ADMIT_SQL, &admit_params, self.deadline).await {
                    Ok(answer) => Ok(answer),
                    Err(error) => Err(self.abandoned(error).await),
                }
            }
            // It may have been recorded, by a server that is too slow to say so.
            Err(pg::Error::Deadline) => Err(self.abandoned(pg::Error::Deadline).await),
            Err(error) => Err(unanswered(None, &error)),
        }
    }

    async fn give_up(&self) -> Result<Verdict, Stopped> {
        let params = [Some(self.intent.correlation_id.to_string()), Some(STILL_RUNNING.to_owned())];
        let deadline = Instant::now() + GIVE_UP_TIMEOUT;
        match self.writer.ask(GIVE_UP_SQL, &params, deadline).await {
            Ok(_) => Ok(Verdict::Refused(Failure::new(ErrorCode::DuplicateInFlight, STILL_RUNNING))),
            Err(error) => Err(self.abandoned(error).await),
        }
    }

    /// The ledger could not be asked, after the record may have been made: the record gets its end all the same, or the
    /// next identical call would wait for it.
    async fn abandoned(&self, error: pg::Error) -> Stopped {
        self.forget();
        // Nothing has been executed, so whatever it says, nothing was written.
        let resolved = resolve::resolve(self.writer, self.intent, None, Instant::now() + RESOLVE_TIMEOUT).await;
        match (resolved, &error) {
            // The record was swept while it waited: it says so itself.
            (Err(failure), pg::Error::Server(server)) if server.sqlstate == FENCED => {
                Stopped { correlation_id: Some(self.intent.correlation_id), failure: failure.into() }
            }
            _ => unanswered(Some(self.intent.correlation_id), &error),
        }
    }

    /// A connection was lost: the other ones may be, and another server may answer on the next.
    fn forget(&self) {
        self.writer.forget_idle();
        self.memory.forget_all();
    }
}

/// What is told to whoever uses a key again for something else.
#[must_use]
pub fn key_reused() -> Failure {
    Failure::new(
        ErrorCode::IdempotencyKeyReused,
        "this idempotency_key was used with other arguments within the last 24 hours; nothing was written",
    )
    .hint("Repeat the call with the very same arguments, or choose a new idempotency_key for a new write.")
}

enum Answer {
    Run(Box<Lease>),
    Duplicate { original: CorrelationId, cached_result: Value },
    KeyReused,
    InFlight,
}

async fn ask(writer: &Writer, sql: &str, params: &[Option<String>], deadline: Instant) -> Result<Answer, pg::Error> {
    let mut lease = writer.lease(deadline).await?;
    let row = lease.ask(sql, params, deadline).await?.rows.into_iter().next().unwrap_or_default();
    let [verdict, original, cached_result] = <[Option<String>; 3]>::try_from(row).unwrap_or_default();
    let original = original.as_deref().and_then(CorrelationId::parse);
    match (verdict.as_deref(), original) {
        (Some("run"), _) => Ok(Answer::Run(Box::new(lease))),
        (Some("duplicate"), Some(original)) => {
            let cached_result = cached_result.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
            Ok(Answer::Duplicate { original, cached_result })
        }
        (Some("key_reused"), _) => Ok(Answer::KeyReused),
        (Some("in_flight"), _) => Ok(Answer::InFlight),
        _ => Err(pg::Error::Lost(std::io::Error::other("countersign.admit gave an answer of another version"))),
    }
}

fn unanswered(correlation_id: Option<CorrelationId>, error: &pg::Error) -> Stopped {
    Stopped { correlation_id, failure: ledger_failure(error).into() }
}

/// What an agent is told when the ledger cannot be used. The error itself is for the log: it may name tables and hosts.
pub(crate) fn ledger_failure(error: &pg::Error) -> Failure {
    tracing::error!(%error, "the ledger cannot be used");
    match error {
        pg::Error::Connect(error) => {
            Failure { message: format!("{error}; nothing was written"), ..Failure::from(error) }
        }
        pg::Error::Busy { .. } => Failure::new(ErrorCode::DatabaseUnavailable, format!("{error}; nothing was written"))
            .hint("Call again when fewer writes run. The operator can raise write_sessions or call_deadline_ms."),
        pg::Error::Deadline => Failure::new(
            ErrorCode::DatabaseUnavailable,
            "the ledger did not answer before the deadline; nothing was written",
        ),
        pg::Error::Server(error) => Failure {
            sqlstate: Some(error.sqlstate.clone()),
            ..Failure::new(ErrorCode::DbError, "the ledger cannot be written, so nothing was written")
        },
        _ => Failure::new(ErrorCode::DbError, "the connection to the ledger was lost; nothing was written"),
    }
}
