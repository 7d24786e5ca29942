//! The gate runs the protocol of a write: look up, admit, execute, and after a lost connection resolve.

use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use pg::{PipelineStatement, PooledSession, ServerError, WriterPool};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use types::{CorrelationId, Effects, ErrorCode, Failure, Tier};

use crate::LedgerOptions;
use crate::evidence::records::Records;
use crate::write::admit::{self, AdmitDecision};
use crate::write::attempt::{CANCEL_GRACE, RESOLVE_TIMEOUT, UNDONE_TIMEOUT, WriteAttempt, WriteCall, WriteOutcome};
use crate::write::dedup_cache::{CallKey, DedupCache, InFlightGuard, Lookup};
use crate::write::execute::{self, Executed};
use crate::write::executor::{WriteExecutor, WriteOutput, WritePrecondition, WriteRequest};
use crate::write::existing_write::{self, ExistingWrite};
use crate::write::failures::{WriteError, aborted, internal_error, ledger_failure, sql_failure, too_large, unanswered};
use crate::write::history::{Comparison, History};
use crate::write::loss;
use crate::write::obstacle::{LedgerObstacle, Shortage, WriteStop};
use crate::write::policy::{self, PolicyMode, PolicyStatement, not_evaluated};
use crate::write::preview::Trials;
use crate::write::remote_writes::RemoteWrites;
use crate::write::renewals::Renewals;
use crate::write::report;
use crate::write::resolve;
use crate::write::resolve::OwnTransaction;
use crate::write::write_tx::{Unopened, WriteStart};

/// The only way to write.
#[derive(Debug, Clone)]
pub struct Gate {
    writer: WriterPool,
    settings: LedgerOptions,
    dedup_cache: DedupCache,
    /// The tasks of running writes. All clones of a gate share them.
    running: TaskTracker,
    pub(crate) stop: WriteStop,
    pub(crate) shortage: Shortage,
    pub(crate) history: History,
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
            shortage: Shortage::default(),
            history: History::default(),
            remote_writes: RemoteWrites::default(),
        }
    }

    /// Executes the call at most once. If the caller drops the future, the work continues in its task: a client
    /// that disconnects must not leave a record without an outcome.
    ///
    /// # Errors
    /// [`WriteError`]; nothing was written, unless the code is [`ErrorCode::CommitOutcomeUnknown`].
    pub async fn perform(&self, call: WriteCall) -> Result<WriteOutcome, WriteError> {
        self.perform_if(call, None).await
    }

    /// As [`Gate::perform`], if the write meets the condition.
    pub(crate) async fn perform_if(
        &self,
        call: WriteCall,
        precondition: Option<Box<dyn WritePrecondition>>,
    ) -> Result<WriteOutcome, WriteError> {
        self.stop.check()?;
        let correlation_id =
            precondition.as_ref().map_or_else(CorrelationId::new, |precondition| precondition.correlation_id());
        let gate = self.clone();
        self.spawn(Some(correlation_id), async move {
            let fingerprints = &gate.settings.fingerprints;
            let attempt = WriteAttempt::new(&call, precondition.as_deref(), correlation_id, fingerprints)?;
            let written = WriteProtocol { gate: &gate, attempt: &attempt }.run().await;
            gate.shortage.note(&written);
            written
        })
        .await
    }

    /// The obstacle of writes, after a comparison of the database with what this server knows (`signed`: entries that
    /// were signed). What is missing is noted in the ledger, where the other servers find it.
    pub(crate) async fn obstacle(&self, signed: Option<u64>) -> Result<Option<LedgerObstacle>, pg::Error> {
        let records = Records::new(self.writer.clone(), self.settings.call_deadline);
        let loss = match loss::note(&self.writer, &self.history, signed).await? {
            true => loss::load(&records).await?,
            false => None,
        };
        let before = self.stop.current();
        match loss {
            Some(loss) => {
                let database = self.writer.target().dbname.clone();
                self.stop.set(Some(LedgerObstacle::Lost { database, loss }));
            }
            None if matches!(before, Some(LedgerObstacle::Lost { .. })) => self.stop.set(None),
            None => {}
        }
        Ok(self.stop.current())
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

struct WriteProtocol<'a> {
    gate: &'a Gate,
    attempt: &'a WriteAttempt<'a>,
}

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

