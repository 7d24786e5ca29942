//! Plans as the ledger returns and stores them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{Cell, CellMasks, ChangeKind, Conflict, CorrelationId, Effects};

use crate::evidence::effects;
use crate::undo::NotRestored;

/// Selects the writes of a plan. A field that is `None` matches every write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanScope {
    pub account: Option<String>,
    /// The person or agent on whose behalf they were made.
    pub actor: Option<String>,
    pub session: Option<String>,
    pub client: Option<String>,
    pub tool: Option<String>,
    /// A table of which the writes changed a row, as `schema.table`.
    pub table: Option<String>,
}

/// The writes of a plan: their scope and the exact range of time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Selects the writes.
    #[serde(flatten)]
    pub scope: PlanScope,
    /// Selects writes that were completed at or after this time.
    pub from: String,
    /// Selects writes that were completed before this time.
    pub to: String,
}

types::text_enum! {
    /// How to treat writes that conflict (docs/internals/ledger.md).
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum PlanMode {
        /// If any write conflicts, nothing is undone.
        #[default]
        Strict = "strict",
        /// Writes that conflict are left out as a whole.
        Skip = "skip",
        /// Later recorded writes on the same rows are undone as well.
        Cascade = "cascade",
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelectedWrite {
    pub correlation_id: CorrelationId,
    pub tool_name: String,
    pub account_id: String,
    /// The person or agent on whose behalf the write was made.
    pub actor: Option<String>,
    pub completed_at: String,
    /// False for a write that began within the range of time but ended after it. It is not undone.
    pub is_inside: bool,
    /// The selected writes that were undone and are in force again by this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub makes_again: Option<Vec<CorrelationId>>,
    /// Why a plan does not undo it, which is in the report.
    #[serde(skip_serializing)]
    pub left_out: Option<Conflict>,
}

/// The answer of `countersign.undo_plan`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "V: Deserialize<'de>"))]
pub struct PlanReport<V = Cell> {
    /// How writes that conflict are treated.
    pub mode: PlanMode,
    /// The writes that would be undone, in the order of their commits.
    pub writes: Vec<CorrelationId>,
    /// The writes among them that were not selected but changed the same rows later.
    pub added: Vec<CorrelationId>,
    /// The writes that are left out, each as a conflict without values that says why.
    pub left_out: Vec<Conflict<V>>,
    /// The number of rows that would be restored.
    pub rows: u64,
    /// The reasons why the plan cannot run.
    pub conflicts: Vec<Conflict<V>>,
    /// Whether there are writes to undo and no conflicts.
    pub is_ready: bool,
    /// The digest over the writes and the rows.
    pub digest: String,
    /// The tables whose rows stay, as the trial has found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_restored: Vec<NotRestored>,
    /// The columns that triggers set again, by table, as the trial has found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set_again: BTreeMap<String, Vec<String>>,
}

impl PlanReport {
    /// The report with the viewer's masks.
    #[must_use]
    pub fn shown(self, masks: &mut CellMasks<'_>) -> PlanReport<Value> {
        self.map(|conflict| conflict.shown(masks))
    }

    /// The report with unmasked values, for the ledger to store.
    pub(crate) fn stored(&self) -> PlanReport<Value> {
        self.clone().map(|conflict| conflict.stored())
    }

    fn map(self, mut conflict: impl FnMut(Conflict) -> Conflict<Value>) -> PlanReport<Value> {
        let Self { mode, writes, added, left_out, rows, conflicts, is_ready, digest, not_restored, set_again } = self;
        let left_out = left_out.into_iter().map(&mut conflict).collect();
        let conflicts = conflicts.into_iter().map(&mut conflict).collect();
        PlanReport { mode, writes, added, left_out, rows, conflicts, is_ready, digest, not_restored, set_again }
    }
}

/// The writes that one transaction undoes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanPart {
    pub writes: Vec<CorrelationId>,
    /// The digest over the rows: 64 hexadecimal digits.
    pub digest: String,
    pub rows: u64,
}

impl PlanPart {
    /// A part with all writes of this report.
    #[must_use]
    pub fn of(report: &PlanReport) -> Self {
        Self { writes: report.writes.clone(), digest: report.digest.clone(), rows: report.rows }
    }
}

/// The consequences of undoing selected writes.
#[derive(Debug, Clone)]
pub struct Plan {
    pub selection: Selection,
    pub writes: Vec<SelectedWrite>,
    /// The consequences, including the conflicts of the trial.
    pub report: PlanReport,
}

impl Plan {
    /// Sets the conflicts that a trial has found.
    pub fn refuse(&mut self, conflicts: Vec<Conflict>) {
        self.report.conflicts = conflicts;
        self.report.is_ready = false;
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StoredPlan {
    pub plan_id: String,
    pub digest: String,
    pub parts: Vec<PlanPart>,
    pub selection: Selection,
    pub report: PlanReport,
}

/// The rows that a plan restores.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlanRows {
    /// The first rows, as the effects of the undo: `before` is the current row, `after` the restored one.
    pub effects: Option<Effects>,
    /// The numbers of all rows, by table and kind of change.
    pub summary: Vec<PlanSummary>,
}

/// Rows of a table that an undo changes in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanSummary {
    pub table: String,
    pub change: ChangeKind,
    pub rows: u64,
    /// For updates, the columns that change, with the number of rows for each.
    pub changed: BTreeMap<String, u64>,
}

impl PlanRows {
    /// The rows with long values cut.
    #[must_use]
    pub fn shortened(self) -> Self {
        Self { effects: self.effects.map(effects::shortened), ..self }
    }
}
