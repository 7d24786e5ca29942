//! Which functions a read may call: none with effects beyond its transaction, which `ROLLBACK` cannot undo.
//!
//! PostgreSQL lets every role cancel the sessions of its own login, and lets a superuser read files, all of this from
//! a SELECT in a read-only transaction. So before a session runs a text for the first time, the plan of the text
//! shows which functions it calls (`EXPLAIN (VERBOSE)` prints the expressions, with views resolved), and the catalog
//! says what these functions are (`functions.sql`). Commands such as SHOW and EXPLAIN have no plan, so their functions
//! are unknown (`PolicyVerdict::Unseen`): `execution` decides about them.
//!
//! The plan is made for unknown parameters, with all partitions: it shows every call that a later run may make, since
//! only constants are evaluated in it. A query can detect that it is being planned (`plan_cache_mode`) and make the
//! planning fail. Then the query is refused.
//!
//! A plan does not show every part of a query: not the left side of IN, ANY and ALL over a subquery, the counts of
//! LIMIT and OFFSET, the frame of a window, the rows of VALUES if there are several, or what EXPLAIN ANALYZE runs. A
//! call there needs the name of its function, so the names that the text itself may call are checked, too
//! (`mentioned_names`). A plan of Citus shows at most one of the tasks on other nodes, and no calls that the
//! coordinator evaluates. So for such a plan, every name that occurs in the text is checked as if it were a function.
//!
//! This is one layer of defence. Neither plan nor text shows the bodies of functions, and the functions that
//! operators, casts, domains and views call where a plan does not show them. The layers that do not depend on plans
//! are the login, which has no privilege to call such functions, and the seal of the caller (`caller_seal`).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use postgres_protocol::message::backend::DataRowBody;
use serde_json::Value;
use types::{ReferencedObjects, TableAccess};

use super::inspection::{Inspection, PolicyVerdict};
use super::mentioned_names::{ATTRIBUTE, mentioned_calls, mentioned_names};
use super::{ReadError, caller_settings, refusal};
use crate::client::error::{Error, ServerError};
use crate::client::session::{SEEN_FOR, Session};
use crate::client::wire::{Purpose, StatementId, owned_row};
use crate::query::plan::{BACK_TO_SAVEPOINT, PlanParameters, PlanResult, SAVEPOINT, plan_in_full};
use crate::query::referenced_objects::{called, is_distributed, referenced_objects, table_names};
use crate::query::type_catalog::{RESTORE_PATH_SQL, SET_PATH_SQL};
use crate::query::value;

/// The first of these functions that a read may not call, and the reason.
const FORBIDDEN_SQL: &str = concat!(
    "select f.proname, f.why from (",
    include_str!("functions.sql"),
    ") f where f.why is not null order by f.proname limit 1"
);

/// Fails with SQLSTATE 22P02 if a read may not call one of these functions: the query casts the reason to a number.
/// Otherwise returns one row: the names that also exist in schemas other than `pg_catalog`, as JSON.
const GUARD_SQL: &str = concat!(
    "select pg_catalog.to_json(pg_catalog.array_agg(distinct f.proname) filter (where f.nspname <> 'pg_catalog')), \
            pg_catalog.min(f.why::pg_catalog.int4) from (",
    include_str!("functions.sql"),
    ") f"
);
const GUARD: &str = "countersign_functions";

/// The function behind the view `pg_prepared_statements`.
const LISTS_STATEMENTS: &str = "pg_prepared_statement";

/// Functions of `pg_catalog` whose effects on the session outlast the transaction or a setting in it, besides those for
/// advisory locks.
const LEAVES_TRACES: [&str; 2] = ["set_config", "setseed"];

const PORTAL: &str = "countersign_looked_at";
const NO_ROW: &str = "move forward 0 in countersign_looked_at";

/// The maximum number of names to remember. A database has some thousands of functions, and a name has at most 63
/// bytes.
const MAX_NAMES: usize = 5_000;

/// The functions that a read may call. The catalog is asked about a name again after [`SEEN_FOR`], since privileges
/// may be revoked, and extensions may add functions of the same name.
#[derive(Debug, Default)]
pub(super) struct FunctionPolicy {
    harmless: Mutex<Harmless>,
    /// The schema whose relations reads may not use.
    refused_schema: Option<&'static str>,
    /// Whether statements may change the settings of the caller.
    allows_any_setting: bool,
    /// Whether inspections list the tables that a plan reads.
    collects_tables: bool,
}

#[derive(Debug)]
struct Harmless {
    /// The names; the value is whether the function exists in `pg_catalog` only.
    names: HashMap<String, bool>,
    since: Instant,
}

