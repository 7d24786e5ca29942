//! Plans as the ledger has them: the answer of `countersign.undo_plan`, the writes and rows of a plan, and a stored one.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{Cell, CellMasks, ChangeKind, Conflict, CorrelationId, Effects, visible};

/// Which writes. What is `None` selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanScope {
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
}

/// The writes of a plan: which, and of which time. Both ends are exact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Which writes.
    #[serde(flatten)]
    pub scope: PlanScope,
    /// Completed from this time on.
    pub from: String,
    /// Completed before this time.
    pub to: String,
}

/// The treatment of writes that conflict (docs/internals/ledger.md).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

/// A write that was selected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectedWrite {
    /// Its receipt.
    pub correlation_id: CorrelationId,
    /// Its tool.
    pub tool_name: String,
    /// Its account.
    pub account_id: String,
    /// The person on whose behalf it was made.
    pub actor: Option<String>,
    /// The end of it.
    pub completed_at: String,
    /// False for a write that began inside the time and was completed after it, which is not undone.
    pub is_inside: bool,
}

/// The answer of `countersign.undo_plan`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "V: Deserialize<'de>"))]
pub struct PlanReport<V = Cell> {
    /// The treatment of writes that conflict.
    pub mode: PlanMode,
    /// The writes that would be undone, in the order of their commits.
    pub writes: Vec<CorrelationId>,
    /// Those of them that were not selected, and came later on the same rows.
    pub added: Vec<CorrelationId>,
    /// The writes that are left out: a conflict for each, without values, that says why.
    pub left_out: Vec<Conflict<V>>,
    /// The number of rows.
    pub rows: u64,
    /// The reasons why the plan cannot run.
    pub conflicts: Vec<Conflict<V>>,
    /// Whether there is a write to undo, and no conflict.
    pub is_ready: bool,
    /// The digest of the writes and rows.
    pub digest: String,
}

impl PlanReport {
    /// The report with the viewer's masks.
    #[must_use]
    pub fn shown(self, masks: &mut CellMasks<'_>) -> PlanReport<Value> {
        self.map(|conflict| conflict.shown(masks))
    }

    /// The report as the ledger stores it.
    pub(crate) fn stored(&self) -> PlanReport<Value> {
        self.clone().map(|conflict| conflict.stored())
    }

    fn map(self, mut conflict: impl FnMut(Conflict) -> Conflict<Value>) -> PlanReport<Value> {
        let Self { mode, writes, added, left_out, rows, conflicts, is_ready, digest } = self;
        let left_out = left_out.into_iter().map(&mut conflict).collect();
        let conflicts = conflicts.into_iter().map(&mut conflict).collect();
        PlanReport { mode, writes, added, left_out, rows, conflicts, is_ready, digest }
    }
}

/// The writes that are undone in one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanPart {
    /// The receipts.
    pub writes: Vec<CorrelationId>,
    /// The digest of the rows, in 64 hexadecimal digits.
    pub digest: String,
    /// The number of rows.
    pub rows: u64,
}

impl PlanPart {
    /// All writes of this report.
    #[must_use]
    pub fn of(report: &PlanReport) -> Self {
        Self { writes: report.writes.clone(), digest: report.digest.clone(), rows: report.rows }
    }
}

/// The consequences of undoing some writes.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What was asked for.
    pub selection: Selection,
    /// The selected writes.
    pub writes: Vec<SelectedWrite>,
    /// What undoing them would mean, with the conflicts of the trial.
    pub report: PlanReport,
}

impl Plan {
    /// Adds what a trial has found.
    pub fn refuse(&mut self, conflicts: Vec<Conflict>) {
        self.report.conflicts = conflicts;
        self.report.is_ready = false;
    }
}

/// A plan as it is stored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StoredPlan {
    /// Its name.
    pub plan_id: String,
    /// The digest of the plan that was shown.
    pub digest: String,
    /// The parts, each of which is undone in one transaction.
    pub parts: Vec<PlanPart>,
    /// What was asked for.
    pub selection: Selection,
    /// What undoing it would mean.
    pub report: PlanReport,
}

/// The rows that a plan puts back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlanRows {
    /// The first of them, as the effects of the undo: `before` is what is there now, `after` what the undo puts back.
    pub effects: Option<Effects>,
    /// All of them, by table and kind of change.
    pub summary: Vec<PlanSummary>,
}

/// Rows of a table that an undo changes in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanSummary {
    /// The table.
    pub table: String,
    /// What happens to them, seen from the undo.
    pub change: ChangeKind,
    /// The number of rows.
    pub rows: u64,
    /// Of updates: the columns that change, each with the number of rows in which it does.
    pub changed: std::collections::BTreeMap<String, u64>,
}

/// `shop.orders: 40 rows changed (note 3, status 40)`.
impl std::fmt::Display for PlanSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { table, change, rows, changed } = self;
        let plural = if *rows == 1 { "" } else { "s" };
        write!(f, "{}: {rows} row{plural} {}", visible(table), change.past())?;
        if changed.is_empty() {
            return Ok(());
        }
        let columns: Vec<_> = changed.iter().map(|(name, rows)| format!("{} {rows}", visible(name))).collect();
        write!(f, " ({})", columns.join(", "))
    }
}
