//! The undo of many writes: they are selected, compared with what is there now, and stored as a plan. What runs is what was stored.

use pg::WriterPool;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use types::{AccountId, CorrelationId, IdPrefix};

use crate::fingerprint::sha256_hex;
use crate::records::Records;
use crate::values::{array, rfc3339};

/// Which writes. What is `None` selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Writes of this account.
    pub account: Option<String>,
    /// On behalf of this person.
    pub actor: Option<String>,
    /// Writes of this session.
    pub session: Option<String>,
    /// Writes by a client of this name.
    pub client: Option<String>,
    /// Writes of this tool.
    pub tool: Option<String>,
    /// Writes that changed a row of this table: `schema.table`, as it is tracked.
    pub table: Option<String>,
    /// Completed from this time on: an age (`12h`, `7d`, `4w`), or whatever PostgreSQL reads as a `timestamptz`. The stored plan has
    /// the exact time.
    pub from: String,
    /// Completed before this time.
    pub to: String,
}

/// The treatment of writes that conflict (docs/internals/ledger.md).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PlanMode {
    /// Any conflict, and nothing happens.
    #[default]
    Strict,
    /// Whole writes that conflict are left out.
    Skip,
    /// Recorded later writes on the same rows are undone as well.
    Cascade,
}

impl PlanMode {
    /// The word in the ledger and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Skip => "skip",
            Self::Cascade => "cascade",
        }
    }
}

/// The writes that are undone in one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanPart {
    /// The receipts.
    pub writes: Vec<String>,
    /// The digest of the rows, in 64 hexadecimal digits.
    pub digest: String,
    /// The number of rows.
    pub rows: u64,
}

impl PlanPart {
    /// These writes, of which `countersign.undo_plan` has this report.
    #[must_use]
    pub fn of(writes: &[CorrelationId], report: &Value) -> Self {
        Self {
            writes: writes.iter().map(ToString::to_string).collect(),
            digest: report.get("digest").and_then(Value::as_str).unwrap_or_default().to_owned(),
            rows: report.get("rows").and_then(Value::as_u64).unwrap_or_default(),
        }
    }
}

/// The consequences of undoing some writes.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Both ends are exact.
    pub selection: Selection,
    /// The selected writes: `correlation_id`, `tool_name`, `account_id`, `actor`, `completed_at`, `is_inside` (false for those that
    /// began inside the time and committed outside of it, which are not undone).
    pub writes: Vec<Map<String, Value>>,
    /// As `countersign.undo_plan` has it, with the conflicts of the trial.
    pub report: Value,
}

impl Plan {
    /// The receipts of what would be undone.
    #[must_use]
    pub fn chosen(&self) -> Vec<CorrelationId> {
        let receipts = self.report.get("writes").and_then(Value::as_array);
        receipts.into_iter().flatten().filter_map(receipt).collect()
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.report.get("rows").and_then(Value::as_u64).unwrap_or_default()
    }

    /// The reason why it cannot run.
    #[must_use]
    pub fn conflicts(&self) -> &[Value] {
        self.report.get("conflicts").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Whether there is a write to undo, and no conflict.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        is_ready(&self.report)
    }

    /// Adds what a trial has found.
    pub fn refuse(&mut self, conflicts: Vec<Value>) {
        if let Some(report) = self.report.as_object_mut() {
            report.insert("conflicts".to_owned(), conflicts.into());
            report.insert("is_ready".to_owned(), false.into());
        }
    }
}

/// A plan as it is stored.
#[derive(Debug, Clone)]
pub struct StoredPlan {
    /// Its name.
    pub plan_id: String,
    /// The digest of the plan that was shown.
    pub digest: String,
    /// The parts, each of which is undone in one transaction.
    pub parts: Vec<PlanPart>,
    /// Whether there was no conflict.
    pub is_ready: bool,
    /// The selection, as JSON.
    pub selection: Value,
    /// As `countersign.undo_plan` made it.
    pub report: Value,
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
const PLAN_SQL: &str = "select countersign.undo_plan($1::uuid[], $2, $3)";
const STORE_SQL: &str = "select countersign.store_plan($1, $2, $3, $4, $5, $6)";
const STORED_SQL: &str = "select p.plan_id, p.digest, p.parts, p.selection, p.report from countersign.stored_plan p \
    where p.plan_id between $1::uuid and $2::uuid and p.account_id is not distinct from $3";

/// Makes and keeps plans: of people, and of accounts over their own writes.
#[derive(Debug, Clone)]
pub struct Plans {
    writer: WriterPool,
    records: Records,
}

impl Plans {
    pub(crate) const fn new(writer: WriterPool, records: Records) -> Self {
        Self { writer, records }
    }

