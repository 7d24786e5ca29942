//! The slow path of admission, for a call whose slot is taken by an identical one, or whose connection was lost. The
//! ledger decides.
//!
//! ```text
//! caller A   begin_write    | execute ........ commit |
//! caller B          begin_write: the slot is taken    admit -> in_flight   admit ...   admit -> standing, answer: duplicate of A
//! ```
//! B records nothing and holds no connection while it waits. Otherwise the waiting calls could take all connections,
//! and A could not finish.

use std::time::Duration;

use pg::{ContextStatements, PipelineError, PipelineStatement, PooledSession, StatementResult, WriterPool};
use serde_json::Value;
use tokio::time::Instant;
use types::{CorrelationId, ErrorCode, Failure};

use crate::write::attempt::{RESOLVE_TIMEOUT, WriteAttempt};
use crate::write::dedup_cache::DedupCache;
use crate::write::failures::{FENCED, WriteError, aborted, frozen, key_reused, superseded, unanswered, undone_before};
use crate::write::policy::{NOT_LET_RUN, PolicyStatement, not_evaluated};
use crate::write::resolve::{self, OwnTransaction};

pub(crate) enum AdmitDecision {
    /// The attempt is admitted and may be claimed.
    Run,
    /// An identical write has succeeded and is in force.
    Duplicate { original: CorrelationId, cached_result: Value },
    /// The ledger refuses the attempt.
    Refused(Failure),
    /// The attempt is not admitted, because the policy of the tool does not let it run (`None`) or cannot be applied
    /// (the failure).
    NotLetRun(Option<Failure>),
}

const ADMIT_SQL: &str = "select verdict, original, detail \
    from countersign.admit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, of_caller => $17)";
/// Runs with the privileges of the login, not of the ledger's owner.
const CHANGED_SQL: &str = "select countersign.changed_since($1)";
const ANSWER_SQL: &str = "select countersign.answer_duplicate($1, $2, $3, $4)";
const RESULT_SQL: &str = "select m.result from countersign.mutation m where m.correlation_id operator(pg_catalog.=) $1";

/// The first pause of a waiting duplicate. It is short, since most writes take milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// The time limit, after the deadline, for recording that a duplicate gave up.
const GIVE_UP_TIMEOUT: Duration = Duration::from_secs(2);

/// The message for a duplicate that waited until its deadline.
pub(crate) const STILL_RUNNING: &str =
    "an identical write is still running and did not finish within the deadline; this call wrote nothing";

pub(crate) struct Admission<'a> {
    pub(crate) writer: &'a WriterPool,
    pub(crate) dedup_cache: &'a DedupCache,
    pub(crate) attempt: &'a WriteAttempt<'a>,
    /// Applies the policy of the tool, if it has one.
    pub(crate) policy: Option<&'a PolicyStatement>,
}

