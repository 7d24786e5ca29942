//! A write tool of a manifest. What carries it out is `manifest_executor`.

use std::pin::Pin;
use std::sync::Arc;

use ledger::proposals::{NewProposal, Tier};
use ledger::{Gate, WriteAttempt, WriteError, WriteExecutor, WriteOutcome, WriteRequest};
use manifest::{ToolSpec, UndoSpec};
use serde::Serialize;
use serde_json::{Map, Value};
use types::Principal;

use crate::approval_flow::{ApprovalFlow, key_of, refuse_answer};
use crate::arguments::{effective_params, redaction};
use crate::builtin::Services;
use crate::manifest_tools::executor::proposal_tier;
use crate::mixed_script;
use crate::tool::{Annotations, Call, Disposition, Tool, ToolError, ToolInfo, ToolOutput, ToolResult};

/// A tool that writes through the gate, or proposes to.
pub(crate) struct ManifestWrite {
    info: ToolInfo,
    spec: Arc<ToolSpec>,
    executor: Arc<dyn WriteExecutor>,
    gate: Gate,
    /// Who has to agree, and how they are asked; `None` for nobody.
    proposing: Option<(Tier, ApprovalFlow)>,
}

impl ManifestWrite {
    pub(crate) fn new(spec: Arc<ToolSpec>, executor: Arc<dyn WriteExecutor>, backends: &Services) -> Self {
        let hints = Annotations {
            read_only: false,
            destructive: matches!(spec.undo, UndoSpec::Irreversible { .. }),
            // Within the window; beyond it the caller's key makes it so.
            idempotent: true,
        };
        let title = spec.title.clone().unwrap_or_else(|| spec.name.clone());
        let proposing =
            proposal_tier(spec.tier).map(|tier| (tier, ApprovalFlow { proposals: backends.proposals.clone(), title }));
        Self { info: info(&spec, hints), spec, executor, gate: backends.gate.clone(), proposing }
    }

    /// What it was made from.
    pub(crate) fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// What carries it out.
    pub(crate) fn executor(&self) -> &Arc<dyn WriteExecutor> {
        &self.executor
    }

    /// What is ordered with these arguments, which have been checked against the schema.
    pub(crate) fn request(&self, arguments: &Map<String, Value>, principal: &Principal) -> WriteRequest {
        WriteRequest { params: effective_params(&self.spec, arguments, principal), principal: principal.clone() }
    }
}

/// What clients are told about a tool of a manifest.
pub(crate) fn info(spec: &ToolSpec, hints: Annotations) -> ToolInfo {
    ToolInfo {
        name: spec.name.clone(),
        title: spec.title.clone(),
        description: spec.description.clone(),
        version: spec.version.clone(),
        access: spec.access,
        tier: spec.access.writes().then_some(spec.tier),
        input_schema: spec.input_schema.clone(),
        output_schema: spec.output_schema.clone(),
        hints: hints.overridden(&spec.annotations),
        sensitive: spec.sensitive_params().map(|param| param.name.clone()).collect(),
        meta: spec.meta.clone(),
    }
}

/// `data` of a call that an identical one had made before (promises A4).
#[derive(Debug, Serialize)]
struct DuplicateData {
    duplicate: bool,
    original_correlation_id: types::CorrelationId,
    cached_result: Value,
    message: String,
}

impl Tool for ManifestWrite {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>> {
        Box::pin(async move {
            let request = self.request(&call.arguments, &call.principal);
            let idempotency_key = key_of(&call.arguments);
            let (tool, executor) = (self.spec.name.clone(), Arc::clone(&self.executor));
            if let Some((tier, proposing)) = &self.proposing {
                let warnings = mixed_script::warnings(&self.spec, &request.params);
                let tool_version = self.spec.version.clone();
                let draft = NewProposal { request, tool, tool_version, tier: *tier, idempotency_key, executor };
                return proposing.call(&call, draft, warnings).await;
            }
            refuse_answer(&call)?;
            // Before the gate: what does not fit leaves no record (A1-17).
            executor.check(&request)?;
            let redaction = redaction(&self.spec, &request.params);
            let deadline = call.deadline;
            let attempt =
                WriteAttempt { request, tool, redaction, idempotency_key, deadline, executor, confirmed: None };
            answer(&self.spec.name, self.gate.perform(attempt).await)
        })
    }
}

/// The answer of any tool that writes: what came of its attempt at the gate.
pub(crate) fn answer(tool: &str, outcome: Result<WriteOutcome, WriteError>) -> ToolResult {
    match outcome {
        Ok(WriteOutcome::Executed { correlation_id, data, rows_affected, rollback }) => {
            ToolOutput::read(&data).map(|answer| ToolOutput {
                correlation_id: Some(correlation_id),
                rows_affected: Some(rows_affected),
                rollback: Some(rollback),
                ..answer
            })
        }
        Ok(WriteOutcome::Duplicate { correlation_id, original, cached_result }) => {
            let data = DuplicateData {
                duplicate: true,
                original_correlation_id: original,
                cached_result,
                message: format!("Identical {tool} was already executed successfully. Returning cached result."),
            };
            let (correlation_id, success) = (Some(correlation_id), Disposition::Duplicate);
            ToolOutput::read(&data).map(|answer| ToolOutput { correlation_id, success, ..answer })
        }
        Err(stopped) => Err(ToolError { correlation_id: stopped.correlation_id, failure: stopped.failure }),
    }
}
