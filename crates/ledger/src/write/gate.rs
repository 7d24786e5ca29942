//! The gate runs the protocol of a write: look up, admit, execute, and after a lost connection resolve.

use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use pg::{PipelineStatement, PooledSession, ServerError, WriterPool};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use types::{CorrelationId, Effects, ErrorCode, Failure, Tier};

use crate::LedgerOptions;
use crate::write::admit::{self, AdmitDecision};
use crate::write::attempt::{CANCEL_GRACE, RESOLVE_TIMEOUT, UNDONE_TIMEOUT, WriteAttempt, WriteOutcome};
use crate::write::dedup_cache::{CallKey, DedupCache, InFlightGuard, Lookup};
use crate::write::execute;
use crate::write::execute::WriteStart;
use crate::write::executor::{WriteExecutor, WriteOutput, WriteRequest};
use crate::write::existing_write::{self, ExistingWrite};
use crate::write::failures::{WriteError, aborted, internal_error, ledger_failure, sql_failure, too_large, unanswered};
use crate::write::intent::{Intent, MAX_PARAMS_BYTES};
use crate::write::policy::{self, PolicyMode, PolicyStatement, not_evaluated};
use crate::write::preview::Trials;
use crate::write::remote_writes::RemoteWrites;
use crate::write::report;
use crate::write::resolve;
use crate::write::resolve::OwnTransaction;
use crate::write::write_stop::WriteStop;
use crate::write::write_tx::Unopened;

/// The only way to write.
#[derive(Debug, Clone)]
pub struct Gate {
    writer: WriterPool,
    settings: LedgerOptions,
    dedup_cache: DedupCache,
    /// The tasks of running writes. All clones of a gate share them.
    running: TaskTracker,
    pub(crate) stop: WriteStop,
    remote_writes: RemoteWrites,
}

impl Gate {
    pub(crate) fn new(writer: WriterPool, settings: LedgerOptions) -> Self {
        let dedup_cache = DedupCache::new(settings.duplicate_memory);
        Self {
            writer,
            settings,
            dedup_cache,
            running: TaskTracker::new(),
            stop: WriteStop::default(),
            remote_writes: RemoteWrites::default(),
        }
    }

    /// Executes the attempt at most once. If the caller drops the future, the work continues in its task: a client
    /// that disconnects must not leave a record without an outcome.
    ///
    /// # Errors
    /// [`WriteError`]; nothing was written, unless the code is [`ErrorCode::CommitOutcomeUnknown`].
    pub async fn perform(&self, attempt: WriteAttempt) -> Result<WriteOutcome, WriteError> {
        self.stop.check()?;
        let correlation_id =
            attempt.precondition.as_ref().map_or_else(CorrelationId::new, |precondition| precondition.correlation_id());
        let protocol = WriteProtocol {
            writer: self.writer.clone(),
            settings: self.settings.clone(),
            dedup_cache: self.dedup_cache.clone(),
            remote_writes: self.remote_writes.clone(),
            attempt,
            correlation_id,
        };
        self.spawn(Some(correlation_id), protocol.run()).await
    }

    /// Runs work in a task that continues if the future is dropped. [`Gate::drain`] waits for it.
    pub(crate) async fn spawn<T: Send + 'static>(
        &self,
        correlation_id: Option<CorrelationId>,
        work: impl Future<Output = Result<T, WriteError>> + Send + 'static,
    ) -> Result<T, WriteError> {
        self.running.spawn(work).await.unwrap_or_else(|error| {
            tracing::error!(?correlation_id, %error, "the write protocol itself failed");
            Err(WriteError { correlation_id, failure: internal_error().into() })
        })
    }

    /// Starts work in a task without waiting for its end.
    pub(crate) fn begin(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(work);
    }

    /// Executes the write in a transaction that is always rolled back, and returns the result and the effects. No
    /// record is made. Dropping the future ends the work.
    pub async fn preview(
        &self,
        executor: &dyn WriteExecutor,
        request: &WriteRequest,
        deadline: Instant,
    ) -> Result<(WriteOutput, Option<Effects>), Failure> {
        Trials { writer: &self.writer, executor, request, deadline }.work().await
    }

    /// The current usage of the pool of writing sessions.
    #[must_use]
    pub fn usage(&self) -> pg::PoolStatus {
        self.writer.status()
    }

    /// Waits for the running writes before the process exits. Each ends at its deadline, plus the time to resolve its
    /// outcome.
    pub async fn drain(&self) {
        self.running.close();
        self.running.wait().await;
        self.writer.drain().await;
    }
}

