//! Plans a read without running it.

use std::sync::Arc;

use postgres_types::Type;
use serde_json::Value;
use tokio::time::Instant;

use super::fetch::{FetchError, StatementHandle};
use super::function_policy::{failure, plan_too_large};
use super::inspection::Inspection;
use super::prepare::Described;
use super::read_transaction::push_end_of_planning;
use super::row_buffer::RowBuffer;
use super::statement_metadata::StatementMetadata;
use super::{ReadError, ReadRequest, ReadTrace, Reader, RowFormat, refusal, too_large};
use crate::client::error::Error;
use crate::client::session::{Session, TransactionSettings};
use crate::query::columns;
use crate::query::plan::{BACK_TO_SAVEPOINT, PlanParameters, PlanResult, SAVEPOINT, plan_in_full};
use crate::query::referenced_objects::table_names;
use crate::query::value;

/// The only text that is ever put before an agent's text: EXPLAIN takes its statement in no other way. The agent's
/// text cannot change the meaning of the result, for these reasons:
///
/// - It is whole tokens and ends outside quotes and comments, so the agent's text means here what it means alone; and
///   alone it has been parsed before, as one statement that returns rows. A comment that never ends, a second
///   statement, or options without a statement (`analyze delete ..`) do not get that far.
/// - The options are closed. What may follow is a statement (PostgreSQL's grammar, `ExplainStmt`), never more options:
///   `(analyze) delete ..` and `explain analyze ..` are syntax errors here.
/// - The extended protocol takes one statement, in a transaction that cannot write, and what it prepared must describe
///   itself as EXPLAIN does.
const PREFIX: &str = "explain (format json) ";

/// The length of the prefix in characters, the unit of error positions.
const PREFIX_CHARS: u32 = PREFIX.len() as u32;

/// Nodes that PostgreSQL plans but refuses to run in a read-only transaction (`ExecCheckXactReadOnly`).
const WRITING_NODES: [&str; 2] = ["ModifyTable", "LockRows"];

const NOT_EXPLAINABLE: &str =
    "Only SELECT, WITH, VALUES and TABLE have a plan. Give the statement without EXPLAIN in front.";

impl Reader {
    /// The plan of this read, as `EXPLAIN (FORMAT JSON)` shows it. The statement is not run. To plan it, PostgreSQL
    /// evaluates calls of functions that are declared IMMUTABLE or STABLE and have constant arguments, in a
    /// transaction that cannot write. With a `trace` it is planned once more, since this form has no schemas of tables.
    ///
    /// # Errors
    /// [`ReadError`]: the errors of [`Reader::read`] before the statement runs, and a plan that writes.
    pub async fn explain(&self, sql: &str, params: &[Value], trace: Option<&ReadTrace>) -> Result<Value, ReadError> {
        let deadline = Instant::now() + self.limits.deadline;
        if let Some(trace) = trace {
            trace.set_text(sql);
        }
        let mut outcome = self.attempt_explain(deadline, (sql, params), trace).await;
        if self.should_retry_read(&outcome, deadline) {
            outcome = self.attempt_explain(deadline, (sql, params), trace).await;
        }
        outcome
    }

    async fn attempt_explain(
        &self,
        deadline: Instant,
        text: (&str, &[Value]),
        trace: Option<&ReadTrace>,
    ) -> Result<Value, ReadError> {
        let mut lease = self.pool.acquire_with_retry(deadline).await?;
        let outcome = tokio::time::timeout_at(deadline, self.explain_on(lease.session(), text, trace)).await;
        self.give_back(lease, outcome).await
    }

