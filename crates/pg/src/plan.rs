//! The plan of a prepared statement, without running it.

use serde_json::Value;

use crate::error::{Error, ServerError};
use crate::session::{Session, Step};
use crate::value;

/// A plan that cannot be made fails the transaction. Nothing of an agent's runs behind a savepoint: a conflict with recovery
/// ends a whole session then, and not only its statement.
pub(crate) const SAVEPOINT: &str = "savepoint before_plan";
pub(crate) const BACK_TO_SAVEPOINT: &str = "rollback to savepoint before_plan";
pub(crate) const RELEASE: &str = "release savepoint before_plan";

/// What planning a statement shows.
pub(crate) enum Planned {
    /// What `EXPLAIN (VERBOSE, FORMAT JSON)` says.
    Plan(Value),
    /// A command that has no plan.
    Utility,
    /// It cannot be planned here and now.
    Refused(Box<ServerError>),
}

/// For which values of its parameters a statement is planned.
pub(crate) enum For<'a> {
    /// Whatever they are (this many): as they are unknown, nothing that depends on them is left out. With values, an
    /// outer join over `id = NULL` leaves nothing of itself.
    AnyValues(usize),
    /// These, in text form.
    These(&'a [Option<String>]),
}

/// Plans the statement that is prepared under `statement`, a name of ours. In a transaction, `around` keeps a plan that cannot
/// be made from failing it: what comes before, and what behind if all went well.
pub(crate) async fn plan(
    session: &mut Session,
    around: Option<(&str, &str)>,
    statement: &str,
    values: For<'_>,
) -> Result<Planned, Error> {
    let (mode, values) = match values {
        For::AnyValues(count) => ("force_generic_plan", vec!["null".to_owned(); count]),
        For::These(values) => {
            ("force_custom_plan", values.iter().map(|it| value::sql_literal(it.as_deref())).collect())
        }
    };
    let arguments = if values.is_empty() { String::new() } else { format!("({})", values.join(", ")) };
    let set_mode = format!("select pg_catalog.set_config('plan_cache_mode', '{mode}', true)");
    let explain = format!("explain (format json, costs off, verbose) execute {statement}{arguments}");
    // What follows in the same transaction is planned as usual.
    let (before, behind) = around.unzip();
    let texts = before.into_iter().chain([set_mode.as_str(), &explain, "reset plan_cache_mode"]).chain(behind);
    let outcome = session.run_large(&texts.map(Step::plain).collect::<Vec<_>>()).await;
    session.forget(&explain)?;
    match outcome {
        Ok(outcomes) => {
            let plan = outcomes
                .get(1 + usize::from(before.is_some()))
                .and_then(|outcome| outcome.rows.first()?.first()?.as_deref());
            let plan: Option<Value> = plan.and_then(|text| serde_json::from_str(text).ok());
            Ok(match plan {
                Some(plan) if plan.pointer("/0/Plan").is_some() => Planned::Plan(plan),
                Some(_) => Planned::Utility,
                None => Planned::Refused(Box::new(ServerError {
                    message: "EXPLAIN gave no plan that can be read".to_owned(),
                    ..ServerError::default()
                })),
            })
        }
        Err(failed) => match failed.error {
            Error::Server(error) if !error.retryable() => Ok(Planned::Refused(error)),
            error => Err(error),
        },
    }
}
