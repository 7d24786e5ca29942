//! The trial of a plan. In mode `skip`, writes whose undo fails are left out, so that they do not block the others.

use std::collections::BTreeMap;
use std::pin::Pin;

use serde_json::json;
use tokio::time::Instant;
use types::{AccountId, Conflict, CorrelationId};

use super::{Plan, PlanMode, Plans};
use crate::evidence::conflicts::stored;
use crate::evidence::values::array;
use crate::undo::NotRestored;

/// What a trial has found.
#[derive(Debug, Clone, Default)]
pub struct TriedUndo {
    /// Why the undo fails; empty if it succeeds.
    pub conflicts: Vec<Conflict>,
    /// The tables whose rows would stay.
    pub not_restored: Vec<NotRestored>,
    /// The columns that triggers would set again, by table.
    pub set_again: BTreeMap<String, Vec<String>>,
}

/// The future of a trial.
pub type TrialFuture<'a, E> = Pin<Box<dyn Future<Output = Result<TriedUndo, E>> + Send + 'a>>;

/// Tries the undo of writes in a transaction that is rolled back.
pub trait TrialUndo: Sync {
    /// The reason why the trial could not run.
    type Error: From<pg::Error>;

    /// Tries to undo these writes together.
    fn try_undo<'a>(&'a self, writes: &'a [CorrelationId]) -> TrialFuture<'a, Self::Error>;
}

/// Whether an error of this SQLSTATE is about the restored rows: a constraint, a trigger or a value refuses them.
#[must_use]
pub fn is_of_the_rows(sqlstate: &str) -> bool {
    ["22", "23", "27", "38", "39", "44", "P0"].iter().any(|class| sqlstate.starts_with(class))
}

/// The maximum number of trials in the search for failing writes. After them, all writes of the failing table are
/// left out.
const MAX_TRIALS: u32 = 64;

const IN_CONFLICT_SQL: &str =
    "select countersign.left_out_by(w.write, w.reason) from countersign.writes_in_conflict($1::uuid[], $2::json) w";
const LEFT_OUT_SQL: &str = "select countersign.left_out_by($1::uuid, $2::json)";

impl Plans {
    /// Tries a plan that is ready, and adds what the trial has found. In mode `skip` it leaves out failing writes
    /// until the rest succeeds.
    pub async fn try_plan<T: TrialUndo>(
        &self,
        plan: &mut Plan,
        account: Option<&AccountId>,
        trial: &T,
        deadline: Instant,
    ) -> Result<(), T::Error> {
        let mut budget = None;
        while plan.report.is_ready {
            let began = Instant::now();
            let TriedUndo { conflicts, not_restored, set_again } = trial.try_undo(&plan.report.writes).await?;
            if conflicts.is_empty() {
                let left: u64 = not_restored.iter().map(|kept| kept.left).sum();
                plan.report.rows = plan.report.rows.saturating_sub(left);
                plan.report.not_restored = not_restored;
                plan.report.set_again = set_again;
                return Ok(());
            }
            if plan.report.mode != PlanMode::Skip {
                plan.refuse(conflicts);
                return Ok(());
            }
            // At most half of the remaining time is spent on the search for failing writes.
            let affordable = (deadline.saturating_duration_since(Instant::now()) / 2).as_micros();
            let affordable = u32::try_from(affordable / began.elapsed().as_micros().max(1)).unwrap_or(u32::MAX);
            let budget = budget.get_or_insert(MAX_TRIALS.min(affordable));
            let found = match Self::failing_write(trial, &plan.report.writes, &conflicts, budget).await? {
                Some((write, conflict)) => self.left_out(write, &conflict, deadline).await?,
                None => self.in_conflict(&plan.report.writes, &conflicts, deadline).await?,
            };
            if found.is_empty() {
                plan.refuse(conflicts);
                return Ok(());
            }
            let is_out = |write: &CorrelationId| found.iter().any(|conflict| conflict.write_id() == Some(*write));
            let rest: Vec<_> = plan.report.writes.iter().copied().filter(|write| !is_out(write)).collect();
            let account = account.map(AccountId::as_str);
            let report = self.report(&rest, PlanMode::Skip, account, deadline).await?;
            let mut left_out = std::mem::replace(&mut plan.report, report).left_out;
            left_out.extend(found);
            left_out.append(&mut plan.report.left_out);
            plan.report.left_out = left_out;
        }
        Ok(())
    }

    /// The newest write whose undo fails together with all later writes of the plan, found by bisection. The later
    /// writes alone can be undone, because the rows go back through states that existed. `None` if the search needs
    /// more trials than `budget` allows.
    async fn failing_write<T: TrialUndo>(
        trial: &T,
        writes: &[CorrelationId],
        conflicts: &[Conflict],
        budget: &mut u32,
    ) -> Result<Option<(CorrelationId, Conflict)>, T::Error> {
        let (mut passing, mut failing, mut why) = (0, writes.len(), conflicts.first().cloned());
        while failing - passing > 1 {
            let Some(left) = budget.checked_sub(1) else { return Ok(None) };
            *budget = left;
            let middle = usize::midpoint(passing, failing);
            let newest = writes.get(writes.len() - middle..).unwrap_or_default();
            match trial.try_undo(newest).await?.conflicts.into_iter().next() {
                None => passing = middle,
                conflict => (failing, why) = (middle, conflict),
            }
        }
        Ok(writes.get(writes.len() - failing).copied().zip(why))
    }

    async fn left_out(
        &self,
        write: CorrelationId,
        conflict: &Conflict,
        deadline: Instant,
    ) -> Result<Vec<Conflict>, pg::Error> {
        self.conflicts(LEFT_OUT_SQL, &[Some(write.to_string()), Some(json!(conflict.stored()).to_string())], deadline)
            .await
    }

    async fn in_conflict(
        &self,
        writes: &[CorrelationId],
        conflicts: &[Conflict],
        deadline: Instant,
    ) -> Result<Vec<Conflict>, pg::Error> {
        let conflicts = stored(conflicts).to_string();
        self.conflicts(IN_CONFLICT_SQL, &[Some(array(writes)), Some(conflicts)], deadline).await
    }

    async fn conflicts(
        &self,
        sql: &str,
        params: &[Option<String>],
        deadline: Instant,
    ) -> Result<Vec<Conflict>, pg::Error> {
        let rows = self.writer.run_one(sql, params, deadline).await?.rows;
        let texts = rows.into_iter().flatten().flatten();
        texts.map(|text| serde_json::from_str(&text).map_err(super::unreadable)).collect()
    }
}