impl Admission<'_> {
    /// Waits while an identical call is running, then returns the verdict.
    pub(crate) async fn admit(&self) -> Result<AdmitDecision, WriteError> {
        let deadline = self.attempt.call.deadline;
        let (mut pause, mut is_running) = (FIRST_PAUSE, false);
        loop {
            match self.ask(is_running).await? {
                Some(verdict) => return Ok(verdict),
                None if Instant::now() + pause >= deadline => return Err(self.give_up().await),
                None => is_running = true,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Gives up while the identical call is still running. The error has a correlation id only if the ledger has
    /// recorded the failure.
    async fn give_up(&self) -> WriteError {
        let failure = Failure::new(ErrorCode::DuplicateInFlight, STILL_RUNNING);
        let deadline = Instant::now() + GIVE_UP_TIMEOUT;
        let recorded =
            resolve::resolve(self.writer, self.attempt, OwnTransaction::None, Some(&failure), deadline).await;
        let is_unknown = recorded.is_err_and(|failure| failure.code == ErrorCode::CommitOutcomeUnknown);
        let correlation_id = (!is_unknown).then_some(self.attempt.intent.correlation_id);
        WriteError { correlation_id, failure: failure.into() }
    }

    /// Returns `None` while the identical call is running. `is_running`: whether it was running at the previous
    /// request.
    async fn ask(&self, is_running: bool) -> Result<Option<AdmitDecision>, WriteError> {
        let answer = match self.ask_once().await {
            Ok(answer) => answer,
            Err(pg::Error::Lost(error)) => {
                tracing::info!(%error, "a pooled connection was lost; admitting again on a fresh one");
                self.forget();
                // Admission is idempotent: a repeated request of this attempt gets the same verdict.
                match self.ask_once().await {
                    Ok(answer) => answer,
                    Err(error) => return Err(self.abandoned(error).await),
                }
            }
            // The server may have recorded this attempt, but was too slow to answer.
            Err(pg::Error::Deadline) if is_running => return Err(self.give_up().await),
            Err(pg::Error::Deadline) => return Err(self.abandoned(pg::Error::Deadline).await),
            Err(error) => return Err(unanswered(None, &error)),
        };
        let [verdict, original, detail] = match answer {
            Ok(answer) => answer.into_row().unwrap_or_default(),
            Err(refused) => return Ok(Some(refused)),
        };
        let original = original.as_deref().and_then(CorrelationId::parse);
        let detail = detail.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
        Ok(Some(match (verdict.as_deref(), original) {
            (Some("run"), _) => AdmitDecision::Run,
            (Some("in_flight"), _) => return Ok(None),
            (Some("standing"), Some(original)) => self.answer(original).await?,
            (Some("superseded"), Some(original)) => AdmitDecision::Refused(superseded(original, &detail)),
            (Some("fenced"), _) => AdmitDecision::Refused(self.recorded_failure().await),
            (Some("already_reversed"), original) => AdmitDecision::Refused(undone_before(original, &detail)),
            (Some("key_reused"), _) => AdmitDecision::Refused(key_reused()),
            (Some("frozen"), _) => AdmitDecision::Refused(frozen()),
            _ => {
                let message = "countersign.admit gave an answer of another version";
                return Err(self.abandoned(pg::Error::Lost(std::io::Error::other(message))).await);
            }
        }))
    }

    /// One request for the verdict. The attempt of a tool with a policy is admitted in the same transaction that
    /// applies the policy. A duplicate is answered without the policy.
    async fn ask_once(&self) -> Result<Result<StatementResult, AdmitDecision>, pg::Error> {
        let deadline = self.attempt.call.deadline;
        let Some(policy) = self.policy else {
            return self.writer.run_one(ADMIT_SQL, &self.attempt.intent.columns, deadline).await.map(Ok);
        };
        let mut lease = self.writer.acquire(deadline).await?;
        let asked = tokio::time::timeout_at(deadline, self.admit_by_policy(&mut lease, policy)).await;
        let asked = asked.unwrap_or(Err(pg::Error::Deadline));
        if asked.is_err() {
            // A session may return to its pool only without an open transaction.
            lease.discard();
        }
        asked
    }

    async fn admit_by_policy(
        &self,
        lease: &mut PooledSession,
        policy: &PolicyStatement,
    ) -> Result<Result<StatementResult, AdmitDecision>, pg::Error> {
        let admit = PipelineStatement::new(ADMIT_SQL, &self.attempt.intent.columns);
        let outcomes = lease.session().begin(None, &[admit]).await.map_err(|failed| failed.error)?;
        let answer = outcomes.into_iter().next().unwrap_or_default();
        let runs =
            answer.rows.first().and_then(|row| row.first()).is_some_and(|verdict| verdict.as_deref() == Some("run"));
        let commit = PipelineStatement::without_params("commit");
        let steps = if runs { vec![policy.step(), commit] } else { vec![commit] };
        match lease.session().run(&steps).await {
            Ok(_) => Ok(Ok(answer)),
            Err(PipelineError { step: 0, error: pg::Error::Server(error) }) if runs => {
                let rollback = [PipelineStatement::without_params("rollback")];
                lease.session().run(&rollback).await.map_err(|failed| failed.error)?;
                let failure = (error.sqlstate != NOT_LET_RUN).then(|| not_evaluated(&error));
                Ok(Err(AdmitDecision::NotLetRun(failure)))
            }
            Err(failed) => Err(failed.error),
        }
    }

    /// The recorded failure of this attempt, which another server has ended.
    async fn recorded_failure(&self) -> Failure {
        let deadline = Instant::now() + RESOLVE_TIMEOUT;
        match resolve::ask_record(self.writer, self.attempt.intent.correlation_id, deadline).await {
            Ok(Some(Err(failure))) => failure,
            _ => aborted(),
        }
    }

    /// The dedup cache says that the write is in force, but the ledger decides.
    async fn answer(&self, original: CorrelationId) -> Result<AdmitDecision, WriteError> {
        match self.try_answer(original).await {
            Ok(verdict) => Ok(verdict),
            Err(error) => Err(self.abandoned(error).await),
        }
    }

    async fn try_answer(&self, original: CorrelationId) -> Result<AdmitDecision, pg::Error> {
        let deadline = self.attempt.call.deadline;
        let id = Some(original.to_string());
        let mut lease = self.writer.acquire(deadline).await?;
        let statements = ContextStatements::of(&self.attempt.call.request.principal.context);
        let changed = PipelineStatement::new(CHANGED_SQL, std::slice::from_ref(&id));
        let compared = lease.run_one_for(statements.as_ref(), changed, deadline).await?;
        let changed = compared.into_value();
        let changed = changed.and_then(|json| serde_json::from_str::<Value>(&json).ok());
        let params = [
            Some(self.attempt.intent.correlation_id.to_string()),
            Some(self.attempt.intent.slot.clone()),
            id.clone(),
            changed.as_ref().map(Value::to_string),
        ];
        lease.run_one(ANSWER_SQL, &params, deadline).await?;
        if let Some(changed) = changed {
            return Ok(AdmitDecision::Refused(superseded(original, &changed)));
        }
        let answer = lease.run_one(RESULT_SQL, &[id], deadline).await?;
        let result = answer.into_value();
        let cached_result = result.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
        Ok(AdmitDecision::Duplicate { original, cached_result })
    }

    /// The ledger did not answer, and may have admitted the attempt. The attempt must be ended, because the next
    /// identical call would wait for it.
    async fn abandoned(&self, error: pg::Error) -> WriteError {
        self.forget();
        // The work was never started, so nothing was written, whatever the record says.
        let deadline = Instant::now() + RESOLVE_TIMEOUT;
        let resolved = resolve::resolve(self.writer, self.attempt, OwnTransaction::None, None, deadline).await;
        match (resolved, &error) {
            // Another server has ended the attempt, and its record has the reason.
            (Err(failure), pg::Error::Server(server)) if server.sqlstate == FENCED => {
                WriteError { correlation_id: Some(self.attempt.intent.correlation_id), failure: failure.into() }
            }
            _ => unanswered(Some(self.attempt.intent.correlation_id), &error),
        }
    }

    /// After a lost connection the other pooled ones may be dead as well, or lead to another server than the next
    /// one.
    fn forget(&self) {
        self.writer.retire_all();
        self.dedup_cache.forget_all();
    }
}
