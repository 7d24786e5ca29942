//! `undo_run`: carries a plan of `undo_plan` out. It is one write of its own, which marks each write of the plan as reversed.

use std::pin::Pin;
use std::sync::Arc;

use ledger::plans::Plans;
use ledger::proposals::NewProposal;
use ledger::{Gate, Records, WriteAttempt, WriteExecutor, WriteFuture, WriteOutput, WriteRequest, WriteTx};
use manifest::{Access, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use types::{CorrelationId, ErrorCode, Failure, IdPrefix, Redaction, Rollback, TOOL_VERSION};

use super::undo_tiers::UndoTiers;
use super::{Services, ledger_failure, undo_plan};
use crate::approval_flow::{ApprovalFlow, refuse_answer};
use crate::manifest_tools::executor::proposal_tier;
use crate::manifest_tools::write::answer;
use crate::tool::{Annotations, Call, Tool, ToolInfo, ToolResult};

pub(super) const NAME: &str = "undo_run";

const TITLE: &str = "Undo many writes";

const DESCRIPTION: &str = "Take back the writes of a plan that undo_plan has made: every row becomes what it was before them, or none, if \
    something has changed one since. It needs the strictest agreement that one of the writes needed, and can itself be undone with \
    undo_mutation.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// plan_id of undo_plan's answer: a UUID.
    plan_id: String,
    /// digest of the same answer: 64 hexadecimal digits.
    digest: String,
}

/// `data` of the answer.
#[derive(Debug, Serialize, JsonSchema)]
struct RunData {
    /// How many writes were taken back.
    writes: usize,
    /// How many rows are what they were before them.
    rows: u64,
}

/// A plan that is to be carried out.
pub(super) struct Planned {
    pub(super) request: WriteRequest,
    digest: String,
    tier: Tier,
}

/// The tool.
pub(super) struct UndoRun {
    info: ToolInfo,
    gate: Gate,
    records: Records,
    plans: Plans,
    executor: Arc<dyn WriteExecutor>,
    proposing: ApprovalFlow,
    tiers: UndoTiers,
}

impl UndoRun {
    pub(super) fn new(backends: &Services, tiers: UndoTiers, executor: Arc<dyn WriteExecutor>) -> Self {
        let info = ToolInfo {
            name: NAME.to_owned(),
            title: Some(TITLE.to_owned()),
            description: DESCRIPTION.to_owned(),
            version: TOOL_VERSION.to_owned(),
            access: Access::Admin,
            // That of the writes, which are not known here.
            tier: None,
            input_schema: super::schema_of::<Arguments>(),
            output_schema: super::answer_schema::<RunData>(),
            hints: Annotations { read_only: false, destructive: false, idempotent: true },
            sensitive: Vec::new(),
            meta: Map::new(),
        };
        Self {
            info,
            gate: backends.gate.clone(),
            records: backends.records.clone(),
            plans: backends.plans.clone(),
            executor,
            proposing: ApprovalFlow { proposals: backends.proposals.clone(), title: TITLE.to_owned() },
            tiers,
        }
    }

    /// What carries it out.
    pub(super) fn executor(&self) -> &Arc<dyn WriteExecutor> {
        &self.executor
    }

