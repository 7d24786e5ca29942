//! `undo_plan`: previews the undo of many writes of the account. `undo_run` executes the plan.

use std::pin::Pin;
use std::sync::Arc;

use ledger::plans::{Plan, PlanMode, PlanPart, Plans, Selection, digest_of};
use ledger::{Gate, Records, WriteExecutor, WriteRequest};
use manifest::Access;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use types::{ErrorCode, Failure};

use super::UndoTiers;
use crate::schema::{AnyJson, arguments, builtin_info};
use crate::services::Services;
use crate::tool::{Call, Tool, ToolInfo, ToolOutput, ToolResult};
use catalog::ledger_failure;

pub(in crate::builtin) const NAME: &str = "undo_plan";

const DESCRIPTION: &str = "Plan to take back many writes of this account: those that were completed in a time, of one actor, session, \
    client, tool or table if given. The plan is tried and rolled back; nothing is changed. If is_ready is true, undo_run with plan_id and \
    digest carries it out, all rows or none. If it is false, conflicts says why: mode skip leaves out the writes that conflict, mode \
    cascade also takes back later writes of this account on the same rows. A plan is kept for a day.";

const NEVER_UNDONE: &str = "Sequences, NOTIFY, what left the database, and tables that are not tracked are not undone.";

/// Maximum number of rows, and of writes, that one call undoes.
const MOST_ROWS: u64 = 10_000;

/// Maximum number of writes of each kind in the response.
const MOST_LISTED: usize = 100;

/// Maximum number of conflicts in the response.
const MOST_CONFLICTS: usize = 20;

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The beginning of the time: an age such as 12h, 7d or 4w, or a time with its zone such as 2026-11-22T09:00:00Z.
    from: String,
    /// The end of the time, which is outside of it; in the same forms. Now, if it is not given.
    #[serde(default)]
    #[schemars(with = "String")]
    to: Option<String>,
    /// Only writes on behalf of this actor.
    #[serde(default)]
    #[schemars(with = "String")]
    actor: Option<String>,
    /// Only writes of this session.
    #[serde(default)]
    #[schemars(with = "String")]
    session_id: Option<String>,
    /// Only writes of clients with this name.
    #[serde(default)]
    #[schemars(with = "String")]
    client_name: Option<String>,
    /// Only writes of this tool.
    #[serde(default)]
    #[schemars(with = "String")]
    tool: Option<String>,
    /// Only writes that changed a row of this table: schema.table.
    #[serde(default)]
    #[schemars(with = "String")]
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

impl From<Mode> for PlanMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Strict => Self::Strict,
            Mode::Skip => Self::Skip,
            Mode::Cascade => Self::Cascade,
        }
    }
}

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
    #[schemars(with = "Vec<AnyJson>")]
    writes: Vec<Value>,
    /// Later writes that would be taken back as well; at most 100.
    added: Vec<Value>,
    /// Writes that are left out because they conflict; at most 100.
    left_out: Vec<Value>,
    /// Writes that began in the time and were completed after it: they are not taken back; at most 100.
    outside: Vec<Value>,
    /// How many conflicts there are.
    conflict_count: usize,
    /// Why the plan cannot run, one object for each row; at most 20.
    conflicts: Vec<Value>,
    /// What no plan takes back.
    not_undone: &'static str,
}

/// The tool.
pub(in crate::builtin) struct UndoPlan {
    info: ToolInfo,
    gate: Gate,
    records: Records,
    plans: Plans,
    executor: Arc<dyn WriteExecutor>,
    tiers: UndoTiers,
}

impl UndoPlan {
    pub(in crate::builtin) fn new(services: &Services, tiers: UndoTiers, executor: Arc<dyn WriteExecutor>) -> Self {
        Self {
            info: builtin_info::<Arguments, UndoPlanData>(
                NAME,
                "Plan the undo of many writes",
                DESCRIPTION,
                Access::Admin,
            ),
            gate: services.gate.clone(),
            records: services.records.clone(),
            plans: services.plans.clone(),
            executor,
            tiers,
        }
    }

