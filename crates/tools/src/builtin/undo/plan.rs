//! `undo_plan`: previews the undo of many writes of the account. `undo_run` executes the plan.

use std::collections::HashSet;
use std::sync::Arc;

use ledger::plans::{
    Plan, PlanError, PlanMode, PlanPart, PlanRequest, PlanScope, PlanSummary, Plans, SelectedWrite, SelectionError,
    TrialFuture, TrialUndo, TriedUndo, digest_of, is_of_the_rows,
};
use ledger::undo::NotRestored;
use ledger::{Gate, Records, WriteExecutor, WriteRequest};
use manifest::Access;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use types::{CellMasks, Conflict, ConflictKind, CorrelationId, Effects, ErrorCode, Failure, Moment};

use super::UndoTiers;
use crate::builtin::Builtin;
use crate::row_masking::answer;
use crate::schema::{AnyJson, builtin_info};
use crate::services::Services;
use crate::tool::{Call, Tool, ToolResult};
use catalog::ledger_failure;

pub(in crate::builtin) const NAME: &str = "undo_plan";

const DESCRIPTION: &str = "Plan to take back many writes of this account: those that were completed in a time, of one actor, session, \
    client, tool or table if given. The plan is tried and rolled back; nothing is changed. If is_ready is true, undo_run with plan_id and \
    digest carries it out, all rows or none. If it is false, conflicts says why: mode skip leaves out the writes that conflict, mode \
    cascade also takes back later writes of this account on the same rows. A plan is kept for a day.";

const NEVER_UNDONE: &str = "Sequences, NOTIFY, what left the database, and tables that are not tracked are not undone.";

/// The maximum number of rows, and of writes, that one call undoes.
const MAX_ROWS: u64 = 10_000;

/// The maximum number of writes of each kind in the answer.
const MAX_LISTED: usize = 100;

/// The maximum number of rows in the answer, which also has the total number.
const MAX_SHOWN: u32 = 20;

const MAX_CONFLICTS: usize = 20;

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The beginning of the time: 30m, 12h or 7d ago, yesterday, 14:00, or a time such as 2026-11-22T09:00:00Z; UTC without a zone.
    from: String,
    /// The end of the time, which is outside of it; in the same forms. Now, if it is not given.
    #[schemars(with = "String", default)]
    to: Option<String>,
    /// Only writes on behalf of this actor.
    #[schemars(with = "String", default)]
    actor: Option<String>,
    /// Only writes of this session.
    #[schemars(with = "String", default)]
    session_id: Option<String>,
    /// Only writes of clients with this name.
    #[schemars(with = "String", default)]
    client_name: Option<String>,
    /// Only writes of this tool.
    #[schemars(with = "String", default)]
    tool: Option<String>,
    /// Only writes that changed a row of this table: schema.table.
    #[schemars(with = "String", default)]
    table: Option<String>,
    /// If a write conflicts: strict (nothing is undone), skip (it is left out), cascade (later writes on its rows are undone too).
    #[serde(default)]
    #[schemars(with = "Mode", default)]
    mode: Mode,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Strict,
    Skip,
    Cascade,
}

types::same_variants! { Mode => PlanMode { Strict, Skip, Cascade } }

/// `data` of the answer.
#[derive(Debug, Serialize, JsonSchema)]
struct UndoPlanData {
    /// Whether there is something to take back, and nothing in the way.
    is_ready: bool,
    /// For undo_run; only of a plan that is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    plan_id: Option<String>,
    /// What undo_run has to be called with, so that it does what is shown here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    digest: Option<String>,
    /// The beginning of the time.
    from: String,
    /// The end of the time.
    to: String,
    /// How many writes would be taken back.
    write_count: usize,
    /// How many rows would be put back.
    row_count: u64,
    /// The writes of the time that would be taken back, in the order of their commits; at most 100.
    writes: Vec<Value>,
    /// Later writes that would be taken back as well; at most 100.
    added: Vec<Value>,
    /// Writes that are left out, one object for each that says why; at most 100.
    #[schemars(with = "Vec<Value>")]
    left_out: Vec<Conflict<Value>>,
    /// Writes that began in the time and were completed after it: they are not taken back; at most 100.
    outside: Vec<Value>,
    /// The first 20 rows of a plan that is ready: before is what is there now, after what undo_run would put back.
    #[schemars(with = "AnyJson")]
    effects: Option<Effects<Value>>,
    /// All rows of a plan that is ready, by table and kind of change, with the columns that change.
    #[schemars(with = "Vec<AnyJson>")]
    summary: Vec<PlanSummary>,
    /// How many conflicts there are.
    conflict_count: usize,
    /// Why the plan cannot run, one object for each row; at most 20.
    #[schemars(with = "Vec<Value>")]
    conflicts: Vec<Conflict<Value>>,
    /// Tables that triggers fill: how many of the rows that were added there stay (left), and how many more are added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "AnyJson")]
    not_restored: Vec<NotRestored>,
    /// What no plan takes back.
    not_undone: &'static str,
}