    /// The plan that these arguments name, and who has to agree to it.
    pub(super) async fn planned(&self, arguments: Map<String, Value>, call: &Call) -> Result<Planned, Failure> {
        let Arguments { plan_id, digest } = super::arguments(NAME, arguments)?;
        let unknown = || {
            let message = format!("this account has no plan {plan_id}; nothing was changed");
            Failure::new(ErrorCode::NotFound, message)
                .hint(format!("{} makes one, and it is kept for a day.", undo_plan::NAME))
        };
        // A prefix of a name would find several.
        let name = CorrelationId::parse(&plan_id).ok_or_else(|| {
            Failure::new(
                ErrorCode::InvalidParams,
                format!("{NAME}: plan_id is a UUID of 36 characters, as undo_plan answers it"),
            )
        })?;
        let prefix = IdPrefix::parse(&name.to_string()).ok_or_else(unknown)?;
        let found = self.plans.find(Some(&call.principal.account_id), &prefix).await;
        let plan = found.map_err(|error| ledger_failure(&error))?.into_iter().next().ok_or_else(unknown)?;
        if plan.digest != digest {
            let message = format!("the digest is not that of the plan {}; nothing was changed", plan.plan_id);
            return Err(Failure::new(ErrorCode::DigestMismatch, message).hint("Send both as undo_plan answered them."));
        }
        let writes: Vec<String> = plan.parts.into_iter().flat_map(|part| part.writes).collect();
        let params = Map::from_iter([
            ("plan_id".to_owned(), plan.plan_id.into()),
            ("digest".to_owned(), plan.digest.into()),
            ("writes".to_owned(), writes.into()),
        ]);
        let request = WriteRequest { principal: call.principal.clone(), params };
        let tier = self.tiers.strictest(call, &self.records, NAME, &undone(&request)?).await?;
        Ok(Planned { request, digest, tier })
    }
}

impl Tool for UndoRun {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn call(&self, mut call: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>> {
        Box::pin(async move {
            let arguments = std::mem::take(&mut call.arguments);
            let Planned { request, digest, tier } = self.planned(arguments, &call).await?;
            let (tool, executor) = (NAME.to_owned(), Arc::clone(&self.executor));
            let idempotency_key = Some(format!("undo:{digest}"));
            if let Some(tier) = proposal_tier(tier) {
                let tool_version = TOOL_VERSION.to_owned();
                let draft = NewProposal { request, tool, tool_version, tier, idempotency_key, executor };
                return self.proposing.call(&call, draft, Vec::new()).await;
            }
            refuse_answer(&call)?;
            let (redaction, deadline) = (Redaction::default(), call.deadline);
            let attempt =
                WriteAttempt { request, tool, redaction, idempotency_key, deadline, executor, confirmed: None };
            answer(NAME, self.gate.perform(attempt).await)
        })
    }
}

/// Takes back the writes that the request names.
pub(super) struct PlanExecutor {
    tiers: UndoTiers,
}

impl PlanExecutor {
    pub(super) const fn new(tiers: UndoTiers) -> Self {
        Self { tiers }
    }
}

impl WriteExecutor for PlanExecutor {
    fn check(&self, request: &WriteRequest) -> Result<(), Failure> {
        undone(request).map(drop)
    }

    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let writes = undone(request)?;
            let digest = request.params.get("digest").and_then(Value::as_str).unwrap_or_default();
            let rows = ledger::undo::undo_plan(tx, request, &writes, digest).await?;
            Ok(WriteOutput {
                data: json!(RunData { writes: writes.len(), rows }),
                rows_affected: rows,
                before: None,
                after: None,
                rollback: Rollback::by_effects(),
            })
        })
    }

    /// An undo that the ledger would refuse is not shown as one that can be made.
    fn preview<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let work = self.execute(tx, request).await?;
            ledger::undo::refuse_trial(tx, &undone(request)?).await?;
            Ok(work)
        })
    }

    fn definition(&self) -> String {
        json!([NAME, TOOL_VERSION, self.tiers.definition()]).to_string()
    }

    /// The tier of a proposal is that of the writes that it undoes, and the definition has all of them.
    fn supports_tier(&self, _: ledger::proposals::Tier) -> bool {
        true
    }

    fn undoes(&self, request: &WriteRequest) -> Vec<CorrelationId> {
        undone(request).unwrap_or_default()
    }
}

/// The writes that the request names.
fn undone(request: &WriteRequest) -> Result<Vec<CorrelationId>, Failure> {
    let writes = request.params.get("writes").and_then(Value::as_array);
    let writes = writes.into_iter().flatten().map(|write| write.as_str().and_then(CorrelationId::parse));
    match writes.collect::<Option<Vec<_>>>() {
        Some(writes) if !writes.is_empty() => Ok(writes),
        _ => Err(Failure::new(ErrorCode::InvalidParams, format!("{NAME}: writes is a list of UUIDs"))),
    }
}
