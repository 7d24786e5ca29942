//! What a read may call: nothing that acts beyond its transaction, where `ROLLBACK` does not reach.
//!
//! PostgreSQL lets every role cancel the sessions of its own login, and a superuser read files, all of it from a SELECT in
//! a transaction that is read only. So before a session runs a text for the first time its plan is asked which functions it
//! calls (`EXPLAIN (VERBOSE)`, in which PostgreSQL writes the expressions, views resolved), and the catalog what these are
//! (`functions.sql`). What has no plan does not run.
//!
//! What is looked at is the plan for any parameters, partitions and all: it shows whatever a later run may call, since only
//! constants are worked out in it. A query can see that it is being planned (`plan_cache_mode`), and have its planning fail
//! by that, which is its own loss.
//!
//! It is a layer and not the wall. A plan does not show the bodies of functions, what operators, casts and domains call, the
//! left side of IN, ANY and ALL over a subquery, the counts of LIMIT and OFFSET, the frame of a window, the rows of VALUES if
//! there are several, or what EXPLAIN ANALYZE and CALL run. The wall is a login that may call nothing of the kind.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;
use types::{ReferencedObjects, TableAccess};

use super::{ReadError, account_setting, refusal};
use crate::error::{Error, ServerError};
use crate::plan::{BACK_TO_SAVEPOINT, PlanParameters, PlanResult, SAVEPOINT, plan_in_full};
use crate::referenced_objects::{called, referenced_objects};
use crate::session::{SEEN_FOR, Session};
use crate::value;
use crate::wire::Purpose;

const FORBIDDEN_SQL: &str = include_str!("functions.sql");

/// What the view `pg_prepared_statements` calls.
const LISTS_STATEMENTS: &str = "pg_prepared_statement";

const PORTAL: &str = "countersign_looked_at";
const NO_ROW: &str = "move forward 0 in countersign_looked_at";

/// How many names are remembered as harmless. A database has some thousands of functions, a name at most 63 bytes.
const MAX_NAMES: usize = 5_000;

/// The functions that were found harmless, so that the catalog is asked once a name, and after a while again: rights are
/// taken away, and an extension brings a function of the same name.
#[derive(Debug, Default)]
pub(super) struct FunctionPolicy {
    harmless: Mutex<Harmless>,
    /// The schema whose relations are not read.
    refused_schema: Option<&'static str>,
    /// Whether the statements are of somebody who may say on whose behalf they run.
    takes_any_setting: bool,
}

#[derive(Debug)]
struct Harmless {
    names: HashSet<String>,
    since: Instant,
}

impl Default for Harmless {
    fn default() -> Self {
        Self { names: HashSet::new(), since: Instant::now() }
    }
}

/// What the plan of a text has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inspection {
    /// For which calls of the text it holds.
    pub(super) verdict: PolicyVerdict,
    /// Whether the outermost node of the plan is a `Limit`: LIMIT, FETCH FIRST and OFFSET at the top level of the query, or of
    /// a view that it reads and does nothing else with. PostgreSQL leaves out LIMIT ALL.
    pub(super) has_limit: bool,
    /// Whether the plan has a `Gather` or a `Gather Merge`, which collect the rows of parallel workers.
    pub(super) is_parallel: bool,
}

impl Inspection {
    /// Of a text that is not looked at.
    pub(super) const NONE: Self = Self { verdict: PolicyVerdict::Always, has_limit: false, is_parallel: false };
}

/// For which calls of a text the answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicyVerdict {
    /// Whatever its parameters are.
    Always,
    /// These parameters, and only if no statements of others can be seen: it looks at what is prepared.
    SeesStatements,
    /// These parameters.
    ThisTime,
    /// It is a command without a plan: what it calls is not to be seen.
    Unseen,
}

/// Whether the node of a plan is of one of these types.
fn is_of(node: &Value, types: &[&str]) -> bool {
    node.get("Node Type").and_then(Value::as_str).is_some_and(|of| types.contains(&of))
}

/// Whether it, or a node below it, is of one of these types.
fn has_node(node: &Value, types: &[&str]) -> bool {
    let below = node.get("Plans").and_then(Value::as_array);
    is_of(node, types) || below.is_some_and(|nodes| nodes.iter().any(|node| has_node(node, types)))
}

impl FunctionPolicy {
    /// The same, and relations of this schema are refused as well.
    pub(super) fn deny_schema(schema: &'static str) -> Self {
        Self { refused_schema: Some(schema), ..Self::default() }
    }

    /// Of statements that are their caller's own, who may change any setting.
    pub(super) fn with_any_setting() -> Self {
        Self { takes_any_setting: true, ..Self::default() }
    }

