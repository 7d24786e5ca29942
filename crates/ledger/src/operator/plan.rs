//! The undo of many writes: selected, planned, tried, stored and shown; then run as it was shown, in one transaction, or in one for
//! each part of the plan that shares no rows with the others.

use std::collections::HashMap;

use contract::CorrelationId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{DEADLINE, Operator, UndoError, UndoOutcome, array};
use crate::fingerprint::sha256_hex;
use crate::records::rfc3339;

/// Which writes. What is `None` selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Of this account.
    pub account: Option<String>,
    /// On behalf of this person.
    pub actor: Option<String>,
    /// Of this session.
    pub session: Option<String>,
    /// By a client of this name.
    pub client: Option<String>,
    /// Of this tool.
    pub tool: Option<String>,
    /// That changed a row of this table: `schema.table`, as it is tracked.
    pub table: Option<String>,
    /// Completed from this time on: an age (`12h`, `7d`, `4w`), or whatever PostgreSQL reads as a `timestamptz`. The stored plan has
    /// the exact time.
    pub from: String,
    /// Completed before this time.
    pub to: String,
}

/// What becomes of writes that conflict (docs/ledger.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanMode {
    /// Any conflict, and nothing happens.
    Strict,
    /// Whole writes that conflict are left out.
    Skip,
    /// Recorded later writes on the same rows are undone as well.
    Cascade,
}

impl PlanMode {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Skip => "skip",
            Self::Cascade => "cascade",
        }
    }
}

/// What is undone in one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The receipts.
    pub writes: Vec<String>,
    /// Of the rows, in 64 hexadecimal digits.
    pub digest: String,
    /// How many rows.
    pub rows: u64,
}

/// A plan that was made and stored.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its name.
    pub plan_id: String,
    /// What is agreed to.
    pub digest: String,
    /// Both ends are exact.
    pub selection: Selection,
    /// The selected writes: `correlation_id`, `tool_name`, `account_id`, `actor`, `completed_at`, `is_inside` (false for those that
    /// began inside the time and committed outside of it, which are not undone).
    pub writes: Vec<Map<String, Value>>,
    /// As `countersign.undo_plan` has it, with the conflicts of the trial.
    pub report: Value,
    /// What is undone in one transaction each.
    pub parts: Vec<Part>,
}

/// A plan as it is stored.
#[derive(Debug, Clone)]
pub struct StoredPlan {
    /// Its name.
    pub plan_id: String,
    /// What was shown.
    pub digest: String,
    /// What is undone in one transaction each.
    pub parts: Vec<Part>,
    /// Whether there was no conflict.
    pub is_ready: bool,
}

/// What came of one part of a plan.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// It was undone before, by an earlier run.
    Before,
    /// What would be undone is no longer what was shown.
    Stale,
    /// It was tried.
    Done(UndoOutcome),
}

