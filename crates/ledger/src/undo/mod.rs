//! The undo of writes within a transaction of the gate, for the executors of undo tools.

pub mod operator;
pub mod plans;

use std::collections::BTreeMap;
use std::fmt;

use pg::PipelineStatement;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{Conflict, CorrelationId, ErrorCode, Failure, visible};

use self::plans::{PlanPart, PlanReport};
use crate::evidence::conflicts::undo_failure;
use crate::evidence::values::array;
use crate::write::caller_part::Rights;
use crate::write::executor::WriteRequest;
use crate::write::failures::ExecutorError;
use crate::write::write_tx::WriteTx;

const UNDO_SQL: &str = "select countersign.undo($1::pg_catalog.uuid[]) as outcome";
const PLAN_SQL: &str = "select countersign.undo_plan($1::pg_catalog.uuid[], 'strict', $2) as outcome";
const TRIAL_SQL: &str = "select countersign.trial_conflicts($1::pg_catalog.uuid[]) as outcome";
const DEFERRED_SQL: &str = "set constraints all immediate";

/// The answer of the SQL function `countersign.undo`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct UndoReport {
    #[serde(default)]
    pub(crate) rows: u64,
    #[serde(default)]
    pub(crate) conflicts: Vec<Conflict>,
    #[serde(default)]
    pub(crate) set_again: Option<SetAgain>,
    #[serde(default)]
    pub(crate) not_restored: Vec<NotRestored>,
}

/// A table that triggers fill and that is not declared to be a log: an undo leaves what they added, and they add more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRestored {
    pub table: String,
    /// The number of rows that the write added and that stay.
    pub left: u64,
    /// The number of rows that the undo adds.
    pub added: u64,
}

impl fmt::Display for NotRestored {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, left, added } = self;
        let rows = if *left == 1 { "row" } else { "rows" };
        write!(
            out,
            "{left} {rows} of {}, to which triggers add: the undo leaves what is there, and adds {added} (if it is a log, \
             countersign track --is-log says so)",
            visible(table)
        )
    }
}

/// The rows that an undo restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredRows {
    /// The number of rows.
    pub rows: u64,
    /// What triggers changed in these rows during the undo; `None` if the rows are exactly as they were before the
    /// write.
    pub set_again: Option<SetAgain>,
    /// The tables whose rows stay.
    pub not_restored: Vec<NotRestored>,
}

/// Columns that triggers set while rows were restored, and that no statement of the write had set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAgain {
    /// The number of rows with such columns.
    pub rows: u64,
    /// The columns by table.
    pub columns: BTreeMap<String, Vec<String>>,
    /// The first of these rows, with values in PostgreSQL's text format.
    pub first: Vec<RowSetAgain>,
}

/// A row of [`SetAgain`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowSetAgain {
    pub table: String,
    pub key: Value,
    /// The values that the triggers set.
    #[serde(default)]
    pub columns: BTreeMap<String, Option<String>>,
}

/// Restores every row that the writes changed, or none.
///
/// # Errors
/// [`ErrorCode::UndoConflict`] or [`ErrorCode::AlreadyReversed`], or an error of the database.
pub async fn undo(tx: &mut WriteTx<'_>, writes: &[CorrelationId]) -> Result<RestoredRows, ExecutorError> {
    let undo: UndoReport = ask(tx, UNDO_SQL, &[Some(array(writes))]).await?;
    match undo.conflicts.is_empty() {
        true => Ok(RestoredRows { rows: undo.rows, set_again: undo.set_again, not_restored: undo.not_restored }),
        false => Err(undo_failure(undo.conflicts).into()),
    }
}

/// Undoes the writes of a plan of the request's account, if it would still change the rows that were shown under this
/// digest. The plan is made again and compared, because the undo itself only compares rows: it would not notice a
/// change that others made and took back.
///
/// # Errors
/// As [`undo`]; also [`ErrorCode::UndoConflict`] if the digest differs.
pub async fn undo_plan(
    tx: &mut WriteTx<'_>,
    request: &WriteRequest,
    writes: &[CorrelationId],
    digest: &str,
) -> Result<RestoredRows, ExecutorError> {
    let account = request.principal.account_id.as_str().to_owned();
    let report: PlanReport = ask(tx, PLAN_SQL, &[Some(array(writes)), Some(account)]).await?;
    if !report.is_ready {
        return Err(undo_failure(report.conflicts).into());
    }
    if plans::digest_of(&[PlanPart::of(&report)]) != digest {
        let message = "the plan is stale, since other rows would be changed now; nothing was changed";
        return Err(Failure::new(ErrorCode::UndoConflict, message).hint("Make another plan with undo_plan.").into());
    }
    undo(tx, writes).await
}

/// Checks an undo that will be rolled back for what the ledger would refuse at commit, such as a row that a trigger
/// has changed again.
pub async fn refuse_trial(tx: &mut WriteTx<'_>, writes: &[CorrelationId]) -> Result<(), ExecutorError> {
    tx.run(&[PipelineStatement::without_params(DEFERRED_SQL)]).await?;
    let conflicts: Vec<Conflict> = ask(tx, TRIAL_SQL, &[Some(array(writes))]).await?;
    if conflicts.is_empty() { Ok(()) } else { Err(undo_failure(conflicts).into()) }
}

/// Calls a function of the ledger, which restores rows as the role of the caller, and parses the column `outcome` of its answer.
async fn ask<T: DeserializeOwned>(
    tx: &mut WriteTx<'_>,
    sql: &str,
    params: &[Option<String>],
) -> Result<T, ExecutorError> {
    let rows = tx.run_with(Rights::Login, &[PipelineStatement::new(sql, params)]).await?;
    let outcome = rows.into_iter().next().and_then(|rows| rows.rows.into_iter().next()?.remove("outcome"));
    serde_json::from_value(outcome.unwrap_or_default())
        .map_err(|error| Failure::new(ErrorCode::InternalError, format!("{sql}: {error}")).into())
}