struct UndoPlan {
    gate: Gate,
    records: Records,
    plans: Plans,
    executor: Arc<dyn WriteExecutor>,
    tiers: UndoTiers,
}

pub(in crate::builtin) fn tool(
    services: &Services,
    tiers: UndoTiers,
    executor: Arc<dyn WriteExecutor>,
) -> Box<dyn Tool> {
    let info =
        builtin_info::<Arguments, UndoPlanData>(NAME, "Plan the undo of many writes", DESCRIPTION, Access::Admin);
    let ledger = &services.ledger;
    let (gate, records, plans) = (ledger.gate(), ledger.records(), ledger.plans());
    let tool = UndoPlan { gate, records, plans, executor, tiers };
    Builtin::boxed(info, tool, |tool, given, call| Box::pin(tool.answer(given, call)))
}

impl UndoPlan {
    async fn answer(&self, given: Arguments, call: Call) -> ToolResult {
        let mut masks = CellMasks::new(call.masks.as_deref());
        let data = self.plan(&call, given, &mut masks).await?;
        answer(&data, &masks.redaction())
    }

    async fn plan(
        &self,
        call: &Call,
        arguments: Arguments,
        masks: &mut CellMasks<'_>,
    ) -> Result<UndoPlanData, Failure> {
        let account = &call.principal.account_id;
        let scope = PlanScope {
            account: Some(account.as_str().to_owned()),
            actor: arguments.actor,
            session: arguments.session_id,
            client: arguments.client_name,
            tool: arguments.tool,
            table: arguments.table,
        };
        let request = PlanRequest {
            scope,
            from: time("from", &arguments.from)?,
            to: arguments.to.as_deref().map_or(Ok(Moment::Now), |to| time("to", to))?,
            mode: arguments.mode.into(),
        };
        let plans = self.plans.for_caller(&call.principal.context);
        let compared = plans.compare(Some(account), &request, call.deadline).await;
        let mut plan = compared.map_err(|error| refused(&error))?;
        refuse_too_many(&plan)?;
        if !plan.report.writes.is_empty() {
            self.tiers.strictest(call, &self.records, NAME, &plan.report.writes).await?;
        }
        let trial = CallTrial { tool: self, plans: &plans, call };
        let tried = plans.try_plan(&mut plan, Some(account), &trial, call.deadline).await;
        tried.map_err(CallError::into_failure)?;
        if !plan.report.is_ready {
            return Ok(shown(plan, masks));
        }
        let who = call.principal.actor.as_deref().unwrap_or(account.as_str());
        let parts = vec![PlanPart::of(&plan.report)];
        let stored = self.plans.store(Some(account), &plan, parts, who, call.deadline).await;
        let stored = stored.map_err(|error| ledger_failure(&error))?;
        let rows = self.plans.rows_for(&call.principal, &plan.report, MAX_SHOWN, call.deadline).await;
        let rows = rows.map_err(|error| ledger_failure(&error))?.shortened();
        Ok(UndoPlanData {
            plan_id: Some(stored.plan_id),
            digest: Some(stored.digest),
            effects: rows.effects.map(|effects| effects.shown(masks)),
            summary: rows.summary,
            ..shown(plan, masks)
        })
    }
}

struct CallTrial<'a> {
    tool: &'a UndoPlan,
    plans: &'a Plans,
    call: &'a Call,
}

enum CallError {
    Ledger(ledger::read::Error),
    Failure(Failure),
}

impl From<ledger::read::Error> for CallError {
    fn from(error: ledger::read::Error) -> Self {
        Self::Ledger(error)
    }
}

impl CallError {
    fn into_failure(self) -> Failure {
        match self {
            Self::Ledger(error) => ledger_failure(&error),
            Self::Failure(failure) => failure,
        }
    }
}

