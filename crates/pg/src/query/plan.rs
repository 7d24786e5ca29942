//! Plans a prepared statement without running it.

use serde_json::Value;

use crate::client::error::{Error, ServerError};
use crate::client::session::pooler_transaction::setting;
use crate::client::session::{PipelineStatement, Session};
use crate::query::value;

/// A failed plan fails the transaction, so planning happens after a savepoint. Statements of agents run without
/// savepoints: inside a subtransaction, a conflict with recovery ends the whole session instead of the statement.
pub(crate) const SAVEPOINT: &str = "savepoint before_plan";
pub(crate) const BACK_TO_SAVEPOINT: &str = "rollback to savepoint before_plan";
pub(crate) const RELEASE: &str = "release savepoint before_plan";

/// The result of planning a statement.
#[derive(Debug)]
pub enum PlanResult {
    /// The plan, as `EXPLAIN (VERBOSE, FORMAT JSON)` shows it.
    Plan(Value),
    /// A command without a plan: DDL, SET, COMMIT, ...
    Utility,
    /// The text contains no statement.
    Empty,
    /// PostgreSQL cannot plan the statement for these parameters in the current state of the database.
    Refused(Box<ServerError>),
}

impl PlanResult {
    /// The result from a row of EXPLAIN.
    pub(crate) fn parse(row: Option<&str>) -> Self {
        match row.and_then(|text| serde_json::from_str(text).ok()) {
            Some(plan @ Value::Array(_)) if plan.pointer("/0/Plan").is_some() => Self::Plan(plan),
            Some(Value::Array(plans)) if plans.is_empty() => Self::Empty,
            Some(_) => Self::Utility,
            None => Self::Refused(Box::new(ServerError {
                message: "EXPLAIN gave no plan that can be read".to_owned(),
                ..ServerError::default()
            })),
        }
    }

    /// The result for an error of EXPLAIN.
    ///
    /// # Errors
    /// The error itself, if the next attempt may succeed.
    pub(crate) fn refused(error: Box<ServerError>) -> Result<Self, Error> {
        if error.is_retryable() { Err(Error::Server(error)) } else { Ok(Self::Refused(error)) }
    }
}

/// The values of the parameters for which a statement is planned.
pub(crate) enum PlanParameters<'a> {
    /// Any values of so many parameters. The planner then leaves out nothing that depends on them. With values it
    /// might: an outer join over `id = NULL` disappears from the plan.
    AnyValues(usize),
    /// These values, in text form.
    These(&'a [Option<String>]),
}

/// Plans the prepared statement with the server's own name `statement`. In a transaction, `around` has the statements
/// before the plan and after a successful plan, so that a failed plan does not fail the transaction.
pub(crate) async fn plan(
    session: &mut Session,
    around: Option<(&str, &str)>,
    statement: &str,
    values: PlanParameters<'_>,
) -> Result<PlanResult, Error> {
    let set_mode = format!("select {}", setting(values.settings()));
    // The settings are reset, so later statements in the transaction are planned as usual.
    let (before, behind) = around.unzip();
    let before: Vec<&str> = before.into_iter().chain([set_mode.as_str()]).collect();
    let behind: Vec<&str> =
        ["reset plan_cache_mode", "reset enable_partition_pruning"].into_iter().chain(behind).collect();
    explain(session, &before, &values.explain(statement, false), &behind).await
}

/// Plans a statement in a transaction, with all partitions: PostgreSQL often decides which partitions it skips when a
/// statement starts, and EXPLAIN starts it and omits them.
///
/// `first` is [`SAVEPOINT`], or [`BACK_TO_SAVEPOINT`] after a plan that could not be made. The savepoint undoes the
/// settings for planning. A plan that cannot be made leaves the transaction failed.
pub(crate) async fn plan_in_full(
    session: &mut Session,
    first: &str,
    statement: &str,
    values: PlanParameters<'_>,
) -> Result<PlanResult, Error> {
    plan_with_all_partitions(session, &[first], statement, values).await
}

/// Plans a statement of a transaction that writes, with all partitions. Planning evaluates functions that are declared
/// immutable or stable, so it happens in a read-only subtransaction.
pub(crate) async fn plan_without_writes(
    session: &mut Session,
    statement: &str,
    values: PlanParameters<'_>,
) -> Result<PlanResult, Error> {
    plan_with_all_partitions(session, &[SAVEPOINT, "set local transaction_read_only = on"], statement, values).await
}

async fn plan_with_all_partitions(
    session: &mut Session,
    first: &[&str],
    statement: &str,
    values: PlanParameters<'_>,
) -> Result<PlanResult, Error> {
    let settings = setting(&[("plan_cache_mode", values.mode()), ("enable_partition_pruning", "off")]);
    let set = format!("select {settings}");
    let before: Vec<&str> = first.iter().copied().chain([set.as_str()]).collect();
    explain(session, &before, &values.explain(statement, false), &[BACK_TO_SAVEPOINT, RELEASE]).await
}

impl Session {
    /// Plans the statement that was described under this name, for these values, with costs. Nothing of it runs.
    ///
    /// # Errors
    /// An error that may not occur the next time, or an error of the connection.
    pub async fn plan(&mut self, statement: &str, params: &[Option<String>]) -> Result<PlanResult, Error> {
        explain(self, &[], &PlanParameters::These(params).explain(statement, true), &[]).await
    }
}

impl PlanParameters<'_> {
    /// No partition is skipped for unknown values: PostgreSQL often decides which partitions it skips when a
    /// statement starts, and EXPLAIN starts it with NULL and omits them all.
    fn settings(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::AnyValues(_) => &[("plan_cache_mode", "force_generic_plan"), ("enable_partition_pruning", "off")],
            Self::These(_) => &[("plan_cache_mode", "force_custom_plan")],
        }
    }

    fn mode(&self) -> &'static str {
        match self {
            Self::AnyValues(_) => "force_generic_plan",
            Self::These(_) => "force_custom_plan",
        }
    }

    /// The EXPLAIN statement for the prepared statement of this name. A plan without costs is smaller.
    pub(crate) fn explain(&self, statement: &str, has_costs: bool) -> String {
        let values = match self {
            Self::AnyValues(count) => vec!["null".to_owned(); *count],
            Self::These(values) => values.iter().map(|it| value::sql_literal(it.as_deref())).collect(),
        };
        let arguments = if values.is_empty() { String::new() } else { format!("({})", values.join(", ")) };
        let costs = if has_costs { "on" } else { "off" };
        format!("explain (format json, costs {costs}, verbose) execute {statement}{arguments}")
    }
}

async fn explain(session: &mut Session, before: &[&str], explain: &str, behind: &[&str]) -> Result<PlanResult, Error> {
    let texts = before.iter().chain(std::iter::once(&explain)).chain(behind).copied();
    let outcome = session.run_large(&texts.map(PipelineStatement::without_params).collect::<Vec<_>>()).await;
    session.forget(explain)?;
    match outcome {
        Ok(outcomes) => Ok(PlanResult::parse(
            outcomes.get(before.len()).and_then(|outcome| outcome.rows.first()?.first()?.as_deref()),
        )),
        Err(failed) => match failed.error {
            Error::Server(error) => PlanResult::refused(error),
            error => Err(error),
        },
    }
}
