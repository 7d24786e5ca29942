//! Undo plans of operators. A plan is tried, stored and shown. Then it is executed as it was shown, in one
//! transaction, or in one transaction for each part that shares no rows with the others.

use std::collections::HashMap;

use serde_json::json;
use tokio::time::Instant;
use types::{CorrelationId, IdPrefix};

use super::{Operator, TIMEOUT, UndoError, UndoOutcome};
use crate::evidence::values::array;
use crate::undo::NotRestored;
use crate::undo::plans::{
    Plan, PlanMode, PlanPart, PlanReport, PlanRequest, PlanRows, StoredPlan, TrialFuture, TrialUndo, TriedUndo,
};

/// The result of one part of a plan.
#[derive(Debug, Clone, PartialEq)]
pub enum UndoProgress {
    /// An earlier run has undone the part.
    Before,
    /// The part differs from the one that was shown.
    Stale,
    /// The undo of the part was attempted, with this outcome.
    Done(UndoOutcome),
}

/// The keys by which writes are connected: two writes with the same key belong to the same part. A key is that of a
/// row, or the values of a foreign key that connects rows.
const KEYS_SQL: &str = "\
with own as materialized ( \
    select e.* from countersign.effect e where e.correlation_id = any ($1::uuid[]) \
), reference as materialized ( \
    select f.oid, s.relation, \
        (select array_agg(a.attname::text order by k.n) from unnest(s.key) with ordinality k (number, n) \
         join pg_attribute a on a.attrelid = s.relation and a.attnum = k.number) as columns \
    from pg_constraint f cross join lateral (values (f.conrelid, f.conkey), (f.confrelid, f.confkey)) s (relation, key) \
    where f.contype = 'f' and f.conrelid in (select o.relation from own o) and f.confrelid in (select o.relation from own o) \
), image as materialized ( \
    select o.correlation_id, o.position, o.relation, t.columns, countersign.fields(i.image) as fields \
    from own o join countersign.tracked t on t.shape = o.shape cross join lateral (values (o.before), (o.after)) i (image) \
    where i.image is not null and o.relation in (select r.relation from reference r) \
) \
select u.correlation_id, u.key from ( \
    select o.correlation_id, o.position, o.relation || ' ' || coalesce(k.key, '') as key \
    from own o cross join lateral (select o.key union select o.key_before where o.key_before is not null) k (key) \
    union all \
    select i.correlation_id, i.position, 'reference ' || r.oid || ' ' || v.key from image i \
    join reference r on r.relation = i.relation \
    cross join lateral (select string_agg(i.fields[array_position(i.columns, c.name)], ',' order by c.n) as key, \
                            bool_and(i.fields[array_position(i.columns, c.name)] <> '') as is_set \
                        from unnest(r.columns) with ordinality c (name, n)) v \
    where v.is_set \
) u order by u.position desc";
const REVERSED_SQL: &str = "select count(*) from countersign.reversal v where v.correlation_id = any ($1::uuid[])";

impl Operator {
    /// Makes a plan: selects the writes, compares their rows, tries the undo in a transaction that is rolled back,
    /// and stores the plan. A plan with more rows than `max_rows` is split into parts.
    ///
    /// # Errors
    /// As [`Operator::undo`]; [`UndoError::Selection`] if the request cannot match any write.
    pub async fn plan(&self, request: &PlanRequest, max_rows: u64, who: &str) -> Result<(Plan, StoredPlan), UndoError> {
        let end = Instant::now() + TIMEOUT;
        let mut plan = self.plans.compare(None, request, end).await?;
        self.plans.try_plan(&mut plan, None, &OperatorTrial { operator: self, who }, end).await?;
        let parts = self.parts(&plan, max_rows, who).await?;
        let stored = self.plans.store(None, &plan, parts, who, end).await?;
        Ok((plan, stored))
    }

    /// The rows that the undo of these writes restores: the first `most` of them (all of them if `None`), and the numbers
    /// of all by table and column. Rows of the tables of `not_restored` stay, and are left out.
    pub async fn rows(
        &self,
        writes: &[CorrelationId],
        not_restored: &[NotRestored],
        most: Option<u32>,
    ) -> Result<PlanRows, UndoError> {
        Ok(self.plans.rows(writes, not_restored, most, Instant::now() + TIMEOUT).await?)
    }

    /// The stored plans whose id begins with `prefix`.
    pub async fn stored_plans(&self, prefix: &IdPrefix) -> Result<Vec<StoredPlan>, UndoError> {
        Ok(self.plans.find(prefix).await?)
    }