struct WriteProtocol {
    writer: WriterPool,
    settings: LedgerOptions,
    dedup_cache: DedupCache,
    remote_writes: RemoteWrites,
    attempt: WriteAttempt,
    correlation_id: CorrelationId,
}

/// How the next try begins, and the statement that applies the policy.
type StartAndPolicy<'a> = (WriteStart, Option<&'a PolicyStatement>);

/// The maximum number of retries of one write because of concurrent migrations.
const MAX_RENEWALS: u32 = 3;

/// The result of one try.
enum TryResult {
    Ended(Result<WriteOutcome, WriteError>),
    /// The transaction could not be opened; no statement of the executor has run.
    Unopened(Unopened),
    /// The work was rolled back and may run again on a new session, after a migration.
    Renewed,
    /// Nothing was written, but the failure is not recorded yet.
    Undone(Failure),
    /// It is unknown whether the write committed. The failure is its reason if it did not.
    Doubtful(Option<Failure>),
}

enum LookupResult {
    Answer(Result<WriteOutcome, WriteError>),
    Unknown(InFlightGuard),
}

impl WriteProtocol {
    #[tracing::instrument(name = "mutation", skip_all, fields(correlation_id = %self.correlation_id, tool = self.attempt.tool, account = self.attempt.request.principal.account_id.as_str()))]
    async fn run(self) -> Result<WriteOutcome, WriteError> {
        let fingerprint = self.settings.fingerprints.of(&self.attempt.tool, &self.attempt.request.params);
        let call = CallKey {
            account: self.attempt.request.principal.account_id.clone(),
            fingerprint: fingerprint.as_str().to_owned(),
            idempotency_key: self.attempt.idempotency_key.clone(),
        };
        let intent = self.attempt.intent(self.correlation_id, &fingerprint);
        if intent.params_bytes() > MAX_PARAMS_BYTES {
            let message = format!(
                "the parameters are {} bytes of JSON, and a record takes {MAX_PARAMS_BYTES}; nothing was written",
                intent.params_bytes()
            );
            let failure = Failure::new(ErrorCode::InvalidParams, message).hint("Write less in one call.");
            return Err(WriteError { correlation_id: None, failure: failure.into() });
        }
        let guard = match self.look_up(&call, &intent).await {
            LookupResult::Answer(answer) => return answer,
            LookupResult::Unknown(guard) => guard,
        };
        let policy = self.policy(&intent)?;
        let outcome = self.admit_and_execute(&intent, policy.as_ref()).await;
        match &outcome {
            Ok(WriteOutcome::Executed { correlation_id: original, .. } | WriteOutcome::Duplicate { original, .. }) => {
                guard.succeeded(*original);
            }
            Ok(WriteOutcome::NeedsApproval(_)) | Err(_) => drop(guard),
        }
        outcome
    }

    /// The statement that applies the policy of the tool, if it has one. `None` for the write of a proposal, which
    /// has passed the policy already.
    fn policy(&self, intent: &Intent) -> Result<Option<PolicyStatement>, WriteError> {
        if self.attempt.precondition.is_some() {
            return Ok(None);
        }
        let WriteAttempt { request, executor, .. } = &self.attempt;
        let slot = intent.slot().unwrap_or_default();
        let call = executor.policy(request)?;
        Ok(call.map(|call| call.statement(PolicyMode::Run(&slot), &request.principal, self.correlation_id)))
    }

