//! A caller's SQL text in the gate's transaction.
//!
//! This module never parses the text: PostgreSQL classifies it. The risk is transaction control. COMMIT would end the
//! gate's transaction before its outcome is recorded, and RELEASE would remove its savepoint.
//!
//! `execute_sql` ([`WriteTx::run_adhoc`]) refuses such a statement before any of it runs:
//!
//! ```text
//! DEALLOCATE ALL            EXECUTE cannot reach a prepared statement of the server
//! Parse, Describe           parameters and result columns; refuses more than one statement
//! EXPLAIN (if neither)      tells a statement with a plan from a command without one
//! command without a plan    runs inside a DO block, where PostgreSQL refuses transaction control and COPY (0A000)
//! any other statement       runs as it is: inside a transaction block CALL and DO cannot commit either (2D000)
//! SET CONSTRAINTS           runs deferred triggers before the reset
//! DEALLOCATE ALL, RESET     restores role and settings before the outcome is written
//! ```
//!
//! A statement of a caller with a role or claims is refused if it has no plan (DO, SET, CREATE FUNCTION), or may call a
//! function that changes settings or runs a text: it could change the role or the claims.
//!
//! The command line ([`WriteTx::run_streaming`]) needs PostgreSQL's command tags and notices, which a DO block hides.
//! So the statement runs as it is, after a probe for statements that end the transaction. After SAVEPOINT, RELEASE
//! and COPY the connection is closed, and the gate resolves the record.
//!
//! The session never returns to its pool.

use pg::{
    CompleteResult, Error, ExecuteError, ModifyingStatementError, PipelineStatement, PlanResult, Query, RowRetention,
    RowSink, StatementDescription, StatementResult, value,
};
use serde_json::Value;
use types::{CorrelationId, ErrorCode, Failure, ReferencedObjects};

use crate::read::ResultSet;
use crate::write::caller_part::{self, Rights};
use crate::write::failures::{ExecutorError, sql_failure, transaction_ended};
use crate::write::write_tx::WriteTx;

/// The result of a caller's statement.
#[derive(Debug)]
pub struct AdhocResult {
    /// The rows that were kept, up to the limit of the caller.
    pub result: ResultSet,
    /// The command tag. `None` for a command without a plan, because a DO block does not report it.
    pub command_tag: Option<String>,
    /// The number of rows in the command tag.
    pub rows_affected: u64,
}

/// PostgreSQL's plan for a caller's statement.
#[derive(Debug)]
pub struct AdhocPlan {
    /// The objects in the plan. `None` for a command without a plan (CREATE TABLE, SET).
    pub referenced_objects: Option<ReferencedObjects>,
    /// PostgreSQL's estimate of the affected rows, if there is a plan.
    pub estimated_rows: Option<u64>,
}

const READ_ONLY_SQL: &str = "select pg_catalog.set_config('transaction_read_only', 'on', true)";
const STASH_SQL: &str = "select pg_catalog.set_config('countersign.statement', $1, true)";
/// No prepared statement exists while the text runs, not even for this block. Otherwise an EXECUTE in the text could
/// run the text again.
const RUN_STASHED_SQL: &str = "deallocate all; do $do$ declare affected pg_catalog.int8; begin \
    execute pg_catalog.current_setting('countersign.statement'); \
    get diagnostics affected = row_count; \
    perform pg_catalog.set_config('countersign.rows_affected', affected::pg_catalog.text, true); \
    end $do$";
const AFFECTED_SQL: &str = "select pg_catalog.current_setting('countersign.rows_affected')";

const RESET_SQL: &str = "reset session authorization; reset role; reset all";
/// Restores the settings of `countersign.claim` after RESET ALL has removed them.
const RESTORE_SQL: &str = "select pg_catalog.set_config('synchronous_commit', \
        case when pg_catalog.current_setting('synchronous_commit') operator(pg_catalog.=) 'off' then 'on' \
            else pg_catalog.current_setting('synchronous_commit') end, true), \
    pg_catalog.set_config('statement_timeout', $1, true), pg_catalog.set_config('lock_timeout', $1, true), \
    pg_catalog.set_config('idle_in_transaction_session_timeout', $1, true), \
    pg_catalog.set_config('countersign.at', $2, true), pg_catalog.set_config('countersign.account_id', $3, true)";
/// Rolling back this subtransaction also reverts a transaction mode that the caller's statement sets (READ ONLY).
const SAVEPOINT_SQL: &str = "savepoint work";
const UNDO_SQL: &str = "rollback to savepoint work";
/// Resets the session state that survives ROLLBACK TO, because a pooler gives the backend to other clients next.
const OUTLIVES_UNDO_SQL: &str = "select pg_catalog.pg_advisory_unlock_all(); discard sequences";
/// Resets the session state that survives the transaction, for the same reason.
const OUTLIVES_SQL: &str =
    "select pg_catalog.pg_advisory_unlock_all(); unlisten *; close all; discard temporary; discard sequences";

