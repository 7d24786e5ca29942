//! A statement of the caller's own inside the gate's transaction, whatever it is.
//!
//! What the text is, only PostgreSQL says. The hazard is transaction control: COMMIT would end the transaction of the
//! protocol without the outcome, RELEASE would take its savepoint away. So:
//!
//! ```text
//! DEALLOCATE ALL           no EXECUTE reaches a prepared statement of ours
//! Parse, Describe          one statement; its parameters, its result columns
//! EXPLAIN (without any)    a plan, or a command without one
//! a command without a plan runs inside a DO block, where PostgreSQL itself refuses transaction control (0A000)
//! anything else            runs as it is: in a transaction block CALL and DO cannot commit either (2D000)
//! SET CONSTRAINTS          deferred triggers run now, before what follows
//! DEALLOCATE ALL, RESET    role and settings are as they were, so that the outcome is written as ever
//! ```
//! The session never goes back to its pool.

use pg::{
    CompleteResult, Error, ExecuteError, PipelineStatement, PlanResult, Query, RowRetention, RowSink,
    StatementDescription, value,
};
use serde_json::Value;
use types::{CorrelationId, ErrorCode, Failure, ReferencedObjects};

use crate::failures::{ExecutorError, sql_failure, transaction_ended};
use crate::read::ResultSet;
use crate::write_tx::WriteTx;

/// The result of a caller's statement.
#[derive(Debug)]
pub struct AdhocResult {
    /// Its rows, as far as they are kept.
    pub result: ResultSet,
    /// The command tag; `None` for a command without a plan, since PostgreSQL does not report it inside of a block.
    pub command_tag: Option<String>,
    /// The number of rows in the tag.
    pub rows_affected: u64,
}

/// The expected effects of a caller's statement.
#[derive(Debug)]
pub struct AdhocPlan {
    /// The objects in its plan; `None` for a command without a plan (CREATE TABLE, SET).
    pub referenced_objects: Option<ReferencedObjects>,
    /// The number of rows that PostgreSQL expects it to change, if it has a plan.
    pub estimated_rows: Option<u64>,
}

const READ_ONLY_SQL: &str = "select pg_catalog.set_config('transaction_read_only', 'on', true)";
const STASH_SQL: &str = "select pg_catalog.set_config('countersign.statement', $1, true)";
const RUN_STASHED_SQL: &str = "do $do$ declare affected pg_catalog.int8; begin \
    execute pg_catalog.current_setting('countersign.statement'); \
    get diagnostics affected = row_count; \
    perform pg_catalog.set_config('countersign.rows_affected', affected::pg_catalog.text, true); \
    end $do$";
const AFFECTED_SQL: &str = "select pg_catalog.current_setting('countersign.rows_affected')";

const RESET_SQL: &str = "reset session authorization; reset role; reset all";
/// Repeats the settings of `countersign.claim`, which RESET ALL has reset.
const RESTORE_SQL: &str = "select pg_catalog.set_config('synchronous_commit', \
        case when pg_catalog.current_setting('synchronous_commit') operator(pg_catalog.=) 'off' then 'on' \
            else pg_catalog.current_setting('synchronous_commit') end, true), \
    pg_catalog.set_config('statement_timeout', $1, true), pg_catalog.set_config('lock_timeout', $1, true), \
    pg_catalog.set_config('idle_in_transaction_session_timeout', $1, true), \
    pg_catalog.set_config('countersign.at', $2, true), pg_catalog.set_config('countersign.account_id', $3, true)";
/// A mode that a statement sets for its subtransaction (READ ONLY) ends with it.
const SAVEPOINT_SQL: &str = "savepoint work";
const UNDO_SQL: &str = "rollback to savepoint work";
/// Removes what outlives a transaction, or its savepoint, in a backend that a pooler lends on.
const OUTLIVES_UNDO_SQL: &str = "select pg_catalog.pg_advisory_unlock_all(); discard sequences";
const OUTLIVES_SQL: &str =
    "select pg_catalog.pg_advisory_unlock_all(); unlisten *; close all; discard temporary; discard sequences";