impl WriteProtocol<'_> {
    #[tracing::instrument(name = "mutation", skip_all, fields(correlation_id = %self.attempt.intent.correlation_id, tool = self.attempt.call.tool, account = self.attempt.call.request.principal.account_id.as_str()))]
    async fn run(self) -> Result<WriteOutcome, WriteError> {
        let WriteAttempt { call, intent, .. } = self.attempt;
        let key = CallKey {
            account: call.request.principal.account_id.clone(),
            fingerprint: intent.fingerprint.clone(),
            idempotency_key: call.idempotency_key.clone(),
        };
        let guard = match self.look_up(&key).await {
            LookupResult::Answer(answer) => return answer,
            LookupResult::Unknown(guard) => guard,
        };
        let policy = self.policy()?;
        let acknowledged_before = self.gate.history.count();
        let outcome = self.admit_and_execute(policy.as_ref()).await;
        if let Ok(WriteOutcome::Executed { correlation_id, .. } | WriteOutcome::Duplicate { correlation_id, .. }) =
            &outcome
        {
            self.gate.history.acknowledge(acknowledged_before, *correlation_id, None);
        }
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
    fn policy(&self) -> Result<Option<PolicyStatement>, WriteError> {
        let WriteAttempt { call: WriteCall { request, executor, .. }, precondition, intent } = self.attempt;
        if precondition.is_some() {
            return Ok(None);
        }
        let call = executor.policy(request)?;
        Ok(call.map(|call| call.statement(PolicyMode::Run(&intent.slot), &request.principal, intent.correlation_id)))
    }

    /// The outcome of a call that the policy refuses to run. `None` if the call may be tried again.
    async fn refused_by_policy(&self) -> Result<Option<WriteOutcome>, WriteError> {
        let WriteCall { request, executor, deadline, redaction, .. } = self.attempt.call;
        let Some(call) = executor.policy(request)? else { return Ok(None) };
        let applied = policy::decide(&self.gate.writer, &call, &request.principal, PolicyMode::Refuse, *deadline).await;
        let applied = applied.map_err(|failure| failure.redacted(redaction))?;
        Ok((applied.tier > Tier::Auto).then_some(WriteOutcome::NeedsApproval(applied)))
    }

    /// Waits for an identical call that is running on this server, or checks whether one that succeeded is still in
    /// force.
    async fn look_up(&self, call: &CallKey) -> LookupResult {
        let (gate, intent, deadline) = (self.gate, &self.attempt.intent, self.attempt.call.deadline);
        loop {
            let original = match gate.dedup_cache.enter(call) {
                Lookup::First(guard) => return LookupResult::Unknown(guard),
                Lookup::Running(mut ended) => {
                    // The channel carries no values; it closes when the call ends.
                    if tokio::time::timeout_at(deadline, ended.changed()).await.is_err() {
                        let failure = Failure::new(ErrorCode::DuplicateInFlight, admit::STILL_RUNNING);
                        return LookupResult::Answer(Err(WriteError { correlation_id: None, failure: failure.into() }));
                    }
                    continue;
                }
                Lookup::Done(original) => original,
            };
            let identical = (intent.slot.as_str(), &intent.fingerprint);
            let context = &self.attempt.call.request.principal.context;
            let standing = existing_write::find(&gate.writer, identical, context, deadline);
            match standing.await {
                Ok(Some(ExistingWrite::Executed(standing, cached_result))) if standing == original => {
                    tracing::info!(%original, "duplicate, from memory");
                    return LookupResult::Answer(Ok(WriteOutcome::Duplicate {
                        correlation_id: original,
                        original,
                        cached_result,
                    }));
                }
                Ok(_) => gate.dedup_cache.forget(call, original),
                Err(error) => {
                    tracing::debug!(%error, "the ledger cannot confirm what is remembered");
                    gate.dedup_cache.forget_all();
                }
            }
        }
    }

    async fn admit_and_execute(&self, policy: Option<&PolicyStatement>) -> Result<WriteOutcome, WriteError> {
        let mut start = self.first_start(policy);
        let (mut lost, mut renewals) = (false, Renewals::default());
        loop {
            let mut lease = match self.gate.writer.acquire(self.attempt.call.deadline).await {
                Ok(lease) => lease,
                Err(error) => return Err(self.without_session(start, &error).await),
            };
            match self.execute(&mut lease, start).await {
                TryResult::Ended(outcome) => return outcome,
                TryResult::Doubtful(cause) => {
                    lease.discard();
                    return self.resolve(cause).await;
                }
                TryResult::Undone(failure) => {
                    lease.discard();
                    return Err(self.undone(failure).await);
                }
                TryResult::Renewed if renewals.begin(&self.gate.writer) => {
                    if matches!(start, WriteStart::Admit { .. }) {
                        start = WriteStart::Claim;
                    }
                    continue;
                }
                TryResult::Renewed => {
                    let why = "tables were altered while the write ran; nothing was written";
                    return Err(self.undone(Failure::new(ErrorCode::Timeout, why)).await);
                }
                TryResult::Unopened(Unopened::Failed(error)) => return Err(unanswered(None, &error)),
                TryResult::Unopened(Unopened::Unclaimed(error)) => {
                    lease.discard();
                    return Err(self.undone(ledger_failure(&error)).await);
                }
                TryResult::Unopened(Unopened::AfterLoss) => {
                    lease.discard();
                    let failure = self.lost().await;
                    // An attempt that was admitted is ended.
                    return Err(match start {
                        WriteStart::Begin | WriteStart::Admit { .. } => failure.into(),
                        WriteStart::Claim => self.undone(failure).await,
                    });
                }
                TryResult::Unopened(Unopened::Policy(error)) => {
                    lease.discard();
                    return Err(not_evaluated(&error).redacted(&self.attempt.call.redaction).into());
                }
                TryResult::Unopened(Unopened::Lost(error)) => {
                    lease.discard();
                    self.forget();
                    if self.is_admitted(start).await {
                        tracing::info!(%error, "the connection was lost before the write committed");
                        return Err(self.stopped(aborted()));
                    }
                    if lost {
                        return Err(self.undone(aborted()).await);
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
            match self.admit(policy).await? {
                ControlFlow::Continue(next) => start = next,
                ControlFlow::Break(outcome) => return Ok(outcome),
            }
        }
    }

    /// A write is one transaction, unless its attempt must be committed before it begins.
    fn first_start<'p>(&self, policy: Option<&'p PolicyStatement>) -> WriteStart<'p> {
        let is_durable = self.gate.settings.durable_admission;
        if is_durable || policy.is_some() || self.attempt.precondition.is_some() {
            WriteStart::Admit { is_durable, policy }
        } else {
            WriteStart::Begin
        }
    }

    /// Whether an attempt was admitted before its connection was lost. If it was, this ends it.
    async fn is_admitted(&self, start: WriteStart<'_>) -> bool {
        let deadline = Instant::now() + RESOLVE_TIMEOUT;
        !matches!(start, WriteStart::Begin) && resolve::abort(&self.gate.writer, self.attempt, deadline).await
    }

    /// Asks the ledger for a verdict after the fast path did not admit the attempt.
    async fn admit<'p>(
        &self,
        policy: Option<&'p PolicyStatement>,
    ) -> Result<ControlFlow<WriteOutcome, WriteStart<'p>>, WriteError> {
        let (Gate { writer, dedup_cache, .. }, attempt) = (self.gate, self.attempt);
        match (admit::Admission { writer, dedup_cache, attempt, policy }).admit().await? {
            AdmitDecision::Run => Ok(ControlFlow::Continue(WriteStart::Claim)),
            AdmitDecision::NotLetRun(Some(failure)) => Err(failure.redacted(&attempt.call.redaction).into()),
            AdmitDecision::NotLetRun(None) => {
                let again = self.first_start(policy);
                Ok(self.refused_by_policy().await?.map_or(ControlFlow::Continue(again), ControlFlow::Break))
            }
            AdmitDecision::Duplicate { original, cached_result } => {
                tracing::info!(%original, "duplicate");
                let correlation_id = attempt.intent.correlation_id;
                Ok(ControlFlow::Break(WriteOutcome::Duplicate { correlation_id, original, cached_result }))
            }
            AdmitDecision::Refused(failure) => Err(self.stopped(failure)),
        }
    }

    /// One try on one session.
    async fn execute(&self, lease: &mut PooledSession, start: WriteStart<'_>) -> TryResult {
        let (Gate { writer, remote_writes, .. }, attempt) = (self.gate, self.attempt);
        let redaction = &attempt.call.redaction;
        let Comparison { count, known } = self.gate.history.comparison();
        let executed = execute::execute(writer, lease, attempt, (start, known), remote_writes);
        // An executor may panic. Then the session is dropped, so its transaction cannot commit.
        let caught = AssertUnwindSafe(executed).catch_unwind();
        let outcome = tokio::time::timeout_at(attempt.call.deadline + CANCEL_GRACE, caught);
        let outcome = match start {
            WriteStart::Begin => report::while_it_runs(writer, &attempt.intent, outcome).await,
            WriteStart::Admit { .. } | WriteStart::Claim => outcome.await,
        };
        match outcome {
            Ok(Ok(Ok(Executed { output, incarnation }))) => {
                tracing::info!(rows_affected = output.rows_affected, "executed");
                let correlation_id = attempt.intent.correlation_id;
                self.gate.history.acknowledge(count, correlation_id, incarnation);
                TryResult::Ended(Ok(WriteOutcome::Executed { correlation_id, output: output.into() }))
            }
            Ok(Ok(Err(execute::CommitError::Unopened(unopened)))) => TryResult::Unopened(unopened),
            Ok(Ok(Err(execute::CommitError::Renewed))) => TryResult::Renewed,
            Ok(Ok(Err(execute::CommitError::Recorded(failure)))) => {
                tracing::info!(code = %failure.code, "failed");
                TryResult::Ended(Err(self.stopped(failure)))
            }
            Ok(Ok(Err(execute::CommitError::Undone(error)))) => {
                tracing::warn!(error = redaction.text(&error.to_string()), "the outcome was refused");
                TryResult::Undone(self.unrecorded(&error))
            }
            Ok(Ok(Err(execute::CommitError::Refused(error)))) => {
                tracing::info!(error = redaction.text(&error.to_string()), "COMMIT was refused");
                TryResult::Undone(sql_failure(&error).redacted(redaction))
            }
            Ok(Ok(Err(execute::CommitError::InDoubt(error)))) => {
                tracing::warn!(error = redaction.text(&error.to_string()), "the outcome is in doubt");
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
    async fn without_session(&self, start: WriteStart<'_>, error: &pg::Error) -> WriteError {
        match start {
            WriteStart::Begin | WriteStart::Admit { .. } => unanswered(None, error),
            WriteStart::Claim => self.undone(ledger_failure(error)).await,
        }
    }

    /// Resolves the outcome. `cause` is the failure for the caller and the record if nothing was written.
    async fn resolve(&self, cause: Option<Failure>) -> Result<WriteOutcome, WriteError> {
        self.forget();
        let (writer, deadline) = (&self.gate.writer, Instant::now() + RESOLVE_TIMEOUT);
        let resolved = resolve::resolve(writer, self.attempt, OwnTransaction::MayRun, cause.as_ref(), deadline).await;
        resolved.map_err(|failure| self.stopped(failure))
    }

    /// PostgreSQL has refused the write because acknowledged writes are missing.
    async fn lost(&self) -> Failure {
        match self.gate.obstacle(None).await {
            Ok(Some(obstacle)) => obstacle.failure(),
            Ok(None) => {
                Failure::new(ErrorCode::DatabaseUnavailable, "the ledger began another log; nothing was written")
            }
            Err(error) => ledger_failure(&error),
        }
    }

    /// After a lost connection the other sessions may be dead as well, or lead to another server.
    fn forget(&self) {
        self.gate.writer.retire_all();
        self.gate.dedup_cache.forget_all();
    }

    /// The failure of a write whose outcome could not be recorded.
    fn unrecorded(&self, error: &ServerError) -> Failure {
        let redaction = &self.attempt.call.redaction;
        match error.sqlstate.get(..2) {
            // A serialization conflict that appears only now, under an isolation level that the operator has set.
            Some("40") => sql_failure(error).redacted(redaction),
            // The statement timed out while it waited for a lock on a guard row, or for an undo of another write.
            _ if matches!(error.sqlstate.as_str(), "57014" | "55P03") => sql_failure(error),
            _ => {
                let message = redaction.text(&error.message);
                ledger_failure(&pg::Error::Server(Box::new(ServerError { message, ..error.clone() })))
            }
        }
    }

    /// Nothing was written. Tries to record the failure.
    async fn undone(&self, failure: Failure) -> WriteError {
        let (writer, deadline) = (&self.gate.writer, Instant::now() + UNDONE_TIMEOUT);
        let recorded = resolve::resolve(writer, self.attempt, OwnTransaction::MayRun, Some(&failure), deadline).await;
        tracing::debug!(?recorded, "the record of a write that was undone");
        self.stopped(failure)
    }

    fn stopped(&self, failure: Failure) -> WriteError {
        WriteError { correlation_id: Some(self.attempt.intent.correlation_id), failure: failure.into() }
    }
}