const TIMES_SQL: &str = concat!(
    "select ",
    rfc3339!("case when $1::text ~ '^[0-9]+[hdw]$' then clock_timestamp() - $1::interval else $1::timestamptz end"),
    " as from_time, ",
    rfc3339!("case when $2::text ~ '^[0-9]+[hdw]$' then clock_timestamp() - $2::interval else $2::timestamptz end"),
    " as to_time"
);
const SELECT_SQL: &str = concat!(
    "select s.correlation_id, s.tool_name, s.account_id, s.actor, ",
    rfc3339!("s.completed_at"),
    " as completed_at, s.is_inside \
     from countersign.selected_writes($1, $2, $3, $4, $5, $6, $7::timestamptz, $8::timestamptz) s"
);
const PLAN_SQL: &str = "select countersign.undo_plan($1::uuid[], $2)";
const STORE_SQL: &str = "select countersign.store_plan($1, $2, $3, $4, $5)";
const STORED_SQL: &str = "select p.plan_id, p.digest, p.parts, p.report -> 'is_ready' as is_ready from countersign.stored_plan p \
    where p.plan_id between $1::uuid and $2::uuid";
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
    ) -> Result<Plan, UndoError> {
        let selection = self.exact(selection).await?;
        let writes = self.selected(&selection).await?;
        let is_inside = |write: &&Map<String, Value>| write.get("is_inside") == Some(&Value::Bool(true));
        let inside = writes.iter().filter(is_inside).filter_map(|write| receipt(write.get("correlation_id")?));
        let mut report = self.report(&inside.collect::<Vec<_>>(), mode).await?;
        let chosen = receipts(report.get("writes"));
        if is_ready(&report)
            && let UndoOutcome::Conflicts { conflicts, .. } = self.try_undo(&chosen, who).await?
            && let Some(report) = report.as_object_mut()
        {
            report.insert("conflicts".to_owned(), conflicts.into());
            report.insert("is_ready".to_owned(), false.into());
        }
        let parts = self.parts(&chosen, &report, max_rows).await?;
        let digests: Vec<&str> = parts.iter().map(|part| part.digest.as_str()).collect();
        let digest = sha256_hex(&format!("countersign plan {}", digests.join(" ")));
        let params = [
            Some(json!(selection).to_string()),
            Some(json!(parts).to_string()),
            Some(report.to_string()),
            Some(digest.clone()),
            Some(who.to_owned()),
        ];
        let plan_id = self.value(STORE_SQL, &params).await?;
        Ok(Plan { plan_id, digest, selection, writes, report, parts })
    }

    /// The stored plans whose name begins like this.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn stored_plans(&self, prefix: &contract::IdPrefix) -> Result<Vec<StoredPlan>, UndoError> {
        let [low, high] = prefix.range();
        let rows = self.records.objects(STORED_SQL, &[Some(low), Some(high)]).await?;
        let text =
            |row: &Map<String, Value>, name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let plan = |row: Map<String, Value>| StoredPlan {
            plan_id: text(&row, "plan_id"),
            digest: text(&row, "digest"),
            parts: row.get("parts").and_then(|parts| serde_json::from_value(parts.clone()).ok()).unwrap_or_default(),
            is_ready: row.get("is_ready") == Some(&Value::Bool(true)),
        };
        Ok(rows.into_iter().map(plan).collect())
    }

    /// Undoes one part of a stored plan, if it is still what was shown. A part that is undone stays so: a second run goes on
    /// behind it.
    ///
    /// # Errors
    /// As [`Operator::undo`].
    pub async fn run_part(&self, plan: &StoredPlan, part: &Part, who: &str) -> Result<Progress, UndoError> {
        let writes: Vec<CorrelationId> = part.writes.iter().filter_map(|id| CorrelationId::parse(id)).collect();
        let reversed = self.value(REVERSED_SQL, &[Some(array(&writes))]).await?;
        if reversed == writes.len().to_string() {
            return Ok(Progress::Before);
        }
        let report = self.report(&writes, PlanMode::Strict).await?;
        // The undo itself compares the rows alone, and would pass over a change that others have made and taken back.
        if !is_ready(&report) {
            let conflicts = report.get("conflicts").and_then(Value::as_array).cloned().unwrap_or_default();
            return Ok(Progress::Done(UndoOutcome::Conflicts { correlation_id: None, conflicts, rows: part.rows }));
        }
        if report.get("digest").and_then(Value::as_str) != Some(&part.digest) {
            return Ok(Progress::Stale);
        }
        let arguments = json!({"plan_id": plan.plan_id, "digest": plan.digest});
        self.undo_all(&writes, who, "undo_run", &arguments, Some(&part.digest)).await.map(Progress::Done)
    }

    async fn exact(&self, selection: &Selection) -> Result<Selection, UndoError> {
        let params = [Some(selection.from.clone()), Some(selection.to.clone())];
        let row = self.records.objects(TIMES_SQL, &params).await?.into_iter().next().unwrap_or_default();
        let time = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Selection { from: time("from_time"), to: time("to_time"), ..selection.clone() })
    }

    async fn selected(&self, selection: &Selection) -> Result<Vec<Map<String, Value>>, UndoError> {
        let Selection { account, actor, session, client, tool, table, from, to } = selection.clone();
        let params = [account, actor, session, client, tool, table, Some(from), Some(to)];
        Ok(self.records.objects(SELECT_SQL, &params).await?)
    }

    async fn report(&self, writes: &[CorrelationId], mode: PlanMode) -> Result<Value, UndoError> {
        let params = [Some(array(writes)), Some(mode.as_str().to_owned())];
        let text = self.value(PLAN_SQL, &params).await?;
        serde_json::from_str(&text).map_err(|error| UndoError::Failed(format!("countersign.undo_plan: {error}")))
    }

    /// One part, or where it has too many rows one for each set of writes that share rows, the newest first: a row that refers to
    /// another one was made later.
    async fn parts(&self, chosen: &[CorrelationId], report: &Value, max_rows: u64) -> Result<Vec<Part>, UndoError> {
        let rows = report.get("rows").and_then(Value::as_u64).unwrap_or_default();
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        if rows <= max_rows {
            return Ok(vec![part(chosen, report)]);
        }
        let answer = self.writer.ask(KEYS_SQL, &[Some(array(chosen))], Instant::now() + DEADLINE).await?;
        let pairs = answer.rows.into_iter().filter_map(|row| {
            let [write, key] = <[Option<String>; 2]>::try_from(row).ok()?;
            Some((CorrelationId::parse(&write?)?, key?))
        });
        let mut parts = Vec::new();
        for writes in connected(pairs) {
            let report = self.report(&writes, PlanMode::Strict).await?;
            parts.push(part(&writes, &report));
        }
        Ok(parts)
    }

    async fn value(&self, sql: &str, params: &[Option<String>]) -> Result<String, UndoError> {
        let answer = self.writer.ask(sql, params, Instant::now() + DEADLINE).await?;
        Ok(answer.rows.into_iter().flatten().flatten().next().unwrap_or_default())
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

fn part(writes: &[CorrelationId], report: &Value) -> Part {
    Part {
        writes: writes.iter().map(ToString::to_string).collect(),
        digest: report.get("digest").and_then(Value::as_str).unwrap_or_default().to_owned(),
        rows: report.get("rows").and_then(Value::as_u64).unwrap_or_default(),
    }
}

fn is_ready(report: &Value) -> bool {
    report.get("is_ready") == Some(&Value::Bool(true))
}

fn receipt(value: &Value) -> Option<CorrelationId> {
    value.as_str().and_then(CorrelationId::parse)
}

fn receipts(value: Option<&Value>) -> Vec<CorrelationId> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(receipt).collect()
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
