//! What a read may call: nothing that acts beyond its transaction, where `ROLLBACK` does not reach.
//!
//! PostgreSQL lets every role cancel the sessions of its own login, and a superuser read files, all of it from a SELECT in
//! a transaction that is read only. So before a text runs for the first time its plan is asked which functions it calls
//! (`EXPLAIN (VERBOSE)`, in which PostgreSQL writes the expressions, views resolved), and the catalog what these are
//! (`functions.sql`).
//!
//! It is a layer and not the wall. A plan does not show the bodies of functions, the counts of LIMIT and OFFSET, or what
//! EXPLAIN ANALYZE runs. The wall is a login that may call nothing of the kind.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::{ReadError, refusal, too_large};
use crate::error::{Error, ServerError};
use crate::plan::{For, Planned, plan};
use crate::reach::called;
use crate::session::{Session, Step};
use crate::value;

const FORBIDDEN_SQL: &str = include_str!("functions.sql");

/// A plan that cannot be made fails the transaction.
const SAVEPOINT: &str = "savepoint before_plan";
const BACK_TO_SAVEPOINT: &str = "rollback to savepoint before_plan";

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
    /// These parameters.
    ThisTime,
}

impl Functions {
    /// Refuses the statement that is prepared under this name if it calls what a read may not.
    pub(super) async fn check(
        &self,
        session: &mut Session,
        statement: &str,
        params: &[Option<String>],
    ) -> Result<Checked, ReadError> {
        session.run(&[Step::plain(SAVEPOINT)]).await.map_err(|failed| failed.error)?;
        let planned = plan(session, statement, For::AnyValues(params.len())).await.map_err(too_large)?;
        let (plan, checked) = match planned {
            Planned::Plan(plan) => (plan, Checked::Always),
            Planned::Utility => return Ok(Checked::Always),
            Planned::Refused(error) => {
                session.run(&[Step::plain(BACK_TO_SAVEPOINT)]).await.map_err(|failed| failed.error)?;
                match self.plan_for(session, statement, params, *error).await? {
                    Some(plan) => (plan, Checked::ThisTime),
                    None => return Ok(Checked::ThisTime),
                }
            }
        };
        self.look_up(session, &plan).await?;
        Ok(checked)
    }

    /// The plan for these values of a statement that cannot be planned for any: `case when $1 then 1/0 end` is computed
    /// while it is planned, unless `$1` is false.
    async fn plan_for(
        &self,
        session: &mut Session,
        statement: &str,
        params: &[Option<String>],
        error: ServerError,
    ) -> Result<Option<Value>, ReadError> {
        // insufficient_privilege: it will be refused when it runs, in the words that belong there.
        if error.sqlstate == "42501" {
            return Ok(None);
        }
        let refused = match plan(session, statement, For::These(params)).await.map_err(too_large)? {
            Planned::Plan(plan) => return Ok(Some(plan)),
            Planned::Utility => return Ok(None),
            Planned::Refused(error) => error,
        };
        Err(match refused.sqlstate.as_str() {
            // program_limit_exceeded: a plan shows the values that were computed while it was made.
            "54000" => ReadError::TooLarge(Error::Server(refused)),
            // It would not run either.
            _ => refusal(Error::Server(refused)),
        })
    }

    async fn look_up(&self, session: &mut Session, plan: &Value) -> Result<(), ReadError> {
        let names: BTreeSet<String> = called(plan).into_iter().map(|call| call.name).collect();
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