    /// Refuses this text if it calls what a read may not. It has been described in the transaction that is open, so what it
    /// reads is locked, and means the same until the end. What cannot be planned is refused as well.
    ///
    /// It is planned under a name of its own: a plan that was made to be looked at must not be the one that runs.
    pub(super) async fn check(
        &self,
        session: &mut Session,
        sql: &str,
        params: &[Option<String>],
    ) -> Result<Inspection, ReadError> {
        let name = session.statements.new_name();
        session.push_ahead(&name, sql)?;
        let planned = in_full(session, &name, params).await;
        session.connection.push_close_statement(&name).map_err(Error::Lost)?;
        let (plan, verdict) = planned?;
        if let (Some(plan), Some(refused)) = (&plan, self.refused_schema) {
            refuse_relations(plan, refused)?;
        }
        if !self.takes_any_setting
            && let Some((function, why)) = account_setting::refusal(sql, plan.as_ref())
        {
            return Err(ReadError::ForbiddenFunction { function: function.to_owned(), why: why.to_owned() });
        }
        let names: BTreeSet<String> = plan.iter().flat_map(called).map(|call| call.name).collect();
        let sees_statements = names.contains(LISTS_STATEMENTS);
        self.look_up(session, names).await?;
        let outermost = plan.as_ref().and_then(|plan| plan.pointer("/0/Plan"));
        Ok(Inspection {
            verdict: if sees_statements { PolicyVerdict::SeesStatements } else { verdict },
            has_limit: outermost.is_some_and(|node| is_of(node, &["Limit"])),
            is_parallel: outermost.is_some_and(|node| has_node(node, &["Gather", "Gather Merge"])),
        })
    }

    async fn look_up(&self, session: &mut Session, names: BTreeSet<String>) -> Result<(), ReadError> {
        let unknown: Vec<String> = {
            let harmless = self.harmless();
            names.into_iter().filter(|name| !harmless.names.contains(name)).collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let rows = session.rows(FORBIDDEN_SQL, &[Some(value::text_array(&unknown))]).await?;
        let found = rows.first().and_then(|row| row.first_chunk::<2>());
        if let Some([Some(function), Some(why)]) = found {
            return Err(ReadError::ForbiddenFunction { function: function.clone(), why: why.clone() });
        }
        self.harmless().names.extend(unknown);
        Ok(())
    }

    fn harmless(&self) -> MutexGuard<'_, Harmless> {
        let mut harmless = self.harmless.lock().unwrap_or_else(PoisonError::into_inner);
        if harmless.names.len() > MAX_NAMES || harmless.since.elapsed() >= SEEN_FOR {
            *harmless = Harmless::default();
        }
        harmless
    }
}

/// Refuses a plan that reads a relation of this schema. A view stands for what it reads.
fn refuse_relations(plan: &Value, refused: &str) -> Result<(), ReadError> {
    let ReferencedObjects::Planned { tables, .. } = referenced_objects(plan) else { return Ok(()) };
    match tables.into_iter().find(|table| table.schema == refused) {
        Some(TableAccess { schema, table, .. }) => Err(ReadError::RefusedRelation { schema, relation: table }),
        None => Ok(()),
    }
}

/// The plan of the statement that is prepared under this name, for any parameters or else for these, if it has one.
async fn in_full(
    session: &mut Session,
    name: &str,
    params: &[Option<String>],
) -> Result<(Option<Value>, PolicyVerdict), ReadError> {
    match plan_in_full(session, SAVEPOINT, name, PlanParameters::AnyValues(params.len())).await.map_err(failure)? {
        PlanResult::Plan(plan) => return Ok((Some(plan), PolicyVerdict::Always)),
        PlanResult::Utility | PlanResult::Empty => return Ok((None, PolicyVerdict::Unseen)),
        PlanResult::Refused(error) if is_too_much(&error) => return Err(too_much(&error)),
        // `case when $1 then 1/0 end` is computed while it is planned, unless $1 is known to be false.
        PlanResult::Refused(_) => {}
    }
    // PostgreSQL calls functions that are STABLE while it plans, before anybody has seen that they are called, and an error
    // quotes what they say: this one is told, so there must be nothing of others to be seen.
    session.push_close_remembered()?;
    match plan_in_full(session, BACK_TO_SAVEPOINT, name, PlanParameters::These(params)).await.map_err(failure)? {
        PlanResult::Plan(plan) => Ok((Some(plan), PolicyVerdict::ThisTime)),
        // Nothing that takes values is one.
        PlanResult::Utility | PlanResult::Empty => Ok((None, PolicyVerdict::Unseen)),
        PlanResult::Refused(error) if is_too_much(&error) => Err(too_much(&error)),
        // It might run all the same: a setting that is there for the plan alone is not there any more then, and a query can
        // ask for it. So this is the answer, also where it is a right that is missing: but of what would write, that is
        // what PostgreSQL says first when it runs, and not when it is planned.
        PlanResult::Refused(error) if error.sqlstate == "42501" => {
            Err(refusal(would_write(session, name, params).await?.unwrap_or(Error::Server(error))))
        }
        PlanResult::Refused(error) => Err(refusal(Error::Server(error))),
    }
}

/// What PostgreSQL says to the statement that is prepared under this name if it writes. It is bound, which starts a plain
/// query and does not run it; then its portal is moved by no row, which starts anything else, and that is what a transaction
/// that cannot write refuses.
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

/// program_limit_exceeded, out_of_memory: a plan shows the values that were computed while it was made, and
/// ROW in ROW takes twice the room with each step.
fn is_too_much(error: &ServerError) -> bool {
    matches!(error.sqlstate.as_str(), "54000" | "53200")
}

fn failure(error: Error) -> ReadError {
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
