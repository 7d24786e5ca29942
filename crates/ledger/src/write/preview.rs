//! Previews: an executor runs in a transaction that is always rolled back. A preview makes no record and no guard
//! row, and does not look for duplicates. It does check constraints, including deferred ones.
//!
//! ```text
//! round trip 1   BEGIN · limits, account · SAVEPOINT · the executor's statements
//! round trip 2   SET CONSTRAINTS ALL IMMEDIATE · the effects, how they would be undone, digests of the rows, definitions
//! round trip 3   ROLLBACK
//! ```
//! If the caller has a role, or changes rows of a table with a policy, two more round trips read the changed rows as
//! the caller: as the trial leaves them, and after the ROLLBACK as they are. The others are marked as not seen.
//! If the caller drops the future, the session is closed and PostgreSQL rolls back. PostgreSQL does not roll back
//! sequences, so a preview may leave gaps in their numbers.

use pg::{ContextStatements, PipelineStatement, PooledSession, StatementResult, WriterPool};
use serde_json::json;
use tokio::time::Instant;
use types::{CorrelationId, Effects, ErrorCode, Failure};

use crate::evidence::effects::{self, MAX_SHOWN, RecordedEffects};
use crate::evidence::values::array;
use crate::write::attempt::CANCEL_GRACE;
use crate::write::definitions::{self, Definition};
use crate::write::error_hints::HintQuery;
use crate::write::execute;
use crate::write::executor::{WriteExecutor, WriteOutput, WriteRequest};
use crate::write::failures::{ExecutorError, sql_failure, too_large};
use crate::write::lock_wait;
use crate::write::renewals::{self, Renewals, may_be_outdated};
use crate::write::write_tx::{TransactionOpening, TxState, WriteTx, timeout_ms};

/// A write that was tried and rolled back.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    pub(crate) work: WriteOutput,
    /// The effects, as [`effects::of_write`] returns them.
    pub(crate) effects: Option<Effects>,
    pub(crate) definitions: Vec<Definition>,
    /// The answer to the question of [`RowComparison`].
    pub(crate) rows: Option<String>,
}

/// What the ledger is asked about all rows that a trial changes.
#[derive(Debug, Clone, Copy)]
enum RowComparison<'a> {
    None,
    /// The digests of the rows; with those of an earlier trial, the ones to agree on.
    Agree(Option<&'a str>),
    /// The difference from the digests that were agreed on, in words.
    Agreed(&'a str),
}

/// What a trial finds out beside the effects.
#[derive(Debug, Clone, Copy)]
struct Questions<'a> {
    definitions: bool,
    rows: RowComparison<'a>,
    /// The maximum number of effects.
    effects: u32,
}

/// The reason why there is no trial.
enum TrialError {
    Failed(Failure),
    /// A migration is the reason, and what it made outdated has been renewed.
    Renewed(Failure),
}

impl From<Failure> for TrialError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A write that can be run and rolled back.
#[derive(Clone, Copy)]
pub(crate) struct Trials<'a> {
    pub(crate) writer: &'a WriterPool,
    pub(crate) executor: &'a dyn WriteExecutor,
    pub(crate) request: &'a WriteRequest,
    pub(crate) deadline: Instant,
}

const PROMISE_SQL: &str = "select countersign.promise_of_preview($1, $2, $3, $4)";
const AGREE_SQL: &str = "select countersign.agree_on_rows($1, $2, $3, $4)";
const DIFFERENCE_SQL: &str = "select countersign.difference_of_rows($1, $2)";
const EXPORT_SQL: &str = "select pg_catalog.pg_export_snapshot()";
/// What PostgreSQL says of a snapshot whose session has ended: 22023 up to version 16, 42704 since, and 55000 where it ends
/// at that moment. The statements of the caller come to [`sql_failure`] another way.
const NO_SUCH_SNAPSHOT: [&str; 3] = ["22023", "42704", "55000"];
const IDLE_LIMIT_SQL: &str = "select pg_catalog.set_config('idle_in_transaction_session_timeout', $1, true)";

