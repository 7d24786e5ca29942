//! What a read may call: nothing that acts beyond its transaction, where `ROLLBACK` does not reach.
//!
//! PostgreSQL lets every role cancel the sessions of its own login, and a superuser read files, all of it from a SELECT in
//! a transaction that is read only. So before a text runs for the first time its plan is asked which functions it calls
//! (`EXPLAIN (VERBOSE)`, in which PostgreSQL writes the expressions, views resolved), and the catalog what these are
//! (`functions.sql`).
//!
//! It is a layer and not the wall. A plan does not show the bodies of functions, the counts of LIMIT and OFFSET, the frame of
//! a window, the rows of VALUES if there are several, or what EXPLAIN ANALYZE and CALL run. The wall is a login that may call
//! nothing of the kind.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::{ReadError, refusal, too_large};
use crate::error::{Error, ServerError};
use crate::plan::{BACK_TO_SAVEPOINT, For, Planned, RELEASE, SAVEPOINT, plan};
use crate::reach::called;
use crate::session::{Session, Step};
use crate::value;

const FORBIDDEN_SQL: &str = include_str!("functions.sql");

/// What the view `pg_prepared_statements` calls.
const LISTS_STATEMENTS: &str = "pg_prepared_statement";

/// How many names are remembered as harmless. A database has some thousands of functions, a name at most 63 bytes.
const MAX_NAMES: usize = 5_000;

/// The functions that were found harmless, so that the catalog is asked once a name.
#[derive(Debug, Default)]
pub(super) struct Functions {
    harmless: Mutex<HashSet<String>>,
}

/// For which calls of a text the answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checked {
    /// Whatever its parameters are.
    Always,
    /// These parameters, and only if no statements of others can be seen: it looks at what is prepared.
    SeesStatements,
    /// These parameters.
    ThisTime,
    /// It is a command without a plan: what it calls is not to be seen.
    Unseen,
}

impl Functions {
    /// Refuses the statement that is prepared under this name if it calls what a read may not.
    pub(super) async fn check(
        &self,
        session: &mut Session,
        statement: &str,
        params: &[Option<String>],
    ) -> Result<Checked, ReadError> {
        let mut planning_failed = false;
        let (plan, checked) =
            match plan(session, Some((SAVEPOINT, RELEASE)), statement, For::AnyValues(params.len())).await {
                Ok(Planned::Plan(plan)) => (Some(plan), Checked::Always),
                Ok(Planned::Utility) => (None, Checked::Unseen),
                // `case when $1 then 1/0 end` is computed while it is planned, unless $1 is known to be false.
                Ok(Planned::Refused(error)) if !is_too_much(&error) => {
                    let plan = self.plan_for(session, statement, params).await?;
                    planning_failed = plan.is_none();
                    (plan, Checked::ThisTime)
                }
                Ok(Planned::Refused(error)) => return Err(too_much(&error)),
                Err(error) => return Err(failure(error)),
            };
        let names: BTreeSet<String> = plan.iter().flat_map(called).map(|call| call.name).collect();
        let sees_statements = names.contains(LISTS_STATEMENTS);
        if planning_failed {
            let steps = [BACK_TO_SAVEPOINT, RELEASE].map(Step::plain);
            session.run(&steps).await.map_err(|failed| failed.error)?;
        }
        self.look_up(session, names).await?;
        Ok(if sees_statements { Checked::SeesStatements } else { checked })
    }

    /// The plan for these values.
    async fn plan_for(
        &self,
        session: &mut Session,
        statement: &str,
        params: &[Option<String>],
    ) -> Result<Option<Value>, ReadError> {
        match plan(session, Some((BACK_TO_SAVEPOINT, RELEASE)), statement, For::These(params)).await.map_err(failure)? {
            Planned::Plan(plan) => Ok(Some(plan)),
            // Nothing that takes values is one.
            Planned::Utility => Ok(Some(Value::Null)),
            Planned::Refused(error) if is_too_much(&error) => Err(too_much(&error)),
            // insufficient_privilege, with this very plan: it will be refused when it runs, in the words that belong there.
            Planned::Refused(error) if error.sqlstate == "42501" => Ok(None),
            // It would not run either.
            Planned::Refused(error) => Err(refusal(Error::Server(error))),
        }
    }

    async fn look_up(&self, session: &mut Session, names: BTreeSet<String>) -> Result<(), ReadError> {
        let unknown: Vec<String> = {
            let harmless = self.harmless();
            names.into_iter().filter(|name| !harmless.contains(name)).collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let step = Step { sql: FORBIDDEN_SQL, params: &[Some(value::text_array(&unknown))], param_types: &[] };
        let outcomes = session.run(&[step]).await.map_err(|failed| failed.error)?;
        let found = outcomes.first().and_then(|outcome| outcome.rows.first()?.first_chunk::<2>());
        if let Some([Some(function), Some(why)]) = found {
            return Err(ReadError::ForbiddenFunction { function: function.clone(), why: why.clone() });
        }
        let mut harmless = self.harmless();
        if harmless.len() > MAX_NAMES {
            harmless.clear();
        }
        harmless.extend(unknown);
        Ok(())
    }

    fn harmless(&self) -> MutexGuard<'_, HashSet<String>> {
        self.harmless.lock().unwrap_or_else(PoisonError::into_inner)
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
        error => too_large(error),
    }
}

fn too_much(error: &ServerError) -> ReadError {
    let message = format!("the plan of this query is too large to be looked at: {}", error.message);
    ReadError::TooLarge(Error::Server(Box::new(ServerError::ours("54000", message))))
}