    /// The outcome of a call that the policy refuses to run. `None` if the call may be tried again.
    async fn refused_by_policy(&self) -> Result<Option<WriteOutcome>, WriteError> {
        let WriteAttempt { request, executor, deadline, redaction, .. } = &self.attempt;
        let Some(call) = executor.policy(request)? else { return Ok(None) };
        let applied = policy::decide(&self.writer, &call, &request.principal, PolicyMode::Refuse, *deadline).await;
        let applied = applied.map_err(|failure| failure.redacted(redaction))?;
        Ok((applied.tier > Tier::Auto).then_some(WriteOutcome::NeedsApproval(applied)))
    }

    /// Waits for an identical call that is running on this server, or checks whether one that succeeded is still in
    /// force.
    async fn look_up(&self, call: &CallKey, intent: &Intent) -> LookupResult {
        loop {
            let original = match self.dedup_cache.enter(call) {
                Lookup::First(guard) => return LookupResult::Unknown(guard),
                Lookup::Running(mut ended) => {
                    // The channel carries no values; it closes when the call ends.
                    if tokio::time::timeout_at(self.attempt.deadline, ended.changed()).await.is_err() {
                        let failure = Failure::new(ErrorCode::DuplicateInFlight, admit::STILL_RUNNING);
                        return LookupResult::Answer(Err(WriteError { correlation_id: None, failure: failure.into() }));
                    }
                    continue;
                }
                Lookup::Done(original) => original,
            };
            let standing =
                existing_write::find(&self.writer, intent.slot(), intent.fingerprint(), self.attempt.deadline);
            match standing.await {
                Ok(Some(ExistingWrite::Executed(standing, cached_result))) if standing == original => {
                    tracing::info!(%original, "duplicate, from memory");
                    return LookupResult::Answer(Ok(WriteOutcome::Duplicate {
                        correlation_id: original,
                        original,
                        cached_result,
                    }));
                }
                Ok(_) => self.dedup_cache.forget(call, original),
                Err(error) => {
                    tracing::debug!(%error, "the ledger cannot confirm what is remembered");
                    self.dedup_cache.forget_all();
                }
            }
        }
    }

    async fn admit_and_execute(
        &self,
        intent: &Intent,
        policy: Option<&PolicyStatement>,
    ) -> Result<WriteOutcome, WriteError> {
        let mut start = self.first_start(policy);
        let (mut lost, mut renewals) = (false, 0);
        loop {
            let mut lease = match self.writer.acquire(self.attempt.deadline).await {
                Ok(lease) => lease,
                Err(error) => return Err(self.without_session(intent, start, &error).await),
            };
            match self.execute(&mut lease, intent, (start, policy)).await {
                TryResult::Ended(outcome) => return outcome,
                TryResult::Doubtful(cause) => {
                    lease.discard();
                    return self.resolve(intent, cause).await;
                }
                TryResult::Undone(failure) => {
                    lease.discard();
                    return Err(self.undone(intent, failure).await);
                }
                TryResult::Renewed if renewals < MAX_RENEWALS => {
                    tracing::info!("a migration has changed columns; the write is tried again");
                    self.writer.retire_all();
                    renewals += 1;
                    if matches!(start, WriteStart::Admit { .. }) {
                        start = WriteStart::Claim;
                    }
                    continue;
                }
                TryResult::Renewed => {
                    let why = "tables were altered while the write ran; nothing was written";
                    return Err(self.undone(intent, Failure::new(ErrorCode::Timeout, why)).await);
                }
                TryResult::Unopened(Unopened::Failed(error)) => return Err(unanswered(None, &error)),
                TryResult::Unopened(Unopened::Unclaimed(error)) => {
                    lease.discard();
                    return Err(self.undone(intent, ledger_failure(&error)).await);
                }
                TryResult::Unopened(Unopened::Policy(error)) => {
                    lease.discard();
                    return Err(not_evaluated(&error).redacted(&self.attempt.redaction).into());
                }
                TryResult::Unopened(Unopened::Lost(error)) => {
                    lease.discard();
                    self.writer.retire_all();
                    self.dedup_cache.forget_all();
                    if self.is_admitted(intent, start).await {
                        tracing::info!(%error, "the connection was lost before the write committed");
                        return Err(self.stopped(aborted()));
                    }
                    if lost {
                        return Err(self.undone(intent, aborted()).await);
                    }
                    tracing::info!(%error, "a pooled connection was lost; the write begins again on a fresh one");
                    lost = true;
                    continue;
                }
                TryResult::Unopened(Unopened::Refused) => {
                    // A session may return to its pool only without an open transaction.
                    if lease.session().run(&[PipelineStatement::without_params("rollback")]).await.is_err() {
                        lease.discard();
                    } else {
                        // A waiting call must not hold a session.
                        drop(lease);
                    }
                }
            }
            match self.admit(intent, policy).await? {
                ControlFlow::Continue(next) => start = next,
                ControlFlow::Break(outcome) => return Ok(outcome),
            }
        }
    }