    /// Undoes one part of a stored plan, if the part is the same as when it was shown. A finished part stays undone,
    /// so a second run continues after it.
    pub async fn run_part(&self, plan: &StoredPlan, part: &PlanPart, who: &str) -> Result<UndoProgress, UndoError> {
        let end = Instant::now() + TIMEOUT;
        let reversed = self.plans.value(REVERSED_SQL, &[Some(array(&part.writes))], end).await?;
        if reversed == part.writes.len().to_string() {
            return Ok(UndoProgress::Before);
        }
        let PlanReport { is_ready, conflicts, digest, .. } =
            self.plans.report(&part.writes, PlanMode::Strict, None, end).await?;
        // The undo itself only compares rows. It would not notice a change that others made and took back, so the
        // plan is made again and compared.
        if !is_ready {
            return Ok(UndoProgress::Done(UndoOutcome::Conflicts { correlation_id: None, conflicts, rows: part.rows }));
        }
        if digest != part.digest {
            return Ok(UndoProgress::Stale);
        }
        let arguments = json!({"plan_id": plan.plan_id, "digest": plan.digest});
        self.undo_all(&part.writes, who, "undo_run", &arguments, Some(&part.digest)).await.map(UndoProgress::Done)
    }

    /// Splits a plan with too many rows into one part for each set of writes that share rows or refer to each other's
    /// rows, the newest first. If the parts cannot be undone one after another, they are one part.
    async fn parts(&self, plan: &Plan, max_rows: u64, who: &str) -> Result<Vec<PlanPart>, UndoError> {
        let report = &plan.report;
        if report.writes.is_empty() {
            return Ok(Vec::new());
        }
        if report.rows <= max_rows || !report.is_ready {
            return Ok(vec![PlanPart::of(report)]);
        }
        let answer = self.writer.run_one(KEYS_SQL, &[Some(array(&report.writes))], Instant::now() + TIMEOUT).await?;
        let pairs = answer.rows.into_iter().filter_map(|row| {
            let [write, key] = <[Option<String>; 2]>::try_from(row).ok()?;
            Some((CorrelationId::parse(&write?)?, key?))
        });
        let sets = connected(pairs);
        let each: Vec<&[CorrelationId]> = sets.iter().map(Vec::as_slice).collect();
        // No foreign key shows that one part frees a unique value which another part takes.
        if sets.len() > 1 && matches!(self.try_parts(&each, who).await?, UndoOutcome::Conflicts { .. }) {
            return Ok(vec![PlanPart::of(report)]);
        }
        let mut parts = Vec::new();
        for writes in &sets {
            let report = self.plans.report(writes, PlanMode::Strict, None, Instant::now() + TIMEOUT).await?;
            parts.push(PlanPart::of(&report));
        }
        Ok(parts)
    }
}

struct OperatorTrial<'a> {
    operator: &'a Operator,
    who: &'a str,
}

impl TrialUndo for OperatorTrial<'_> {
    type Error = UndoError;

    fn try_undo<'a>(&'a self, writes: &'a [CorrelationId]) -> TrialFuture<'a, UndoError> {
        Box::pin(async move {
            Ok(match self.operator.try_undo(writes, self.who).await? {
                UndoOutcome::Conflicts { conflicts, .. } => TriedUndo { conflicts, ..TriedUndo::default() },
                UndoOutcome::WouldUndo { not_restored, set_again, .. } => {
                    TriedUndo { not_restored, set_again, ..TriedUndo::default() }
                }
                UndoOutcome::Undone { .. } => TriedUndo::default(),
            })
        })
    }
}

/// The sets of writes that are connected by keys, in the order of their first occurrence.
fn connected(pairs: impl Iterator<Item = (CorrelationId, String)>) -> Vec<Vec<CorrelationId>> {
    let mut writes: Vec<CorrelationId> = Vec::new();
    let mut number_of = HashMap::<CorrelationId, usize>::new();
    let mut first_of = HashMap::<String, usize>::new();
    // For each write, the number of an earlier write of the same set, or its own number (union-find).
    let mut earlier: Vec<usize> = Vec::new();
    for (write, key) in pairs {
        let number = *number_of.entry(write).or_insert_with(|| {
            writes.push(write);
            earlier.push(earlier.len());
            earlier.len() - 1
        });
        let other = *first_of.entry(key).or_insert(number);
        let (one, other) = (first(&mut earlier, number), first(&mut earlier, other));
        if let Some(link) = earlier.get_mut(one.max(other)) {
            *link = one.min(other);
        }
    }
    let mut sets: Vec<Vec<CorrelationId>> = vec![Vec::new(); writes.len()];
    for (number, write) in writes.into_iter().enumerate() {
        if let Some(set) = sets.get_mut(first(&mut earlier, number)) {
            set.push(write);
        }
    }
    sets.retain(|writes| !writes.is_empty());
    sets
}

/// The first write of the set to which this one belongs. Shortens the path for later lookups.
fn first(earlier: &mut [usize], mut number: usize) -> usize {
    while let Some(link) = earlier.get(number).copied().filter(|link| *link != number) {
        let next = earlier.get(link).copied().unwrap_or(link);
        if let Some(shortened) = earlier.get_mut(number) {
            *shortened = next;
        }
        number = next;
    }
    number
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