    async fn plan(&self, call: &Call, arguments: Arguments) -> Result<UndoPlanData, Failure> {
        let account = &call.principal.account_id;
        let selection = Selection {
            account: Some(account.as_str().to_owned()),
            actor: arguments.actor,
            session: arguments.session_id,
            client: arguments.client_name,
            tool: arguments.tool,
            table: arguments.table,
            from: arguments.from,
            to: arguments.to.unwrap_or_else(|| "0h".to_owned()),
        };
        let compared = self.plans.compare(&selection, arguments.mode.into(), call.deadline).await;
        let mut plan = compared.map_err(|error| refused(&error))?;
        let writes = plan.chosen();
        refuse_too_many(&plan, writes.len())?;
        if !writes.is_empty() {
            self.tiers.strictest(call, &self.records, NAME, &writes).await?;
        }
        let mut stored = None;
        let part = PlanPart::of(&writes, &plan.report);
        if plan.is_ready() && self.try_undo(call, &part, &mut plan).await? {
            let who = call.principal.actor.as_deref().unwrap_or(account.as_str());
            let kept = self.plans.store(Some(account), &plan, vec![part], who, call.deadline).await;
            stored = Some(kept.map_err(|error| ledger_failure(&error))?);
        }
        let (plan_id, digest) = stored.map(|stored| (stored.plan_id, stored.digest)).unzip();
        Ok(UndoPlanData { plan_id, digest, ..shown(&plan, writes.len()) })
    }

    /// Tries the plan in a transaction that is rolled back. Returns whether it had no conflict.
    async fn try_undo(&self, call: &Call, part: &PlanPart, plan: &mut Plan) -> Result<bool, Failure> {
        let digest = digest_of(std::slice::from_ref(part));
        let writes = part.writes.clone();
        let params = Map::from_iter([("digest".to_owned(), digest.into()), ("writes".to_owned(), writes.into())]);
        let request = WriteRequest { principal: call.principal.clone(), params };
        match self.gate.preview(self.executor.as_ref(), &request, call.deadline).await {
            Ok(_) => Ok(true),
            Err(Failure { code: ErrorCode::UndoConflict, conflicts: Some(conflicts), .. }) => {
                plan.refuse(serde_json::from_value(*conflicts).unwrap_or_default());
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }
}

impl Tool for UndoPlan {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn call(&self, mut call: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>> {
        Box::pin(async move {
            let arguments: Arguments = arguments(NAME, std::mem::take(&mut call.arguments))?;
            ToolOutput::read(&self.plan(&call, arguments).await?)
        })
    }
}

fn shown(plan: &Plan, write_count: usize) -> UndoPlanData {
    let is_inside = |write: &&Map<String, Value>| write.get("is_inside") == Some(&Value::Bool(true));
    let listed = |writes: Vec<&Map<String, Value>>| {
        let row = |write: &Map<String, Value>| {
            let shown = write.iter().filter(|(name, _)| !["is_inside", "account_id"].contains(&name.as_str()));
            Value::Object(shown.map(|(name, value)| (name.clone(), value.clone())).collect())
        };
        writes.into_iter().take(MOST_LISTED).map(row).collect::<Vec<_>>()
    };
    let receipts = |name: &str| plan.report.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let left_out = receipts("left_out");
    let is_kept = |write: &&Map<String, Value>| write.get("correlation_id").is_none_or(|id| !left_out.contains(id));
    let (inside, outside): (Vec<_>, Vec<_>) = plan.writes.iter().partition(is_inside);
    let bounded = |list: Vec<Value>| list.into_iter().take(MOST_LISTED).collect();
    UndoPlanData {
        is_ready: plan.is_ready(),
        plan_id: None,
        digest: None,
        from: plan.selection.from.clone(),
        to: plan.selection.to.clone(),
        write_count,
        row_count: plan.rows(),
        writes: listed(inside.into_iter().filter(is_kept).collect()),
        added: bounded(receipts("added")),
        outside: listed(outside),
        conflict_count: plan.conflicts().len(),
        conflicts: plan.conflicts().iter().take(MOST_CONFLICTS).cloned().collect(),
        not_undone: NEVER_UNDONE,
        left_out: bounded(left_out),
    }
}

fn refuse_too_many(plan: &Plan, writes: usize) -> Result<(), Failure> {
    let rows = plan.rows();
    if rows <= MOST_ROWS && writes as u64 <= MOST_ROWS {
        return Ok(());
    }
    let message = format!("{NAME}: {writes} writes changed {rows} rows, and one call takes back {MOST_ROWS} at most");
    Err(Failure::new(ErrorCode::InvalidParams, message)
        .hint("Choose a shorter time or one table. A person can undo more, in parts: countersign undo plan."))
}

/// A time that PostgreSQL cannot parse is the agent's mistake.
fn refused(error: &ledger::read::Error) -> Failure {
    match error {
        ledger::read::Error::Server(error) if error.sqlstate.starts_with("22") => {
            Failure::new(ErrorCode::InvalidParams, format!("{NAME}: from and to: {}", error.message))
                .hint("Give an age such as 12h or 7d, or a time with its zone such as 2026-11-22T09:00:00Z.")
        }
        error => ledger_failure(error),
    }
}