/// The error of a caller's statement that failed.
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

/// A name for a prepared statement that the text cannot contain: a text that executes itself would never end, and
/// PostgreSQL does not survive the EXPLAIN of it.
pub(crate) fn unguessable() -> String {
    format!("cs_{}", CorrelationId::new().to_string().replace('-', ""))
}

impl WriteTx<'_> {
    /// Runs one statement to its end, and keeps the first rows of its result. A row limit of the portal would not do,
    /// because the statement would not process the other rows.
    pub async fn run_adhoc(
        &mut self,
        sql: &str,
        params: &[Value],
        keep: RowRetention,
    ) -> Result<AdhocResult, ExecutorError> {
        self.enter().await?;
        // RESET ALL removes this setting before the session sends any text that is not ASCII.
        self.lease.session().allow_client_encoding_change(true);
        let outcome = self.run_guarded(sql, params, keep).await;
        if let Err(ExecutorError::Rejected(_)) = &outcome {
            self.undo().await?;
        }
        self.lease.session().allow_client_encoding_change(false);
        outcome
    }

    /// Runs one statement to its end, and streams its rows to `sink`. The caller marks the end of the rows
    /// ([`RowSink::finish`]).
    ///
    /// Commands run as they are, so that command tags and notices are PostgreSQL's. A statement that would end the
    /// transaction is refused before it runs. After SAVEPOINT or RELEASE the transaction is abandoned, because the
    /// gate's savepoint may be gone. Settings of one statement apply to the next ones, until
    /// [`WriteTx::seal_session`].
    ///
    /// # Errors
    /// [`AdhocError`]. The executor must return its `refusal`, or another refusal of the write.
    pub async fn run_streaming(&mut self, query: &Query, sink: &mut RowSink) -> Result<(), AdhocError> {
        if !self.runs_own {
            self.enter().await?;
            self.runs_own = true;
        }
        let name = unguessable();
        let ran = self.writer.run_user_statement(self.lease, &name, query, sink).await;
        if matches!(sink.tag(), Some("SAVEPOINT" | "RELEASE")) || !self.lease.session().in_sync() {
            return Err(AdhocError { failed: ran.err(), refusal: transaction_ended() });
        }
        ran.map_err(|failed| {
            let refusal = Failure::new(ErrorCode::SqlError, failed.to_string()).into();
            AdhocError { failed: Some(failed), refusal }
        })
    }

    /// Runs deferred triggers, and restores the role and the settings after the last streamed statement.
    pub async fn seal_session(&mut self) -> Result<(), ExecutorError> {
        if self.runs_own { self.restore().await } else { Ok(()) }
    }

    /// Opens the transaction, removes all prepared statements, and sets a savepoint.
    async fn enter(&mut self) -> Result<(), ExecutorError> {
        self.run(&[]).await?;
        let session = self.lease.session();
        session.mark_unusable();
        session.deallocate_after(SAVEPOINT_SQL).await.map_err(refusal)
    }

    /// Runs statements of countersign itself.
    async fn run_steps(&mut self, steps: &[PipelineStatement<'_>]) -> Result<Vec<StatementResult>, ExecutorError> {
        self.lease.session().run(steps).await.map_err(|failed| refusal(failed.error))
    }

    async fn undo(&mut self) -> Result<(), ExecutorError> {
        let session = self.lease.session();
        let and = if session.is_pooled() { format!("{UNDO_SQL}; {OUTLIVES_UNDO_SQL}") } else { UNDO_SQL.to_owned() };
        // Prepared statements survive a rollback, and their names must be free again.
        session.deallocate_after(&and).await.map_err(ExecutorError::ConnectionLost)
    }

    async fn run_guarded(
        &mut self,
        sql: &str,
        params: &[Value],
        keep: RowRetention,
    ) -> Result<AdhocResult, ExecutorError> {
        let name = unguessable();
        let shape = self.lease.session().describe(&name, sql, &[]).await.map_err(|error| refusal_at(error, true))?;
        let encoded = self.encode(&shape, params).await?;
        self.refuse_change_of_caller(&name, sql, &encoded).await?;
        let session = self.lease.session();
        // Statements that control transactions have no parameters and return no rows.
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

    /// Plans a statement without running it, because a rollback does not revert all effects.
    pub async fn plan_adhoc(&mut self, sql: &str, params: &[Value]) -> Result<AdhocPlan, ExecutorError> {
        self.enter().await?;
        // Planning evaluates functions that are declared immutable.
        self.run_steps(&[PipelineStatement::without_params(READ_ONLY_SQL)]).await?;
        let name = unguessable();
        let planned = self.plan_as(&name, sql, params).await;
        match &planned {
            Err(ExecutorError::Rejected(_)) => self.undo().await?,
            // Planning may have called functions that changed session state.
            Ok(_) if self.lease.session().is_pooled() => {
                self.lease
                    .session()
                    .deallocate_after(OUTLIVES_UNDO_SQL)
                    .await
                    .map_err(ExecutorError::ConnectionLost)?;
            }
            _ => {}
        }
        planned
    }

    async fn plan_as(&mut self, name: &str, sql: &str, params: &[Value]) -> Result<AdhocPlan, ExecutorError> {
        let session = self.lease.session();
        let shape = session.describe(name, sql, &[]).await.map_err(|error| refusal_at(error, true))?;
        let encoded = self.encode(&shape, params).await?;
        self.refuse_change_of_caller(name, sql, &encoded).await?;
        match self.lease.session().plan(name, &encoded).await.map_err(unplannable)? {
            PlanResult::Refused(error) => Err(unplannable(Error::Server(error))),
            PlanResult::Empty => {
                Err(Failure::new(ErrorCode::InvalidParams, "there is no statement in the text").into())
            }
            PlanResult::Utility => Ok(AdhocPlan { referenced_objects: None, estimated_rows: None }),
            PlanResult::Plan(plan) => {
                let estimate = |node: &str| plan.pointer(node).and_then(Value::as_f64);
                // The estimate of a ModifyTable node counts returned rows; its input counts changed rows.
                let is_write = plan.pointer("/0/Plan/Node Type").and_then(Value::as_str) == Some("ModifyTable");
                let fed = if is_write { "/0/Plan/Plans/0/Plan Rows" } else { "/0/Plan/Plan Rows" };
                let estimated_rows = estimate(fed).map(|rows| rows as u64);
                Ok(AdhocPlan { referenced_objects: Some(pg::referenced_objects(&plan)), estimated_rows })
            }
        }
    }

    /// Refuses a statement that could change the role or the claims of its caller.
    async fn refuse_change_of_caller(
        &mut self,
        name: &str,
        sql: &str,
        params: &[Option<String>],
    ) -> Result<(), ExecutorError> {
        if self.caller.is_none() {
            return Ok(());
        }
        match self.lease.session().inspect_planned(name, sql, params).await {
            Ok(_) => Ok(()),
            Err(ModifyingStatementError::NotModifying(why)) => {
                let message = format!(
                    "the statement {why}, and could change the role or the claims of the caller; nothing was written"
                );
                Err(Failure::new(ErrorCode::NotPermitted, message)
                    .hint("Callers with a role or claims run SELECT, INSERT, UPDATE, DELETE and MERGE.")
                    .into())
            }
            Err(error) => Err(self.refusal(error)),
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

    /// Runs a command without a plan inside a DO block, and returns the number of affected rows.
    async fn run_in_block(&mut self, sql: &str) -> Result<u64, ExecutorError> {
        let text = [Some(sql.to_owned())];
        self.run_steps(&[PipelineStatement::new(STASH_SQL, &text)]).await?;
        self.lease.session().deallocate_after(RUN_STASHED_SQL).await.map_err(refusal)?;
        let outcomes = self.run_steps(&[PipelineStatement::without_params(AFFECTED_SQL)]).await?;
        let affected = outcomes.last().and_then(|outcome| outcome.rows.first()?.first()?.as_deref());
        Ok(affected.and_then(|count| count.parse().ok()).unwrap_or_default())
    }

    /// Runs deferred triggers, then restores the session state from before the caller's statement.
    async fn restore(&mut self) -> Result<(), ExecutorError> {
        let claimed = [Some(self.timeout_ms.clone()), self.hint.clone(), Some(self.account.clone())];
        self.lease.session().deallocate_all().await.map_err(refusal)?;
        let constraints = ["set constraints all immediate", "release savepoint work"];
        self.run_steps(&constraints.map(PipelineStatement::without_params)).await?;
        let session = self.lease.session();
        let reset = if session.is_pooled() { format!("{RESET_SQL}; {OUTLIVES_SQL}") } else { RESET_SQL.to_owned() };
        session.deallocate_after(&reset).await.map_err(refusal)?;
        // Through a pooler, RESET ALL also removes the settings of the preamble. In other sessions RESET ALL
        // restores them.
        session.restore_preamble().await.map_err(refusal)?;
        let login = self.caller.as_mut().map(|caller| {
            caller.was_reset();
            caller.enter(Rights::Login)
        });
        let mut steps = vec![PipelineStatement::new(RESTORE_SQL, &claimed)];
        steps.extend(caller_part::steps(login.as_ref()));
        self.run_steps(&steps).await?;
        if !self.lease.session().in_transaction() {
            return Err(transaction_ended());
        }
        Ok(())
    }
}

/// Removes the message from an error of planning: planning evaluates functions, and their errors may quote data whose
/// access was not approved.
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

/// `own`: whether the position of the error refers to the caller's text.
pub(crate) fn refusal_at(error: Error, own: bool) -> ExecutorError {
    match error {
        Error::Server(error) => Failure { position: error.position.filter(|_| own), ..sql_failure(&error) }.into(),
        error => ExecutorError::ConnectionLost(error),
    }
}