impl Default for Harmless {
    fn default() -> Self {
        Self { names: HashMap::new(), since: Instant::now() }
    }
}

impl FunctionPolicy {
    /// A policy that also refuses relations of this schema.
    pub(super) fn deny_schema(schema: &'static str) -> Self {
        Self { refused_schema: Some(schema), ..Self::default() }
    }

    /// A policy for statements that may change any setting.
    pub(super) fn with_any_setting() -> Self {
        Self { allows_any_setting: true, ..Self::default() }
    }

    /// The same policy, but inspections also list the tables that a plan reads.
    pub(super) fn collecting_tables(&self) -> Self {
        let Self { refused_schema, allows_any_setting, .. } = *self;
        Self { refused_schema, allows_any_setting, collects_tables: true, ..Self::default() }
    }

    /// Inspects a text that has been described in the open transaction, so the relations that it reads stay locked
    /// until the end. The text is planned under another name, and refused if it cannot be planned.
    pub(super) async fn check(
        &self,
        session: &mut Session,
        sql: &str,
        params: &[Option<String>],
    ) -> Result<PolicyVerdict, ReadError> {
        let name = session.statements.new_name();
        session.push_ahead(&name, sql)?;
        let planned = plan_in_full(session, SAVEPOINT, &name, PlanParameters::AnyValues(params.len())).await;
        let inspection = match planned {
            Ok(planned) => self.inspect(session, (&name, sql), params, planned, false).await,
            Err(error) => Err(failure(error)),
        };
        session.connection.push_close_statement(&name).map_err(Error::Lost)?;
        let Inspection { verdict, unverified, .. } = inspection?;
        if !unverified.is_empty() {
            if let Some(forbidden) = forbidden(session, &unverified).await? {
                return Err(forbidden);
            }
            self.remember(&unverified, &unverified.iter().map(|name| bare(name).to_owned()).collect());
        }
        Ok(verdict)
    }

    /// Inspects a text by its plan for unknown parameters or, if that plan cannot be made, by its plan for these
    /// parameters. `is_open`: the settings for planning are still in force.
    pub(super) async fn inspect(
        &self,
        session: &mut Session,
        (name, sql): (&str, &str),
        params: &[Option<String>],
        planned: PlanResult,
        is_open: bool,
    ) -> Result<Inspection, ReadError> {
        let (plan, verdict, in_planning) = match planned {
            PlanResult::Plan(plan) => (Some(plan), PolicyVerdict::Always, is_open),
            PlanResult::Utility | PlanResult::Empty => (None, PolicyVerdict::Unseen, is_open),
            PlanResult::Refused(error) if is_too_much(&error) => return Err(too_much(&error)),
            // PostgreSQL evaluates `case when $1 then 1/0 end` while it plans, unless $1 is known to be false.
            PlanResult::Refused(_) => {
                let (plan, verdict) = plan_for_these(session, name, params).await?;
                (plan, verdict, false)
            }
        };
        if let (Some(plan), Some(refused)) = (&plan, self.refused_schema) {
            refuse_relations(plan, refused)?;
        }
        let names = names_to_check(plan.as_ref(), sql);
        if !self.allows_any_setting
            && let Some((function, why)) = caller_settings::refusal(sql, plan.as_ref())
        {
            return Err(ReadError::ForbiddenFunction { function: function.to_owned(), why: why.to_owned() });
        }
        let verdict = if names.contains(LISTS_STATEMENTS) { PolicyVerdict::SeesStatements } else { verdict };
        let (unverified, may_be_built_in) = self.unverified(&names);
        let leaves_traces = |name: &String| name.contains("advisory") || LEAVES_TRACES.contains(&bare(name));
        let leaves_nothing = verdict == PolicyVerdict::Always && may_be_built_in && !names.iter().any(leaves_traces);
        let tables = plan.as_ref().filter(|_| self.collects_tables).map(table_names);
        Ok(Inspection { tables, ..Inspection::of(plan.as_ref(), verdict, in_planning, unverified, leaves_nothing) })
    }

    /// The names to ask the catalog about, and whether all others are known to exist in `pg_catalog` only.
    fn unverified(&self, names: &BTreeSet<String>) -> (Vec<String>, bool) {
        let harmless = self.harmless();
        let unverified = names.iter().filter(|name| !harmless.names.contains_key(*name)).cloned().collect();
        let may_be_built_in = names.iter().all(|name| harmless.names.get(name).copied().unwrap_or(true));
        (unverified, may_be_built_in)
    }

    /// Whether the catalog was asked about all of these names, and has functions of these names in `pg_catalog` only.
    pub(super) fn are_built_in(&self, names: &[String]) -> bool {
        let harmless = self.harmless();
        names.iter().all(|name| harmless.names.get(name).copied().unwrap_or_default())
    }

