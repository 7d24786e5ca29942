//! `execute_sql` in mode `rows`: one INSERT, UPDATE, DELETE or MERGE of tracked tables. It is tried and rolled back
//! before somebody approves it, as the writes of manifests are.

use ledger::{
    ModificationLimits, ModificationResult, RowRetention, WriteExecutor, WriteFuture, WriteOutput, WriteRequest,
    WriteTx,
};
use serde_json::json;
use types::{Failure, Rollback, TOOL_VERSION, Tier};

use super::{ExecuteData, NAME, REST, RequestedSql, requested};
use crate::builtin::query_database::QueryData;
use crate::schema::to_json;
use crate::services::ExecuteSqlSettings;

/// Executes a statement that changes rows of tracked tables.
pub(super) struct ModifyingSqlExecutor {
    keep: RowRetention,
    limits: ModificationLimits,
    tier: Tier,
}

impl ModifyingSqlExecutor {
    pub(super) fn new(settings: &ExecuteSqlSettings, limits: ModificationLimits) -> Self {
        Self { keep: settings.retention(), limits, tier: settings.tier }
    }
}

pub(super) fn description(limits: &ModificationLimits) -> String {
    format!(
        "Change rows with one INSERT, UPDATE, DELETE or MERGE, at most {} rows with those that cascades and triggers change. \
         Use the other write tools where there is one, and query_database to read. Qualify tables with their schema. Use $1, \
         $2, ... and give the values in params. RETURNING returns rows. Its tables must be tracked; meta.rollback says how \
         undo_mutation takes it back. An identical call within 5 minutes is answered from the record: to run the same statement \
         again, give a new idempotency_key.",
        limits.max_rows
    )
}

impl WriteExecutor for ModifyingSqlExecutor {
    fn check(&self, request: &WriteRequest) -> Result<(), Failure> {
        requested(request).map(drop)
    }

    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let RequestedSql { sql, params } = requested(request)?;
            let modified = tx.modify_rows(&sql, &params, self.keep, &self.limits).await;
            let ModificationResult { returned, command_tag, rows_affected, unfiltered } = modified?;
            let data = ExecuteData { command_tag: Some(command_tag), result: QueryData::new(returned, |_| REST) };
            let rollback = Rollback { checked: None, ..Rollback::by_effects() };
            Ok(WriteOutput { unfiltered, ..WriteOutput::new(to_json(&data)?, rows_affected, rollback) })
        })
    }

    fn definition(&self) -> String {
        json!([NAME, TOOL_VERSION, "rows", self.tier, self.limits.max_rows, self.limits.tables]).to_string()
    }

    fn tier(&self) -> Tier {
        self.tier
    }
}