/// The reason why a caller's statement failed.
#[derive(Debug)]
pub struct AdhocError {
    /// The error for the caller, if it is about the statement.
    pub failed: Option<ExecuteError>,
    /// The error for the gate.
    pub refusal: ExecutorError,
}

impl From<ExecutorError> for AdhocError {
    fn from(refusal: ExecutorError) -> Self {
        Self { failed: None, refusal }
    }
}

/// A name that the text cannot contain: a statement that executes itself does not end.
fn unguessable() -> String {
    format!("cs_{}", CorrelationId::new().to_string().replace('-', ""))
}

impl WriteTx<'_> {
    /// Runs one statement of the caller to its end, and keeps some of its rows. A portal limit would skip what the other rows do.
    ///
    /// # Errors
    /// [`ExecutorError`]: the executor should hand it on.
    pub async fn run_adhoc(
        &mut self,
        sql: &str,
        params: &[Value],
        keep: RowRetention,
    ) -> Result<AdhocResult, ExecutorError> {
        self.open().await?;
        self.lease.session().mark_unusable();
        // Its settings are reset before anything else is sent.
        self.lease.session().allow_client_encoding_change(true);
        let outcome = self.run_guarded(sql, params, keep).await;
        if let Err(ExecutorError::Rejected(_)) = &outcome {
            self.undo().await?;
        }
        self.lease.session().allow_client_encoding_change(false);
        outcome
    }

    /// Runs one statement of the caller to its end, and delivers its rows as they arrive. The end is not delivered yet
    /// ([`RowSink::finish`]).
    ///
    /// The statement runs as it is, commands included, so its command tag and notices are PostgreSQL's own. A
    /// statement that ends the transaction is refused before it runs. One that changes savepoints has also changed
    /// those of the server, so the transaction is abandoned. Its settings apply to later statements, until
    /// [`WriteTx::seal_session`].
    ///
    /// # Errors
    /// [`AdhocError`]; the executor must return a refusal, or refuse by itself.
    pub async fn run_streaming(&mut self, query: &Query, outlet: &mut RowSink) -> Result<(), AdhocError> {
        self.open().await?;
        self.lease.session().mark_unusable();
        if !std::mem::replace(&mut self.runs_own, true) {
            self.lease.session().deallocate_after(SAVEPOINT_SQL).await.map_err(ExecutorError::ConnectionLost)?;
        }
        let name = unguessable();
        let ran = self.writer.run_user_statement(self.lease, &name, query, outlet).await;
        if matches!(outlet.tag(), Some("SAVEPOINT" | "RELEASE")) || !self.lease.session().in_sync() {
            return Err(AdhocError { failed: ran.err(), refusal: transaction_ended() });
        }
        if let Err(failed) = ran {
            let failure = Failure::new(ErrorCode::SqlError, failed.to_string());
            return Err(AdhocError { failed: Some(failed), refusal: failure.into() });
        }
        Ok(())
    }

    /// Behind the last statement of the caller's own: deferred triggers run, and role and settings are as they were.
    ///
    /// # Errors
    /// [`ExecutorError`]: the executor must hand it on.
    pub async fn seal_session(&mut self) -> Result<(), ExecutorError> {
        if self.runs_own { self.restore().await } else { Ok(()) }
    }

    async fn undo(&mut self) -> Result<(), ExecutorError> {
        let session = self.lease.session();
        let and = if session.is_pooled() { format!("{UNDO_SQL}; {OUTLIVES_UNDO_SQL}") } else { UNDO_SQL.to_owned() };
        // Prepared statements outlive a rollback, and the next ones must find their names free.
        session.deallocate_after(&and).await.map_err(ExecutorError::ConnectionLost)
    }

    async fn run_guarded(
        &mut self,
        sql: &str,
        params: &[Value],
        keep: RowRetention,
    ) -> Result<AdhocResult, ExecutorError> {
        let session = self.lease.session();
        session.deallocate_after(SAVEPOINT_SQL).await.map_err(refusal)?;
        let name = unguessable();
        let shape = session.describe(&name, sql, &[]).await.map_err(|error| refusal_at(error, true))?;
        let encoded = self.encode(&shape, params).await?;
        let session = self.lease.session();
        // Commands of transaction control take no parameters and return no rows.
        let is_bare = shape.columns.is_none() && shape.params.is_empty();
        let has_no_plan = is_bare
            && match session.plan(&name, &[]).await.map_err(refusal)? {
                PlanResult::Refused(error) => return Err(refusal(Error::Server(error))),
                plan => matches!(plan, PlanResult::Utility),
            };
        let (whole, affected) = if has_no_plan {
            (CompleteResult::default(), Some(self.run_in_block(sql).await?))
        } else {
            (session.run_to_completion(&name, &encoded, keep).await.map_err(|error| refusal_at(error, true))?, None)
        };
        if whole.is_empty {
            return Err(Failure::new(ErrorCode::InvalidParams, "there is no statement in the text").into());
        }
        self.restore().await?;
        let columns = self
            .writer
            .resolve_columns(self.lease, &whole.outcome.columns)
            .await
            .map_err(ExecutorError::ConnectionLost)?;
        let result = ResultSet::truncate_to(columns, &whole.outcome.rows, keep.bytes, whole.truncated_by);
        Ok(AdhocResult {
            rows_affected: affected.unwrap_or_else(|| whole.outcome.rows_affected()),
            command_tag: affected.is_none().then_some(whole.outcome.tag),
            result,
        })
    }

    /// The expected effects of a caller's statement, as far as its plan shows them. Nothing of it runs, since some
    /// effects cannot be rolled back.
    ///
    /// # Errors
    /// [`ExecutorError`]: PostgreSQL refuses the text or the parameters.
    pub async fn plan_adhoc(&mut self, sql: &str, params: &[Value]) -> Result<AdhocPlan, ExecutorError> {
        self.open().await?;
        let session = self.lease.session();
        session.mark_unusable();
        session.deallocate_after(SAVEPOINT_SQL).await.map_err(refusal)?;
        // Planning evaluates functions that call themselves immutable.
        session
            .run(&[PipelineStatement::without_params(READ_ONLY_SQL)])
            .await
            .map_err(|failed| refusal(failed.error))?;
        let name = unguessable();
        let foreseen = self.foresee_as(&name, sql, params).await;
        match &foreseen {
            Err(ExecutorError::Rejected(_)) => self.undo().await?,
            // Planning it may have called functions.
            Ok(_) if self.lease.session().is_pooled() => {
                self.lease
                    .session()
                    .deallocate_after(OUTLIVES_UNDO_SQL)
                    .await
                    .map_err(ExecutorError::ConnectionLost)?;
            }
            _ => {}
        }
        foreseen
    }

    async fn foresee_as(&mut self, name: &str, sql: &str, params: &[Value]) -> Result<AdhocPlan, ExecutorError> {
        let session = self.lease.session();
        let shape = session.describe(name, sql, &[]).await.map_err(|error| refusal_at(error, true))?;
        let encoded = self.encode(&shape, params).await?;
        match self.lease.session().plan(name, &encoded).await.map_err(unplannable)? {
            PlanResult::Refused(error) => Err(unplannable(Error::Server(error))),
            PlanResult::Empty => {
                Err(Failure::new(ErrorCode::InvalidParams, "there is no statement in the text").into())
            }
            PlanResult::Utility => Ok(AdhocPlan { referenced_objects: None, estimated_rows: None }),
            PlanResult::Plan(plan) => {
                let estimate = |node: &str| plan.pointer(node).and_then(Value::as_f64);
                // The rows that a ModifyTable node returns are not those that it changes; its input is.
                let is_write = plan.pointer("/0/Plan/Node Type").and_then(Value::as_str) == Some("ModifyTable");
                let fed = if is_write { "/0/Plan/Plans/0/Plan Rows" } else { "/0/Plan/Plan Rows" };
                let estimated_rows = estimate(fed).map(|rows| rows as u64);
                Ok(AdhocPlan { referenced_objects: Some(pg::referenced_objects(&plan)), estimated_rows })
            }
        }
    }

    async fn encode(
        &mut self,
        shape: &StatementDescription,
        params: &[Value],
    ) -> Result<Vec<Option<String>>, ExecutorError> {
        let types =
            self.writer.resolve_types(self.lease, &shape.params).await.map_err(ExecutorError::ConnectionLost)?;
        value::encode_all(params, &types)
            .map_err(|error| Failure::new(ErrorCode::InvalidParams, error.to_string()).into())
    }

    /// Runs a command without a plan where it can do nothing to the transaction; how many rows it touched.
    async fn run_in_block(&mut self, sql: &str) -> Result<u64, ExecutorError> {
        let text = [Some(sql.to_owned())];
        let stash = [PipelineStatement { sql: STASH_SQL, params: &text, param_types: &[] }];
        let session = self.lease.session();
        session.run(&stash).await.map_err(|failed| refusal(failed.error))?;
        // Nothing is prepared while the text runs, the block itself neither: EXECUTE would run it in itself.
        session.deallocate_all().await.map_err(refusal)?;
        session.batch_execute(RUN_STASHED_SQL).await.map_err(refusal)?;
        session.deallocate_all().await.map_err(refusal)?;
        let outcomes = session
            .run(&[PipelineStatement::without_params(AFFECTED_SQL)])
            .await
            .map_err(|failed| refusal(failed.error))?;
        let affected = outcomes.last().and_then(|outcome| outcome.rows.first()?.first()?.as_deref());
        Ok(affected.and_then(|count| count.parse().ok()).unwrap_or_default())
    }

    /// Whatever the statement has set, the rest of the transaction runs as it began.
    async fn restore(&mut self) -> Result<(), ExecutorError> {
        let claimed = [Some(self.timeout_ms.clone()), self.hint.clone(), Some(self.account.clone())];
        let session = self.lease.session();
        session.deallocate_all().await.map_err(refusal)?;
        let constraints = [
            PipelineStatement::without_params("set constraints all immediate"),
            PipelineStatement::without_params("release savepoint work"),
        ];
        session.run(&constraints).await.map_err(|failed| refusal(failed.error))?;
        let reset = if session.is_pooled() { format!("{RESET_SQL}; {OUTLIVES_SQL}") } else { RESET_SQL.to_owned() };
        session.deallocate_after(&reset).await.map_err(refusal)?;
        // The start-up settings of a direct session, to which RESET has returned.
        session.restore_preamble().await.map_err(refusal)?;
        let settings = [PipelineStatement { sql: RESTORE_SQL, params: &claimed, param_types: &[] }];
        session.run(&settings).await.map_err(|failed| refusal(failed.error))?;
        if !session.in_transaction() {
            return Err(transaction_ended());
        }
        Ok(())
    }
}

/// Planning evaluates functions, and their errors may quote data before anyone has approved the statement.
fn unplannable(error: Error) -> ExecutorError {
    match error {
        Error::Server(error) => {
            let message =
                format!("PostgreSQL cannot plan the statement with these values (SQLSTATE {})", error.sqlstate);
            Failure { message, hint: None, ..sql_failure(&error) }.into()
        }
        error => ExecutorError::ConnectionLost(error),
    }
}

fn refusal(error: Error) -> ExecutorError {
    refusal_at(error, false)
}

/// `own` says that a position in the error is one in the caller's text.
fn refusal_at(error: Error, own: bool) -> ExecutorError {
    match error {
        Error::Server(error) => Failure { position: error.position.filter(|_| own), ..sql_failure(&error) }.into(),
        error => ExecutorError::ConnectionLost(error),
    }
}