impl TrialUndo for CallTrial<'_> {
    type Error = CallError;

    fn try_undo<'a>(&'a self, writes: &'a [CorrelationId]) -> TrialFuture<'a, CallError> {
        Box::pin(async move {
            let Self { tool, plans, call } = self;
            let account = call.principal.account_id.as_str();
            let report = plans.report(writes, PlanMode::Strict, Some(account), call.deadline).await?;
            if !report.is_ready {
                return Ok(TriedUndo { conflicts: report.conflicts, ..TriedUndo::default() });
            }
            let digest = digest_of(&[PlanPart::of(&report)]);
            let params = Map::from_iter([("digest".to_owned(), digest.into()), ("writes".to_owned(), json!(writes))]);
            let request = WriteRequest { principal: call.principal.clone(), params };
            let conflicts = match tool.gate.preview(tool.executor.as_ref(), &request, call.deadline).await {
                Ok((work, _)) => {
                    let not_restored = work.data.get("not_restored").map(Vec::<NotRestored>::deserialize);
                    let not_restored = not_restored.and_then(Result::ok).unwrap_or_default();
                    return Ok(TriedUndo { not_restored, ..TriedUndo::default() });
                }
                Err(Failure { code: ErrorCode::UndoConflict, conflicts: Some(conflicts), .. }) => {
                    conflicts.found().unwrap_or_default()
                }
                Err(failure) if failure.sqlstate.as_deref().is_some_and(is_of_the_rows) => {
                    vec![Conflict::new(ConflictKind::Constraint).with_message(failure.message)]
                }
                Err(failure) => return Err(CallError::Failure(failure)),
            };
            Ok(TriedUndo { conflicts, ..TriedUndo::default() })
        })
    }
}

fn shown(plan: Plan, masks: &mut CellMasks<'_>) -> UndoPlanData {
    let Plan { selection, writes, report } = plan;
    let report = report.shown(masks);
    let left_out: HashSet<CorrelationId> = report.left_out.iter().filter_map(Conflict::write_id).collect();
    let listed = |writes: Vec<&SelectedWrite>| {
        let row = |write: &SelectedWrite| {
            let SelectedWrite { correlation_id, tool_name, actor, completed_at, makes_again, .. } = write;
            let mut row = json!({"correlation_id": correlation_id, "tool_name": tool_name, "actor": actor, "completed_at": completed_at});
            if let (Some(again), Some(row)) = (makes_again, row.as_object_mut()) {
                row.insert("makes_again".to_owned(), json!(again));
            }
            row
        };
        writes.into_iter().take(MAX_LISTED).map(row).collect::<Vec<_>>()
    };
    let (inside, outside): (Vec<_>, Vec<_>) = writes.iter().partition(|write| write.is_inside);
    UndoPlanData {
        is_ready: report.is_ready,
        plan_id: None,
        digest: None,
        from: selection.from,
        to: selection.to,
        write_count: report.writes.len(),
        row_count: report.rows,
        writes: listed(inside.into_iter().filter(|write| !left_out.contains(&write.correlation_id)).collect()),
        added: report.added.iter().take(MAX_LISTED).map(|write| json!(write)).collect(),
        outside: listed(outside),
        effects: None,
        summary: Vec::new(),
        conflict_count: report.conflicts.len(),
        conflicts: report.conflicts.into_iter().take(MAX_CONFLICTS).collect(),
        not_restored: report.not_restored,
        not_undone: NEVER_UNDONE,
        left_out: report.left_out.into_iter().take(MAX_LISTED).collect(),
    }
}

fn refuse_too_many(plan: &Plan) -> Result<(), Failure> {
    let (rows, writes) = (plan.report.rows, plan.report.writes.len());
    if rows <= MAX_ROWS && writes as u64 <= MAX_ROWS {
        return Ok(());
    }
    let message = format!("{NAME}: {writes} writes changed {rows} rows, and one call takes back {MAX_ROWS} at most");
    Err(Failure::new(ErrorCode::InvalidParams, message)
        .hint("Choose a shorter time or one table. A person can undo more, in parts: countersign undo plan."))
}

fn time(name: &str, text: &str) -> Result<Moment, Failure> {
    text.parse().map_err(|error: types::TimeError| invalid(format!("{name}: {error}")))
}

fn invalid(message: String) -> Failure {
    Failure::new(ErrorCode::InvalidParams, format!("{NAME}: {message}"))
}

/// The failure of a plan request. A selection that cannot match any write is the agent's mistake.
fn refused(error: &PlanError) -> Failure {
    match error {
        PlanError::Selection(error @ SelectionError::Unknown { .. }) => {
            invalid(error.to_string()).hint("get_recent_mutations has the writes of this account.")
        }
        PlanError::Selection(error @ SelectionError::Range(_)) => invalid(error.to_string()),
        PlanError::Database(error) => ledger_failure(error),
    }
}
