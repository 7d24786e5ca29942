//! `execute_sql` in mode `any`: one arbitrary statement, for administrators.

use ledger::{RowRetention, WriteExecutor, WriteFuture, WriteOutput, WriteRequest, WriteTx};
use serde::Serialize;
use types::{Failure, ReferencedObjects, Rollback, TOOL_VERSION, TableAccess, Tier};

use super::{ExecuteData, NAME, REST, RequestedSql, requested};
use crate::builtin::query_database::QueryData;
use crate::schema::to_json;
use crate::services::ExecuteSqlSettings;

pub(super) const DESCRIPTION: &str = "Execute any one SQL statement, and keep what it does. Use the other write tools where there \
    is one. meta.rollback says whether undo_mutation can take it back: changes of tracked tables can be. Use query_database to read. It runs in a transaction of \
    its own, so COMMIT, ROLLBACK, VACUUM and the like are refused. An identical call within 5 minutes is not executed \
    again but answered from the record: to run the same statement again, give a new idempotency_key. Use $1, $2, ... in \
    the statement and give the values in params.";

pub(super) const UNTRIED: &str =
    "The statement was planned and not tried: read it. Who approves it approves whatever it does.";

const IRREVERSIBLE: &str = "No command of this kind can be undone: only changes of rows are recorded.";

/// Executes any statement.
pub(super) struct AdhocSqlExecutor {
    keep: RowRetention,
    tier: Tier,
}

/// The expected effect of the statement, as far as PostgreSQL's plan shows it.
#[derive(Debug, Serialize)]
struct ForeseenData {
    /// The tables in the plan, and whether it writes to them; null for a command without a plan.
    tables: Option<Vec<TableData>>,
    /// PostgreSQL's estimate of the number of affected rows.
    estimated_rows: Option<u64>,
}

#[derive(Debug, Serialize)]
struct TableData {
    table: String,
    written: bool,
}

impl AdhocSqlExecutor {
    pub(super) fn new(settings: &ExecuteSqlSettings) -> Self {
        Self { keep: settings.retention(), tier: settings.tier }
    }
}

impl WriteExecutor for AdhocSqlExecutor {
    fn check(&self, request: &WriteRequest) -> Result<(), Failure> {
        requested(request).map(drop)
    }

    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let RequestedSql { sql, params } = requested(request)?;
            let answered = tx.run_adhoc(&sql, &params, self.keep).await?;
            let result = QueryData::new(answered.result, |_| REST);
            // The ledger determines whether the tables are tracked.
            let rollback = match answered.command_tag {
                Some(_) => Rollback { checked: None, ..Rollback::by_effects() },
                None => Rollback::irreversible(IRREVERSIBLE),
            };
            let data = ExecuteData { command_tag: answered.command_tag, result };
            Ok(WriteOutput::new(to_json(&data)?, answered.rows_affected, rollback))
        })
    }

    /// The preview only plans the statement: it is not approved yet, and a rollback does not revert all effects.
    /// Also, the result could contain data that the agent must not read.
    fn preview<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let RequestedSql { sql, params } = requested(request)?;
            let foreseen = tx.plan_adhoc(&sql, &params).await?;
            let tables = foreseen.referenced_objects.and_then(|referenced_objects| match referenced_objects {
                ReferencedObjects::Planned { tables, .. } => Some(tables),
                ReferencedObjects::Unplanned(_) | ReferencedObjects::Forbidden(_) => None,
            });
            let shown = |used: TableAccess| TableData {
                table: format!("{}.{}", used.schema, used.table),
                written: used.written,
            };
            let tables = tables.map(|tables| tables.into_iter().map(shown).collect());
            let rollback = Rollback { checked: None, ..Rollback::by_effects() };
            let data = ForeseenData { tables, estimated_rows: foreseen.estimated_rows };
            Ok(WriteOutput::new(to_json(&data)?, 0, rollback))
        })
    }

    fn preview_is_binding(&self) -> bool {
        false
    }

    fn definition(&self) -> String {
        format!("{NAME} {TOOL_VERSION} {}", self.tier.as_str())
    }

    fn tier(&self) -> Tier {
        self.tier
    }
}