    /// Remembers names that a read may call. `elsewhere` has those that also exist in schemas other than
    /// `pg_catalog`.
    pub(super) fn remember(&self, names: &[String], elsewhere: &BTreeSet<String>) {
        let facts = names.iter().map(|name| (name.clone(), !elsewhere.contains(bare(name))));
        self.harmless().names.extend(facts);
    }

    fn harmless(&self) -> MutexGuard<'_, Harmless> {
        let mut harmless = self.harmless.lock().unwrap_or_else(PoisonError::into_inner);
        if harmless.names.len() > MAX_NAMES || harmless.since.elapsed() >= SEEN_FOR {
            *harmless = Harmless::default();
        }
        harmless
    }
}

/// The name without the mark of an attribute.
fn bare(name: &str) -> &str {
    name.trim_start_matches(ATTRIBUTE)
}

/// Queues a statement that fails if a read may not call one of these functions. The later statements of the pipeline
/// then do not run.
pub(super) fn push_guard(session: &mut Session, names: &[String]) -> Result<StatementId, Error> {
    push_path(session, SET_PATH_SQL)?;
    let guard = session.connection.next_statement();
    let params = name_params(names);
    if session.is_pooled() {
        session.connection.push_parse("", GUARD_SQL, &[])?;
        session.connection.push_bind("", "", &params)?;
    } else {
        if !std::mem::replace(&mut session.guard_prepared, true) {
            session.connection.push_close_statement(GUARD)?;
            session.connection.push_parse(GUARD, GUARD_SQL, &[])?;
        }
        session.connection.push_bind("", GUARD, &params)?;
    }
    session.connection.push_execute("", 0)?;
    push_path(session, RESTORE_PATH_SQL)?;
    Ok(guard)
}

fn push_path(session: &mut Session, sql: &str) -> Result<(), Error> {
    if session.has_system_path {
        return Ok(());
    }
    session.push_unnamed(sql, &[], &[])?;
    Ok(session.connection.push_execute("", 0)?)
}

/// The names in the guard's row.
pub(super) fn names_of(row: &DataRowBody) -> Result<BTreeSet<String>, Error> {
    let names = owned_row(row)?.into_iter().next().flatten();
    Ok(names.and_then(|names| serde_json::from_str(&names).ok()).unwrap_or_default())
}

/// Whether the guard failed because of a function.
pub(super) fn is_forbidden(error: &ServerError) -> bool {
    error.sqlstate == "22P02"
}

/// Which of these functions a read may not call, if any.
pub(crate) async fn forbidden(session: &mut Session, names: &[String]) -> Result<Option<ReadError>, Error> {
    let rows = session.rows(FORBIDDEN_SQL, &name_params(names)).await?;
    let found = rows.first().and_then(|row| row.first_chunk::<2>());
    Ok(match found {
        Some([Some(function), Some(why)]) => {
            Some(ReadError::ForbiddenFunction { function: function.clone(), why: why.clone() })
        }
        _ => None,
    })
}

/// The parameters of `functions.sql`: the names of calls, and those of attributes.
fn name_params(names: &[String]) -> [Option<String>; 2] {
    let (attributes, calls): (Vec<String>, Vec<String>) =
        names.iter().cloned().partition(|name| name.starts_with(ATTRIBUTE));
    let attributes: Vec<String> = attributes.iter().map(|name| bare(name).to_owned()).collect();
    [calls, attributes].map(|names| Some(value::text_array(&names)))
}

/// The names of the functions that a text with this plan may call.
fn names_to_check(plan: Option<&Value>, sql: &str) -> BTreeSet<String> {
    let mut names = mentioned_calls(sql);
    names.extend(plan.map(called).unwrap_or_default().into_iter().map(|call| call.name));
    if plan.is_some_and(is_distributed) {
        names.extend(mentioned_names(sql));
    }
    names
}

/// Refuses a plan that reads a relation of this schema. A plan has views resolved.
fn refuse_relations(plan: &Value, refused: &str) -> Result<(), ReadError> {
    let ReferencedObjects::Planned { tables, .. } = referenced_objects(plan) else { return Ok(()) };
    match tables.into_iter().find(|table| table.schema == refused) {
        Some(TableAccess { schema, table, .. }) => Err(ReadError::RefusedRelation { schema, relation: table }),
        None => Ok(()),
    }
}

