//! `undo_mutation`: takes a write back by its recorded effects. It is a write of its own, and happens once for each write.

use std::pin::Pin;
use std::sync::Arc;

use ledger::proposals::NewProposal;
use ledger::{Gate, Records, WriteAttempt, WriteExecutor, WriteFuture, WriteOutput, WriteRequest, WriteTx};
use manifest::{Access, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use types::{CorrelationId, ErrorCode, Failure, Redaction, Rollback, TOOL_VERSION, UNDO_TOOL};

use super::Services;
use super::undo_tiers::UndoTiers;
use crate::approval_flow::{ApprovalFlow, refuse_answer};
use crate::manifest_tools::executor::proposal_tier;
use crate::manifest_tools::write::answer;
use crate::tool::{Annotations, Call, Tool, ToolInfo, ToolResult};

pub(super) const NAME: &str = UNDO_TOOL;

const TITLE: &str = "Undo a write";

const DESCRIPTION: &str = "Take back one write of this account, named by the correlation_id that its answer carried: every row \
    that it changed becomes what it was, or none: if something has changed one since, the answer is undo_conflict. It needs the agreement \
    that the write needed, and can itself be undone. Where meta.rollback names another undo_tool, call that.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// meta.correlation_id of the write's answer: a UUID.
    correlation_id: String,
}

/// `data` of the answer.
#[derive(Debug, Serialize, JsonSchema)]
struct UndoData {
    /// The write that was taken back.
    undone: String,
    /// How many rows are what they were before it.
    rows: u64,
}

/// The tool.
pub(super) struct UndoMutation {
    info: ToolInfo,
    gate: Gate,
    records: Records,
    executor: Arc<dyn WriteExecutor>,
    proposing: ApprovalFlow,
    tiers: UndoTiers,
}

impl UndoMutation {
    pub(super) fn new(backends: &Services, tiers: UndoTiers, executor: Arc<dyn WriteExecutor>) -> Self {
        let info = ToolInfo {
            name: NAME.to_owned(),
            title: Some(TITLE.to_owned()),
            description: DESCRIPTION.to_owned(),
            version: TOOL_VERSION.to_owned(),
            access: Access::Write,
            // That of the write, which is not known here.
            tier: None,
            input_schema: super::schema_of::<Arguments>(),
            output_schema: super::answer_schema::<UndoData>(),
            hints: Annotations { read_only: false, destructive: false, idempotent: true },
            sensitive: Vec::new(),
            meta: Map::new(),
        };
        let (gate, records) = (backends.gate.clone(), backends.records.clone());
        let proposing = ApprovalFlow { proposals: backends.proposals.clone(), title: TITLE.to_owned() };
        Self { info, gate, records, executor, proposing, tiers }
    }

    /// What carries it out.
    pub(super) fn executor(&self) -> &Arc<dyn WriteExecutor> {
        &self.executor
    }

    /// The undo that these arguments ask for, and the write that it takes back.
    pub(super) fn request(
        arguments: Map<String, Value>,
        call: &Call,
    ) -> Result<(WriteRequest, CorrelationId), Failure> {
        let Arguments { correlation_id } = super::arguments(NAME, arguments)?;
        let params = Map::from_iter([("correlation_id".to_owned(), correlation_id.into())]);
        let mut request = WriteRequest { principal: call.principal.clone(), params };
        let write = undone(&request)?;
        // As PostgreSQL writes it: the same call in other letters is the same call.
        request.params.insert("correlation_id".to_owned(), write.to_string().into());
        Ok((request, write))
    }

    /// Who has to agree to this undo: as for the write, or the strictest of several.
    pub(super) async fn tier(&self, call: &Call, write: CorrelationId) -> Result<Tier, Failure> {
        self.tiers.strictest(call, &self.records, NAME, &[write]).await
    }
}

impl Tool for UndoMutation {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn call(&self, mut call: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>> {
        Box::pin(async move {
            let arguments = std::mem::take(&mut call.arguments);
            let (request, write) = Self::request(arguments, &call)?;
            let tier = self.tier(&call, write).await?;
            let (tool, executor) = (NAME.to_owned(), Arc::clone(&self.executor));
            let idempotency_key = Some(format!("undo:{write}"));
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

/// Takes back the write that the request names.
pub(super) struct UndoExecutor {
    tiers: UndoTiers,
}

impl UndoExecutor {
    pub(super) const fn new(tiers: UndoTiers) -> Self {
        Self { tiers }
    }
}

impl WriteExecutor for UndoExecutor {
    fn check(&self, request: &WriteRequest) -> Result<(), Failure> {
        undone(request).map(drop)
    }

    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let write = undone(request)?;
            let rows = ledger::undo::undo(tx, &[write]).await?;
            Ok(WriteOutput {
                data: json!(UndoData { undone: write.to_string(), rows }),
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
            ledger::undo::refuse_trial(tx, &[undone(request)?]).await?;
            Ok(work)
        })
    }

    fn definition(&self) -> String {
        json!([NAME, TOOL_VERSION, self.tiers.definition()]).to_string()
    }

    /// The tier of a proposal is that of the write that it undoes, and the definition has all of them.
    fn supports_tier(&self, _: ledger::proposals::Tier) -> bool {
        true
    }
}

/// The write that the request names.
fn undone(request: &WriteRequest) -> Result<CorrelationId, Failure> {
    let write = request.params.get("correlation_id").and_then(Value::as_str).and_then(CorrelationId::parse);
    write.ok_or_else(|| {
        let message = format!("{NAME}: correlation_id must be a UUID like 3f0c1a52-9c1e-4c7e-8a55-0d9f6b1f2a34");
        Failure::new(ErrorCode::InvalidParams, message)
    })
}