    /// The consequences of undoing the selected writes. With an account in the selection, `cascade` adds no writes of
    /// others.
    ///
    /// # Errors
    /// An error of the database: SQLSTATE 22007 or 22008 if it cannot parse a time.
    pub async fn compare(&self, selection: &Selection, mode: PlanMode, deadline: Instant) -> Result<Plan, pg::Error> {
        let selection = self.exact(selection).await?;
        let writes = self.selected(&selection).await?;
        let is_inside = |write: &&Map<String, Value>| write.get("is_inside") == Some(&Value::Bool(true));
        let inside = writes.iter().filter(is_inside).filter_map(|write| receipt(write.get("correlation_id")?));
        let report = self.report(&inside.collect::<Vec<_>>(), mode, selection.account.as_deref(), deadline).await?;
        Ok(Plan { selection, writes, report })
    }

    /// Keeps a plan, for a person or for an account.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn store(
        &self,
        account: Option<&AccountId>,
        plan: &Plan,
        parts: Vec<PlanPart>,
        who: &str,
        deadline: Instant,
    ) -> Result<StoredPlan, pg::Error> {
        let digest = digest_of(&parts);
        let params = [
            account.map(|account| account.as_str().to_owned()),
            Some(json!(plan.selection).to_string()),
            Some(json!(parts).to_string()),
            Some(plan.report.to_string()),
            Some(digest.clone()),
            Some(who.to_owned()),
        ];
        let plan_id = self.value(STORE_SQL, &params, deadline).await?;
        Ok(StoredPlan {
            plan_id,
            digest,
            parts,
            is_ready: plan.is_ready(),
            selection: json!(plan.selection),
            report: plan.report.clone(),
        })
    }

    /// The plan of this id that the account has stored.
    ///
    /// # Errors
    /// The error of the query.
    pub async fn get(&self, account: &AccountId, id: CorrelationId) -> Result<Option<StoredPlan>, pg::Error> {
        Ok(self.stored([id.to_string(), id.to_string()], Some(account)).await?.into_iter().next())
    }

    /// Plans of operators whose id begins with `prefix`.
    ///
    /// # Errors
    /// The error of the query.
    pub async fn find(&self, prefix: &IdPrefix) -> Result<Vec<StoredPlan>, pg::Error> {
        self.stored(prefix.range(), None).await
    }

    /// Plans of `account` (of operators for `None`) with an id in this range.
    async fn stored(
        &self,
        [low, high]: [String; 2],
        account: Option<&AccountId>,
    ) -> Result<Vec<StoredPlan>, pg::Error> {
        let params = [Some(low), Some(high), account.map(|account| account.as_str().to_owned())];
        let rows = self.records.objects(STORED_SQL, &params).await?;
        let text =
            |row: &Map<String, Value>, name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let plan = |mut row: Map<String, Value>| {
            let report = row.remove("report").unwrap_or_default();
            StoredPlan {
                plan_id: text(&row, "plan_id"),
                digest: text(&row, "digest"),
                parts: row
                    .get("parts")
                    .and_then(|parts| serde_json::from_value(parts.clone()).ok())
                    .unwrap_or_default(),
                is_ready: is_ready(&report),
                selection: row.remove("selection").unwrap_or_default(),
                report,
            }
        };
        Ok(rows.into_iter().map(plan).collect())
    }

    /// As `countersign.undo_plan` has it.
    pub(crate) async fn report(
        &self,
        writes: &[CorrelationId],
        mode: PlanMode,
        account: Option<&str>,
        deadline: Instant,
    ) -> Result<Value, pg::Error> {
        let params = [Some(array(writes)), Some(mode.as_str().to_owned()), account.map(str::to_owned)];
        let text = self.value(PLAN_SQL, &params, deadline).await?;
        serde_json::from_str(&text).map_err(|error| pg::Error::Lost(std::io::Error::other(error)))
    }

    async fn exact(&self, selection: &Selection) -> Result<Selection, pg::Error> {
        let params = [Some(selection.from.clone()), Some(selection.to.clone())];
        let row = self.records.objects(TIMES_SQL, &params).await?.into_iter().next().unwrap_or_default();
        let time = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Selection { from: time("from_time"), to: time("to_time"), ..selection.clone() })
    }

    async fn selected(&self, selection: &Selection) -> Result<Vec<Map<String, Value>>, pg::Error> {
        let Selection { account, actor, session, client, tool, table, from, to } = selection.clone();
        let params = [account, actor, session, client, tool, table, Some(from), Some(to)];
        self.records.objects(SELECT_SQL, &params).await
    }

    pub(crate) async fn value(
        &self,
        sql: &str,
        params: &[Option<String>],
        deadline: Instant,
    ) -> Result<String, pg::Error> {
        let answer = self.writer.run_one(sql, params, deadline).await?;
        Ok(answer.rows.into_iter().flatten().flatten().next().unwrap_or_default())
    }
}

/// The digest that a person confirms before these parts run.
#[must_use]
pub fn digest_of(parts: &[PlanPart]) -> String {
    let digests: Vec<&str> = parts.iter().map(|part| part.digest.as_str()).collect();
    sha256_hex(&format!("countersign plan {}", digests.join(" ")))
}

pub(crate) fn is_ready(report: &Value) -> bool {
    report.get("is_ready") == Some(&Value::Bool(true))
}

fn receipt(value: &Value) -> Option<CorrelationId> {
    value.as_str().and_then(CorrelationId::parse)
}