impl Trials<'_> {
    /// The result of the write, and the rows of tracked tables that it would change, with long values cut.
    pub(crate) async fn work(self) -> Result<(WriteOutput, Option<Effects>), Failure> {
        let questions = Questions { definitions: false, rows: RowComparison::None, effects: MAX_SHOWN };
        let trial = self.repeated(|| self.attempt(None, questions)).await?;
        Ok((trial.work, trial.effects.map(effects::shortened)))
    }

    /// One trial, including the definitions that the write depends on, and the difference from the rows that were agreed
    /// on.
    pub(crate) async fn once(self, agreed_rows: Option<&str>) -> Result<Trial, Failure> {
        let rows = agreed_rows.map_or(RowComparison::None, RowComparison::Agreed);
        self.repeated(|| self.attempt(None, Questions { definitions: true, rows, effects: MAX_SHOWN })).await
    }

    /// Two trials in two transactions with the same snapshot. They can only differ in values that are generated in
    /// each transaction: times, numbers of sequences, random values. A third transaction on a session of its own
    /// holds the snapshot. After a migration both are made again, with another snapshot: the old one has the old triggers.
    pub(crate) async fn twice(self) -> Result<[Trial; 2], Failure> {
        self.repeated(|| self.pair()).await
    }

    async fn repeated<T, F>(self, run: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, TrialError>>,
    {
        let mut renewals = Renewals::default();
        loop {
            match run().await {
                Ok(found) => return Ok(found),
                Err(TrialError::Renewed(_)) if renewals.begin(self.writer) => {}
                Err(TrialError::Renewed(failure) | TrialError::Failed(failure)) => return Err(failure),
            }
        }
    }

    async fn pair(self) -> Result<[Trial; 2], TrialError> {
        let mut holder = self.writer.acquire(self.deadline).await.map_err(|error| failure(&error))?;
        let trials = async {
            let snapshot = self.export_snapshot(&mut holder).await?;
            let questions =
                Questions { definitions: true, rows: RowComparison::Agree(None), effects: effects::MAX_PROPOSED };
            let first = self.attempt(Some(&snapshot), questions).await?;
            let rows = RowComparison::Agree(first.rows.as_deref());
            let questions = Questions { definitions: false, rows, ..questions };
            let second = self.attempt(Some(&snapshot), questions).await?;
            Ok([first, second])
        };
        let trials = trials.await;
        let end = [PipelineStatement::without_params("rollback")];
        let ended = tokio::time::timeout_at(self.deadline + CANCEL_GRACE, holder.session().run(&end)).await;
        // A session may return to its pool only without an open transaction.
        if !matches!(ended, Ok(Ok(_))) {
            holder.discard();
        }
        trials
    }

    async fn export_snapshot(self, holder: &mut PooledSession) -> Result<String, Failure> {
        let timeout = [Some(timeout_ms(self.deadline))];
        let steps = [PipelineStatement::new(IDLE_LIMIT_SQL, &timeout), PipelineStatement::without_params(EXPORT_SQL)];
        let outcomes = match tokio::time::timeout_at(self.deadline, holder.session().begin(None, &steps)).await {
            Ok(outcomes) => outcomes.map_err(|failed| failure(&failed.error))?,
            Err(_) => return Err(failure(&pg::Error::Deadline)),
        };
        let snapshot = outcomes.into_iter().nth(1).and_then(StatementResult::into_value);
        snapshot.ok_or_else(|| Failure::new(ErrorCode::InternalError, "PostgreSQL has exported no snapshot"))
    }

    async fn attempt(self, snapshot: Option<&str>, questions: Questions<'_>) -> Result<Trial, TrialError> {
        let mut lease = self.writer.acquire(self.deadline).await.map_err(|error| failure(&error))?;
        let trial = self.roll_back(&mut lease, snapshot, questions);
        let lost = match tokio::time::timeout_at(self.deadline + CANCEL_GRACE, trial).await {
            Ok(Ok(trial)) => return Ok(trial),
            Ok(Err(ExecutorError::Rejected(failure)))
                if lease.is_outdated() || may_be_outdated(failure.sqlstate.as_deref()) =>
            {
                match renewals::is_renewed(&mut lease).await {
                    Ok(true) => return Err(TrialError::Renewed(failure)),
                    Ok(false) => return Err(failure.into()),
                    Err(error) => error,
                }
            }
            Ok(Err(ExecutorError::Rejected(failure))) => return Err(failure.into()),
            Ok(Err(ExecutorError::ConnectionLost(error))) => error,
            Err(_) => pg::Error::Deadline,
        };
        lease.discard();
        if matches!(lost, pg::Error::Lost(_)) {
            self.writer.retire_all();
        }
        Err(failure(&lost).into())
    }

    async fn roll_back(
        self,
        lease: &mut PooledSession,
        snapshot: Option<&str>,
        questions: Questions<'_>,
    ) -> Result<Trial, ExecutorError> {
        let id = CorrelationId::new();
        if let Some(snapshot) = snapshot {
            lease.session().begin_with_snapshot(snapshot).await.map_err(ExecutorError::ConnectionLost)?;
        }
        let opening = TransactionOpening::Preview { is_open: snapshot.is_some() };
        let pid = lock_wait::backend_pid(lease);
        let mut tx = WriteTx::new(lease, self.writer, (id, &self.request.principal), self.deadline, opening);
        let (work, wait) = lock_wait::watched(self.writer, pid, self.executor.preview(&mut tx, self.request)).await;
        let TxState { work, hint_query, .. } = tx.close(wait.explain(work)).await;
        let (trial, hint_query) = match work {
            Ok(work) => match lock_wait::watched(self.writer, pid, self.settle(lease, id, work, questions)).await {
                (Err(pg::Error::Server(error)), wait) => (Err(wait.sql_failure(&error).into()), HintQuery::of(&error)),
                (settled, _) => (settled.map_err(ExecutorError::ConnectionLost), None),
            },
            Err(refusal) => (Err(refusal), hint_query),
        };
        if let Err(lost @ ExecutorError::ConnectionLost(_)) = trial {
            return Err(lost);
        }
        let mut steps = vec![PipelineStatement::without_params("rollback")];
        steps.extend(hint_query.as_ref().map(HintQuery::step));
        let outcomes =
            lease.session().run(&steps).await.map_err(|failed| ExecutorError::ConnectionLost(failed.error))?;
        let (trial, recorded) = trial.map_err(|refusal| match refusal {
            ExecutorError::Rejected(failure) if failure.hint.is_none() && failure.code == ErrorCode::SqlError => {
                Failure { hint: HintQuery::hint(outcomes.into_iter().nth(1)), ..failure }.into()
            }
            refusal => refusal,
        })?;
        let Some(mut recorded) = recorded else { return Ok(trial) };
        recorded.mark_before(lease, &self.request.principal, self.deadline).await;
        Ok(Trial { effects: Some(recorded.effects), ..trial })
    }

    /// Runs deferred triggers, reads the effects and how they could be undone, and searches for definitions while the
    /// transaction locks every relation of the write. The effects are returned beside the trial.
    async fn settle(
        self,
        lease: &mut PooledSession,
        attempt: CorrelationId,
        work: WriteOutput,
        questions: Questions<'_>,
    ) -> Result<(Trial, Option<RecordedEffects>), pg::Error> {
        let search = definitions::search(self.executor, self.request);
        let params = effects::params(attempt, questions.effects);
        let claimed_rollback = json!(work.rollback.clone().of_write(&attempt.to_string()));
        let undone = Some(self.executor.undoes(self.request)).filter(|undone| !undone.is_empty());
        let promise = [
            Some(attempt.to_string()),
            Some(work.rows_affected.to_string()),
            Some(claimed_rollback.to_string()),
            undone.map(|undone| array(&undone)),
        ];
        let [id, affected] = [attempt.to_string(), work.rows_affected.to_string()].map(Some);
        let (rows_sql, rows_params) = match questions.rows {
            RowComparison::None => (None, Vec::new()),
            RowComparison::Agree(first) => {
                let with_values = Some((!work.reads_rows()).to_string());
                (Some(AGREE_SQL), vec![id, affected, with_values, first.map(str::to_owned)])
            }
            RowComparison::Agreed(agreed) => (Some(DIFFERENCE_SQL), vec![id, Some(agreed.to_owned())]),
        };
        let rows_step = rows_sql.map(|sql| PipelineStatement::new(sql, &rows_params));
        let statements = ContextStatements::of(&self.request.principal.context);
        let mut steps = vec![PipelineStatement::without_params("set constraints all immediate")];
        steps.extend(statements.as_ref().and_then(ContextStatements::login));
        let before = steps.len();
        steps.push(effects::step(&params));
        // A write that was only planned has no effects.
        let is_tried = self.executor.preview_is_binding();
        if is_tried {
            steps.push(PipelineStatement::new(PROMISE_SQL, &promise));
        }
        steps.extend(rows_step.filter(|_| is_tried));
        let asks_about_rows = is_tried && rows_step.is_some();
        if questions.definitions {
            steps.push(definitions::search_step(&search));
        }
        match lease.session().run(&steps).await {
            Ok(outcomes) => {
                let mut outcomes = outcomes.into_iter().skip(before);
                let caller = &self.request.principal;
                let recorded =
                    outcomes.next().and_then(|outcome| RecordedEffects::parse(outcome.rows, &caller.context));
                let rollback = if is_tried {
                    work.rollback.with_ledger_findings(outcomes.next().and_then(execute::receipt))
                } else {
                    work.rollback
                };
                let rows = if asks_about_rows { outcomes.next().and_then(StatementResult::into_value) } else { None };
                let definitions = outcomes.next().map(definitions::found).unwrap_or_default();
                let trial = Trial { work: WriteOutput { rollback, ..work }, effects: None, definitions, rows };
                match recorded {
                    Some(mut recorded) => {
                        recorded.mark_after(lease.session(), caller).await?;
                        Ok((trial, Some(recorded)))
                    }
                    None => Ok((trial, None)),
                }
            }
            Err(failed) => Err(failed.error),
        }
    }
}

fn failure(error: &pg::Error) -> Failure {
    match error {
        pg::Error::Connect(error) => error.into(),
        pg::Error::PoolTimeout { .. } => Failure::new(ErrorCode::DatabaseUnavailable, error.to_string()),
        pg::Error::Deadline => Failure::new(
            ErrorCode::Timeout,
            "the preview did not finish within its deadline and was rolled back; nothing was written",
        ),
        pg::Error::MessageTooLarge { .. } | pg::Error::TooManyValues { .. } => too_large(),
        pg::Error::Server(error) if !NO_SUCH_SNAPSHOT.contains(&error.sqlstate.as_str()) => sql_failure(error),
        pg::Error::Server(_) | pg::Error::Lost(_) | pg::Error::ReceiverDropped => {
            tracing::warn!(%error, "a preview lost its connection");
            let message =
                "the connection was lost during the preview; nothing was written, and the preview can be repeated";
            Failure::new(ErrorCode::DatabaseUnavailable, message)
        }
    }
}