    /// A write is one transaction, unless its attempt must be committed before it begins.
    fn first_start(&self, policy: Option<&PolicyStatement>) -> WriteStart {
        let is_durable = self.settings.durable_admission;
        if is_durable || policy.is_some() || self.attempt.precondition.is_some() {
            WriteStart::Admit { is_durable }
        } else {
            WriteStart::Begin
        }
    }

    /// Whether an attempt was admitted before its connection was lost. If it was, this ends it.
    async fn is_admitted(&self, intent: &Intent, start: WriteStart) -> bool {
        let deadline = Instant::now() + RESOLVE_TIMEOUT;
        start != WriteStart::Begin && resolve::abort(&self.writer, (intent, &self.attempt), deadline).await
    }

    /// Asks the ledger for a verdict after the fast path did not admit the attempt.
    async fn admit(
        &self,
        intent: &Intent,
        policy: Option<&PolicyStatement>,
    ) -> Result<ControlFlow<WriteOutcome, WriteStart>, WriteError> {
        let (writer, dedup_cache, attempt) = (&self.writer, &self.dedup_cache, &self.attempt);
        match (admit::Admission { writer, dedup_cache, intent, attempt, policy }).admit().await? {
            AdmitDecision::Run => Ok(ControlFlow::Continue(WriteStart::Claim)),
            AdmitDecision::NotLetRun(Some(failure)) => Err(failure.redacted(&attempt.redaction).into()),
            AdmitDecision::NotLetRun(None) => {
                let again = self.first_start(policy);
                Ok(self.refused_by_policy().await?.map_or(ControlFlow::Continue(again), ControlFlow::Break))
            }
            AdmitDecision::Duplicate { original, cached_result } => {
                tracing::info!(%original, "duplicate");
                let correlation_id = self.correlation_id;
                Ok(ControlFlow::Break(WriteOutcome::Duplicate { correlation_id, original, cached_result }))
            }
            AdmitDecision::Refused(failure) => Err(self.stopped(failure)),
        }
    }