/// The plan of a prepared statement for these parameters, for statements that cannot be planned for unknown ones.
async fn plan_for_these(
    session: &mut Session,
    name: &str,
    params: &[Option<String>],
) -> Result<(Option<Value>, PolicyVerdict), ReadError> {
    // PostgreSQL calls STABLE functions while it plans, before the plan reveals these calls, and an error may quote
    // their results. This error is passed on, so no statements of other agents may be visible.
    session.push_close_remembered()?;
    match plan_in_full(session, BACK_TO_SAVEPOINT, name, PlanParameters::These(params)).await.map_err(failure)? {
        PlanResult::Plan(plan) => Ok((Some(plan), PolicyVerdict::ThisTime)),
        PlanResult::Utility | PlanResult::Empty => Ok((None, PolicyVerdict::Unseen)),
        PlanResult::Refused(error) if is_too_much(&error) => Err(too_much(&error)),
        // A statement that fails here might still run later, since a query can read the settings for planning. So the
        // error is final. Only a missing privilege may hide a better error: PostgreSQL checks privileges at planning,
        // and whether a statement writes at execution.
        PlanResult::Refused(error) if error.sqlstate == "42501" => {
            Err(refusal(would_write(session, name, params).await?.unwrap_or(Error::Server(error))))
        }
        PlanResult::Refused(error) => Err(refusal(Error::Server(error))),
    }
}

/// PostgreSQL's error if this prepared statement writes. Bind starts a plain query without running it. MOVE by zero
/// rows starts any other statement, which a read-only transaction refuses.
async fn would_write(session: &mut Session, name: &str, params: &[Option<String>]) -> Result<Option<Error>, Error> {
    session.push_unnamed(BACK_TO_SAVEPOINT, &[], &[])?;
    session.connection.push_execute("", 0)?;
    session.connection.next_statement();
    session.connection.push_bind(PORTAL, name, params)?;
    session.push_unnamed(NO_ROW, &[], &[])?;
    session.connection.push_execute("", 0)?;
    session.connection.push_sync(Purpose::Call);
    session.connection.flush().await?;
    match session.finish().await {
        Err(Error::Server(error)) if error.sqlstate != "25006" => Ok(None),
        Err(error) => Ok(Some(error)),
        Ok(()) => Ok(None),
    }
}

/// program_limit_exceeded or out_of_memory: a plan contains the constants that were evaluated for it, and a ROW
/// nested in ROW doubles in size at each level.
fn is_too_much(error: &ServerError) -> bool {
    matches!(error.sqlstate.as_str(), "54000" | "53200")
}

pub(super) fn failure(error: Error) -> ReadError {
    match error {
        Error::Server(error) if is_too_much(&error) => too_much(&error),
        Error::MessageTooLarge { limit, .. } => plan_too_large(&format!("it may have {limit} bytes")),
        error => ReadError::Database(error),
    }
}

fn too_much(error: &ServerError) -> ReadError {
    plan_too_large(&error.message)
}

/// program_limit_exceeded: `why` is the end of a sentence.
pub(super) fn plan_too_large(why: &str) -> ReadError {
    let message = format!("the plan of this query is too large to be looked at: {why}");
    let hint = "PostgreSQL works out constants beforehand, and they stand in the plan in full: repeat('x', 9000000) is one. \
                Give large values as parameters ($1), or compute them from a column.";
    let error = ServerError { hint: Some(hint.to_owned()), ..ServerError::synthetic("54000", message) };
    ReadError::TooLarge(Error::Server(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_after_a_point_is_built_in_unless_a_function_elsewhere_has_it() {
        let (policy, names) = (FunctionPolicy::default(), ["f", "t"].map(|name| format!("{ATTRIBUTE}{name}")));
        assert!(!policy.are_built_in(&names), "nobody has asked");
        policy.remember(&names, &BTreeSet::from(["f".to_owned()]));
        assert_eq!(names.map(|name| policy.are_built_in(&[name])), [false, true]);
    }

    /// DI-1: a plan of Citus shows no call that the coordinator evaluates, and no task if the parameters determine
    /// the node.
    #[test]
    fn every_name_in_the_text_counts_where_citus_hides_calls() {
        let plans: Value = serde_json::from_str(include_str!("../testdata/citus_plans.json")).unwrap();
        for (name, is_hidden) in [("update_generic", true), ("router_expression", true), ("escape", false)] {
            let plan = plans.pointer(&format!("/{name}/plan")).unwrap();
            let names = names_to_check(Some(plan), "select \"pg_Hidden\"(customer_id), run_it() from shop.customers");
            assert!(names.contains("pg_Hidden") && names.contains("run_it"), "{name}: {names:?}");
            assert_eq!(names.contains("customer_id"), is_hidden, "{name}: {names:?}");
        }
        let names = names_to_check(plans.pointer("/escape/plan"), "");
        assert!(names.contains("run_command_on_workers"), "{names:?}");
    }
}
