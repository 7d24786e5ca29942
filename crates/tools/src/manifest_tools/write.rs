//! A write tool of a manifest. `executor` executes its writes.

use std::pin::Pin;
use std::sync::Arc;

use ledger::proposals::NewProposal;
use ledger::{WriteCall, WriteExecutor};
use manifest::{ToolSpec, UndoSpec};
use serde_json::{Map, Value};
use types::{NumberFields, RowFormat};

use crate::approval_flow::ApprovalFlow;
use crate::arguments::{effective_params, redaction};
use crate::services::Services;
use crate::tool::{Annotations, Call, Prepared, Tool, ToolInfo, ToolResult, WriteTool};

pub(crate) struct ManifestWrite {
    info: ToolInfo,
    spec: Arc<ToolSpec>,
    executor: Arc<dyn WriteExecutor>,
    flow: ApprovalFlow,
    number_fields: Arc<NumberFields>,
}

impl ManifestWrite {
    pub(crate) fn new(spec: Arc<ToolSpec>, executor: Arc<dyn WriteExecutor>, services: &Services) -> Self {
        let hints = Annotations {
            read_only: false,
            destructive: matches!(spec.undo, UndoSpec::Irreversible { .. }),
            // Within the dedup window; after that, only with an idempotency key.
            idempotent: true,
        };
        let (info, number_fields) = (info(&spec, hints), number_fields(&spec));
        Self { info, spec, executor, flow: ApprovalFlow::new(services), number_fields }
    }
}

pub(crate) fn info(spec: &ToolSpec, hints: Annotations) -> ToolInfo {
    ToolInfo {
        name: spec.name.clone(),
        title: spec.title.clone(),
        description: spec.description.clone(),
        version: spec.version.clone(),
        access: spec.access,
        tier: spec.access.writes().then_some(spec.tier),
        reason: spec.reason,
        rules: spec.rules.clone(),
        limit: spec.limit,
        input_schema: Arc::clone(&spec.input_schema),
        output_schema: Arc::clone(&spec.output_schema),
        hints: hints.overridden(&spec.annotations),
        sensitive: spec.sensitive_params().map(|param| param.name.clone()).collect(),
        meta: spec.meta.clone(),
    }
}

/// The number fields of the tool's answers, as far as the manifest knows their types: columns and parameters.
pub(crate) fn number_fields(spec: &ToolSpec) -> Arc<NumberFields> {
    let statements = spec.before.iter().chain(&spec.statements).chain(&spec.after);
    let columns = statements.flat_map(|statement| statement.shape.columns.iter().flatten());
    let mut fields = NumberFields::of_columns(columns, RowFormat::Object);
    spec.params.iter().for_each(|param| fields.insert(&param.name, &param.ty));
    Arc::new(fields)
}

impl Tool for ManifestWrite {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn number_fields(&self) -> Option<&Arc<NumberFields>> {
        Some(&self.number_fields)
    }

    fn call(&self, mut call: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>> {
        Box::pin(async move {
            let (write, proposal) = self.prepare(std::mem::take(&mut call.arguments), &call).await?;
            self.flow.write(&call, write, proposal).await
        })
    }
}

impl WriteTool for ManifestWrite {
    fn prepare<'a>(&'a self, arguments: Map<String, Value>, call: &'a Call) -> Prepared<'a> {
        let spec = &self.spec;
        let params = effective_params(spec, &arguments, &call.principal);
        let (title, in_title) = match &spec.summary {
            Some(summary) => (summary.of_call(&params), summary.params().map(str::to_owned).collect()),
            None => (spec.title.clone().unwrap_or_else(|| spec.name.clone()), Vec::new()),
        };
        let proposal = NewProposal {
            title,
            in_title,
            tool_version: spec.version.clone(),
            tier: spec.tier,
            rule: spec.rule.clone(),
            warnings: Vec::new(),
        };
        let redaction = redaction(spec, &params);
        let idempotency_key = arguments.get("idempotency_key").and_then(Value::as_str).map(str::to_owned);
        let write = WriteCall { redaction, idempotency_key, ..call.write(&spec.name, params, &self.executor) };
        Box::pin(std::future::ready(Ok((write, proposal))))
    }
}