    /// One try on one session.
    async fn execute(&self, lease: &mut PooledSession, intent: &Intent, start: StartAndPolicy<'_>) -> TryResult {
        let executed = execute::execute(&self.writer, lease, intent, &self.attempt, start, &self.remote_writes);
        // An executor may panic. Then the session is dropped, so its transaction cannot commit.
        let caught = AssertUnwindSafe(executed).catch_unwind();
        let outcome = tokio::time::timeout_at(self.attempt.deadline + CANCEL_GRACE, caught);
        let outcome = match start {
            (WriteStart::Begin, _) => report::while_it_runs(&self.writer, intent, outcome).await,
            _ => outcome.await,
        };
        match outcome {
            Ok(Ok(Ok(done))) => {
                tracing::info!(rows_affected = done.rows_affected, "executed");
                TryResult::Ended(Ok(WriteOutcome::Executed {
                    correlation_id: self.correlation_id,
                    data: done.data,
                    rows_affected: done.rows_affected,
                    rollback: done.rollback.into(),
                }))
            }
            Ok(Ok(Err(execute::CommitError::Unopened(unopened)))) => TryResult::Unopened(unopened),
            Ok(Ok(Err(execute::CommitError::Renewed))) => TryResult::Renewed,
            Ok(Ok(Err(execute::CommitError::Recorded(failure)))) => {
                tracing::info!(code = %failure.code, "failed");
                TryResult::Ended(Err(self.stopped(failure)))
            }
            Ok(Ok(Err(execute::CommitError::Undone(error)))) => {
                tracing::warn!(error = self.attempt.redaction.text(&error.to_string()), "the outcome was refused");
                TryResult::Undone(self.unrecorded(&error))
            }
            Ok(Ok(Err(execute::CommitError::Refused(error)))) => {
                tracing::info!(error = self.attempt.redaction.text(&error.to_string()), "COMMIT was refused");
                TryResult::Undone(sql_failure(&error).redacted(&self.attempt.redaction))
            }
            Ok(Ok(Err(execute::CommitError::InDoubt(error)))) => {
                tracing::warn!(error = self.attempt.redaction.text(&error.to_string()), "the outcome is in doubt");
                TryResult::Doubtful(matches!(error, pg::Error::MessageTooLarge { .. }).then(too_large))
            }
            Ok(Err(_)) => {
                tracing::error!("the executor panicked");
                TryResult::Doubtful(Some(internal_error()))
            }
            Err(_) => {
                let why = "the write did not finish within its deadline";
                TryResult::Doubtful(Some(Failure::new(ErrorCode::Timeout, why)))
            }
        }
    }

    /// The failure when no session is available. An attempt that is already admitted is ended.
    async fn without_session(&self, intent: &Intent, start: WriteStart, error: &pg::Error) -> WriteError {
        match start {
            WriteStart::Begin | WriteStart::Admit { .. } => unanswered(None, error),
            WriteStart::Claim => self.undone(intent, ledger_failure(error)).await,
        }
    }

    /// Resolves the outcome. `cause` is the failure for the caller and the record if nothing was written.
    async fn resolve(&self, intent: &Intent, cause: Option<Failure>) -> Result<WriteOutcome, WriteError> {
        self.writer.retire_all();
        self.dedup_cache.forget_all();
        let deadline = Instant::now() + RESOLVE_TIMEOUT;
        let resolved =
            resolve::resolve(&self.writer, (intent, &self.attempt), OwnTransaction::MayRun, cause.as_ref(), deadline)
                .await;
        resolved.map_err(|failure| self.stopped(failure))
    }

    /// The failure of a write whose outcome could not be recorded.
    fn unrecorded(&self, error: &ServerError) -> Failure {
        match error.sqlstate.get(..2) {
            // A serialization conflict that appears only now, under an isolation level that the operator has set.
            Some("40") => sql_failure(error).redacted(&self.attempt.redaction),
            // The statement timed out while it waited for a lock on a guard row, or for an undo of another write.
            _ if matches!(error.sqlstate.as_str(), "57014" | "55P03") => sql_failure(error),
            _ => {
                let message = self.attempt.redaction.text(&error.message);
                ledger_failure(&pg::Error::Server(Box::new(ServerError { message, ..error.clone() })))
            }
        }
    }

    /// Nothing was written. Tries to record the failure.
    async fn undone(&self, intent: &Intent, failure: Failure) -> WriteError {
        let deadline = Instant::now() + UNDONE_TIMEOUT;
        let recorded =
            resolve::resolve(&self.writer, (intent, &self.attempt), OwnTransaction::MayRun, Some(&failure), deadline)
                .await;
        tracing::debug!(?recorded, "the record of a write that was undone");
        self.stopped(failure)
    }

    fn stopped(&self, failure: Failure) -> WriteError {
        WriteError { correlation_id: Some(self.correlation_id), failure: failure.into() }
    }
}