    async fn explain_on(
        &self,
        session: &mut Session,
        (sql, params): (&str, &[Value]),
        trace: Option<&ReadTrace>,
    ) -> Result<Value, ReadError> {
        // A plan does not depend on the account.
        session.settings = TransactionSettings::within("", self.limits.deadline);
        let name = session.statements.new_name();
        let planned_params = self.masking.is_some().then_some(params.len());
        let described = self.describe(session, (&name, sql), planned_params).await;
        session.statements.drop_name(name);
        let Described { metadata: own, planned, sources, masked_columns } = described?;
        if let Some(masking) = &self.masking {
            let plan = match planned {
                Some(PlanResult::Plan(plan)) => Some(plan),
                _ => None,
            };
            masking.inspect(session, (sql, plan.as_ref()), &sources, masked_columns.as_deref()).await?;
            push_end_of_planning(session)?;
        }
        let text_params = value::encode_all(params, &own.params)?;
        // PostgreSQL calls STABLE functions while it plans, and an estimate or an error may reveal their results. So
        // no statements of other agents may be prepared.
        session.push_close_remembered()?;
        if let Some(trace) = trace {
            trace.set_tables(planned_tables(session, sql, &text_params).await?);
        }
        let param_oids: Vec<u32> = own.params.iter().map(|ty| ty.oid).collect();
        let text = format!("{PREFIX}{sql}");
        let explained = session.statements.new_name();
        session.statements.drop_name(explained.clone());
        let described = session.describe(&explained, &text, &param_oids).await;
        let described = described.map_err(|error| refusal(not_explainable(in_own_text(error))))?;
        let raw = described.columns.ok_or(ReadError::NoResultColumns)?;
        let is_plan = matches!(raw.as_slice(), [plan] if plan.type_oid == Type::JSON.oid());
        if !is_plan || described.params != param_oids {
            return Err(ReadError::NoResultColumns);
        }
        let columns = columns::resolve(&self.types, session, &raw).await?;
        let metadata = StatementMetadata::new(own.params, columns, vec![Type::JSON.oid()]);
        let request = ReadRequest { row_limit: Some(1), ..ReadRequest::new(&text, params, RowFormat::Array) };
        let mut rows = RowBuffer::new(&self.limits, &request);
        let handle = StatementHandle::Inspected { name: &explained, sql: &text, inspection: &Inspection::NONE };
        let outcome = self.execute(session, &metadata, handle, &text_params, &mut rows).await;
        let result = outcome.map_err(FetchError::into_error).and_then(|()| rows.finish(None).map_err(too_large));
        let result = result.map_err(|error| match error {
            ReadError::Database(error) => ReadError::Database(in_own_text(error)),
            ReadError::TooLarge(Error::MessageTooLarge { limit, .. }) => {
                plan_too_large(&format!("it may have {limit} bytes"))
            }
            error => error,
        })?;
        let plan: Option<[Value; 1]> = result.rows.first().and_then(|row| serde_json::from_str(row).ok());
        let [plan] = plan.unwrap_or_default();
        match writing_node(&plan) {
            Some(node) => Err(ReadError::PlannedWrite(node.to_owned())),
            None => Ok(plan),
        }
    }
}

/// The tables that the plan for these parameters reads; `None` if planning fails, which EXPLAIN reports.
async fn planned_tables(
    session: &mut Session,
    sql: &str,
    params: &[Option<String>],
) -> Result<Option<Arc<[String]>>, ReadError> {
    let name = session.statements.new_name();
    session.push_ahead(&name, sql)?;
    let planned = plan_in_full(session, SAVEPOINT, &name, PlanParameters::These(params)).await.map_err(failure)?;
    session.connection.push_close_statement(&name).map_err(Error::Lost)?;
    match planned {
        PlanResult::Plan(plan) => Ok(Some(table_names(&plan))),
        PlanResult::Utility | PlanResult::Empty => Ok(None),
        PlanResult::Refused(_) => {
            session.batch_execute(BACK_TO_SAVEPOINT).await?;
            Ok(None)
        }
    }
}

/// The error with its position counted in the agent's own text.
fn in_own_text(error: Error) -> Error {
    match error {
        Error::Server(mut error) => {
            error.position =
                error.position.and_then(|position| position.checked_sub(PREFIX_CHARS)).filter(|it| *it > 0);
            Error::Server(error)
        }
        error => error,
    }
}

/// The error for a statement that is valid alone and invalid after EXPLAIN: SHOW, or EXPLAIN itself.
fn not_explainable(error: Error) -> Error {
    match error {
        Error::Server(mut error) if error.sqlstate == "42601" => {
            error.hint.get_or_insert_with(|| NOT_EXPLAINABLE.to_owned());
            Error::Server(error)
        }
        error => error,
    }
}

/// The first node, at any depth, that PostgreSQL would refuse to run in a read-only transaction.
fn writing_node(plan: &Value) -> Option<&str> {
    match plan {
        Value::Array(items) => items.iter().find_map(writing_node),
        Value::Object(node) => {
            let own = node.get("Node Type").and_then(Value::as_str).filter(|kind| WRITING_NODES.contains(kind));
            own.or_else(|| node.values().find_map(writing_node))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::error::ServerError;

    #[test]
    fn positions_are_counted_in_the_agents_text_and_those_before_it_are_left_out() {
        let position =
            |at| match in_own_text(Error::Server(Box::new(ServerError { position: at, ..Default::default() }))) {
                Error::Server(error) => error.position,
                _ => None,
            };
        assert_eq!(position(Some(PREFIX_CHARS + 1)), Some(1));
        assert_eq!(position(Some(PREFIX_CHARS)), None);
        assert_eq!(position(Some(1)), None);
        assert_eq!(position(None), None);
    }

    #[test]
    fn a_node_that_writes_is_found_however_deep_it_is() {
        let reads = json!([{"Plan": {"Node Type": "Limit", "Plans": [{"Node Type": "Seq Scan"}]}}]);
        assert_eq!(writing_node(&reads), None);
        let writes = json!([{"Plan": {"Node Type": "CTE Scan", "Plans": [{"Node Type": "ModifyTable"}]}}]);
        assert_eq!(writing_node(&writes), Some("ModifyTable"));
        // The words alone are no node: a literal may hold them.
        assert_eq!(writing_node(&json!([{"Plan": {"Node Type": "Result", "Filter": "ModifyTable"}}])), None);
    }
}
