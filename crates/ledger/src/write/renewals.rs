//! Runs work again after a migration. The triggers that record the rows of a tracked table know its columns, and a session
//! keeps plans of the functions that it has called. So after a migration the first transaction that meets the table may
//! fail, whether it is a write, its trial, an undo or a plan. Then it is rolled back, the triggers are renewed, and it runs
//! once more on a new session.

use pg::{PipelineStatement, PooledSession, StatementResult, WriterPool};

/// The SQLSTATE of an error about a tracked table whose columns differ from those of its triggers (see the migrations).
pub(crate) const OUTDATED: &str = "CS005";

/// The SQLSTATEs of errors that a trigger may raise which records rows and does not know a new column or its type, or a
/// plan from before the migration.
const MAY_BE_OUTDATED: [&str; 5] = [OUTDATED, "42703", "42804", "42846", "0A000"];

/// The maximum number of times that one piece of work begins again because of concurrent migrations.
const MAX_RENEWALS: u32 = 3;

const RENEW_SQL: &str = "select countersign.renew_shapes()";

/// Counts how often one piece of work began again.
#[derive(Debug, Default)]
pub(crate) struct Renewals(u32);

impl Renewals {
    /// Whether the work may begin once more, on a new session.
    pub(crate) fn begin(&mut self, writer: &WriterPool) -> bool {
        self.0 += 1;
        if self.0 <= MAX_RENEWALS {
            tracing::info!("a migration has changed columns; the work begins again");
            writer.retire_all();
        }
        self.0 <= MAX_RENEWALS
    }
}

/// Whether a failure with this SQLSTATE may come from a migration.
pub(crate) fn may_be_outdated(sqlstate: Option<&str>) -> bool {
    sqlstate.is_some_and(|state| MAY_BE_OUTDATED.contains(&state))
}

/// Rolls back, and renews the triggers of tracked tables whose columns have changed. Returns whether there were any, or
/// the functions of this session were planned before such a change.
pub(crate) async fn is_renewed(lease: &mut PooledSession) -> Result<bool, pg::Error> {
    let steps = ["rollback", RENEW_SQL].map(PipelineStatement::without_params);
    let outcomes = lease.session().run(&steps).await.map_err(|failed| failed.error)?;
    let renewed = outcomes.into_iter().next_back().and_then(StatementResult::into_value);
    Ok(lease.is_outdated() || renewed.is_some_and(|number| number != "0"))
}
