//! Plans of people: tried, stored and shown; then run as they were shown, in one transaction, or in one for each part of the plan that
//! shares no rows with the others.

use std::collections::HashMap;

use serde_json::{Value, json};
use tokio::time::Instant;
use types::{CorrelationId, IdPrefix};

use super::{DEADLINE, Operator, UndoError, UndoOutcome};
use crate::plans::{Plan, PlanMode, PlanPart, Selection, StoredPlan, is_ready};
use crate::values::array;

/// The result of one part of a plan.
#[derive(Debug, Clone, PartialEq)]
pub enum UndoProgress {
    /// It was undone before, by an earlier run.
    Before,
    /// The part differs from the one that was shown.
    Stale,
    /// It was tried.
    Done(UndoOutcome),
}

const KEYS_SQL: &str = "select e.correlation_id, e.relation || ' ' || coalesce(k.key, '') from countersign.effect e \
    cross join lateral (select e.key union select e.key_before where e.key_before is not null) k (key) \
    where e.correlation_id = any ($1::uuid[]) order by e.position desc";
const REVERSED_SQL: &str = "select count(*) from countersign.reversal v where v.correlation_id = any ($1::uuid[])";

impl Operator {
    /// Makes a plan: selects, compares, tries it in a transaction that is rolled back, and stores it. What touches more rows than
    /// `max_rows` is undone in parts.
    ///
    /// # Errors
    /// As [`Operator::undo`].
    pub async fn plan(
        &self,
        selection: &Selection,
        mode: PlanMode,
        max_rows: u64,
        who: &str,
    ) -> Result<(Plan, StoredPlan), UndoError> {
        let end = Instant::now() + DEADLINE;
        let mut plan = self.plans.compare(selection, mode, end).await?;
        let chosen = plan.chosen();
        if plan.is_ready()
            && let UndoOutcome::Conflicts { conflicts, .. } = self.try_undo(&chosen, who).await?
        {
            plan.refuse(conflicts);
        }
        let parts = self.parts(&chosen, &plan, max_rows).await?;
        let stored = self.plans.store(None, &plan, parts, who, end).await?;
        Ok((plan, stored))
    }

    /// The stored plans whose name begins like this.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn stored_plans(&self, prefix: &IdPrefix) -> Result<Vec<StoredPlan>, UndoError> {
        Ok(self.plans.find(prefix).await?)
    }

    /// Undoes one part of a stored plan, if it is unchanged since it was shown. A finished part stays undone: a second
    /// run continues after it.
    ///
    /// # Errors
    /// As [`Operator::undo`].
    pub async fn run_part(&self, plan: &StoredPlan, part: &PlanPart, who: &str) -> Result<UndoProgress, UndoError> {
        let writes: Vec<CorrelationId> = part.writes.iter().filter_map(|id| CorrelationId::parse(id)).collect();
        let end = Instant::now() + DEADLINE;
        let reversed = self.plans.value(REVERSED_SQL, &[Some(array(&writes))], end).await?;
        if reversed == writes.len().to_string() {
            return Ok(UndoProgress::Before);
        }
        let report = self.plans.report(&writes, PlanMode::Strict, None, end).await?;
        // The undo itself compares the rows alone, and would pass over a change that others have made and taken back.
        if !is_ready(&report) {
            let conflicts = report.get("conflicts").and_then(Value::as_array).cloned().unwrap_or_default();
            return Ok(UndoProgress::Done(UndoOutcome::Conflicts { correlation_id: None, conflicts, rows: part.rows }));
        }
        if report.get("digest").and_then(Value::as_str) != Some(&part.digest) {
            return Ok(UndoProgress::Stale);
        }
        let arguments = json!({"plan_id": plan.plan_id, "digest": plan.digest});
        self.undo_all(&writes, who, "undo_run", &arguments, Some(&part.digest)).await.map(UndoProgress::Done)
    }

    /// One part, or where it has too many rows one for each set of writes that share rows, the newest first: a row that refers to
    /// another one was made later.
    async fn parts(&self, chosen: &[CorrelationId], plan: &Plan, max_rows: u64) -> Result<Vec<PlanPart>, UndoError> {
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        if plan.rows() <= max_rows {
            return Ok(vec![PlanPart::of(chosen, &plan.report)]);
        }
        let answer = self.writer.run_one(KEYS_SQL, &[Some(array(chosen))], Instant::now() + DEADLINE).await?;
        let pairs = answer.rows.into_iter().filter_map(|row| {
            let [write, key] = <[Option<String>; 2]>::try_from(row).ok()?;
            Some((CorrelationId::parse(&write?)?, key?))
        });
        let mut parts = Vec::new();
        for writes in connected(pairs) {
            let report = self.plans.report(&writes, PlanMode::Strict, None, Instant::now() + DEADLINE).await?;
            parts.push(PlanPart::of(&writes, &report));
        }
        Ok(parts)
    }
}

/// Sets of writes that share no row with each other, in the order in which they first come.
fn connected(pairs: impl Iterator<Item = (CorrelationId, String)>) -> Vec<Vec<CorrelationId>> {
    let mut sets: Vec<Vec<CorrelationId>> = Vec::new();
    let (mut of_write, mut of_key) = (HashMap::<CorrelationId, usize>::new(), HashMap::<String, usize>::new());
    for (write, key) in pairs {
        let known = [of_write.get(&write).copied(), of_key.get(&key).copied()];
        let set = known.into_iter().flatten().min().unwrap_or_else(|| {
            sets.push(Vec::new());
            sets.len() - 1
        });
        for other in known.into_iter().flatten().filter(|other| *other != set) {
            let moved = sets.get_mut(other).map(std::mem::take).unwrap_or_default();
            of_write.extend(moved.iter().map(|write| (*write, set)));
            of_key.values_mut().filter(|at| **at == other).for_each(|at| *at = set);
            if let Some(writes) = sets.get_mut(set) {
                writes.extend(moved);
            }
        }
        of_key.insert(key, set);
        if of_write.insert(write, set).is_none()
            && let Some(writes) = sets.get_mut(set)
        {
            writes.push(write);
        }
    }
    sets.retain(|writes| !writes.is_empty());
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_that_share_rows_are_one_part() {
        let [a, b, c, d] = [(); 4].map(|()| CorrelationId::new());
        let pairs = [(a, "1"), (b, "2"), (c, "3"), (b, "3"), (d, "4"), (d, "1")];
        let sets = connected(pairs.into_iter().map(|(write, key)| (write, key.to_owned())));
        assert_eq!(sets, [vec![a, d], vec![b, c]]);
    }
}
