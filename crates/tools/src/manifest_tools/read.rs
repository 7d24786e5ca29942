//! A read tool of a manifest: a fixed query with typed parameters, which runs on the read path.

use std::pin::Pin;
use std::sync::Arc;

use ledger::read::{ReadRequest, Reader, RowFormat, TruncatedBy};
use manifest::ToolSpec;
use serde_json::{Map, Value};
use types::{ErrorCode, Failure, JsonText, NumberFields, Scalar, TypeKind};

use crate::arguments::{effective_params, encode_param, redaction};
use crate::manifest_tools::write::{info, number_fields};
use crate::mask_policy::MaskPolicy;
use crate::schema_drift;
use crate::tool::{Annotations, Call, Tool, ToolInfo, ToolOutput, ToolResult};
use catalog::{RowsPage, Truncation};

pub(crate) struct ManifestRead {
    info: ToolInfo,
    spec: Arc<ToolSpec>,
    reader: Reader,
    masks: MaskPolicy,
    number_fields: Arc<NumberFields>,
}

impl ManifestRead {
    pub(crate) fn new(spec: Arc<ToolSpec>, reader: Reader, masks: MaskPolicy) -> Self {
        let hints = Annotations { read_only: true, destructive: false, idempotent: true };
        let (info, number_fields) = (info(&spec, hints), number_fields(&spec));
        Self { info, spec, reader, masks, number_fields }
    }
}

impl ManifestRead {
    /// The parameters in PostgreSQL's text form. JSON documents are passed on unchanged, because their numbers were
    /// checked with the arguments.
    fn texts(&self, params: &Map<String, Value>) -> Result<Vec<Value>, Failure> {
        let texts = self.spec.params.iter().map(|param| {
            let value = params.get(&param.name).unwrap_or(&Value::Null);
            if param.ty.base().kind == TypeKind::Scalar(Scalar::Json) {
                return Ok(value.clone());
            }
            Ok(encode_param(&self.spec.name, param, value)?.map_or(Value::Null, Value::String))
        });
        texts.collect()
    }
}

impl Tool for ManifestRead {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn number_fields(&self) -> Option<&Arc<NumberFields>> {
        Some(&self.number_fields)
    }

    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>> {
        Box::pin(async move {
            let params = effective_params(&self.spec, &call.arguments, &call.principal);
            let redaction = redaction(&self.spec, &params);
            let params = self.texts(&params)?;
            let Some(statement) = self.spec.statements.last() else { return ToolOutput::read(&Map::new()) };
            telemetry::set_statement(&statement.sql);
            let request = ReadRequest {
                account: Some(call.principal.account_id.as_str()),
                trace: call.trace.as_deref(),
                ..ReadRequest::new(&statement.sql, &params, RowFormat::Object)
            };
            let read = self.masks.reader(&self.reader, &call, true).read(&request).await;
            let result = read.map_err(|error| {
                schema_drift::read_failure(error, self.reader.limits().deadline).redacted(&redaction)
            })?;
            schema_drift::check(&statement.shape, &result.columns)?;
            let rows = result.rows;
            if !self.spec.rows.allows(rows.len() as u64) {
                let message =
                    format!("the query gave {} row(s) where {} is right", rows.len(), self.spec.rows.as_str());
                return Err(Failure::new(ErrorCode::RowCountMismatch, message).into());
            }
            if self.spec.rows.is_single() {
                return match rows.first() {
                    Some(row) => {
                        ToolOutput::of_rows(&JsonText::from_unchecked(row.to_owned()), (result.permit, result.standby))
                    }
                    None => ToolOutput::read(&Map::new()),
                };
            }
            let truncation = Truncation::new(result.truncated_by, fewer_rows);
            let page = RowsPage { row_count: rows.len(), rows: rows.into_array(), truncation };
            ToolOutput::of_rows(&page, (result.permit, result.standby))
        })
    }
}

/// A hint on how to get the omitted rows. The tool has no pages.
fn fewer_rows(_: TruncatedBy) -> &'static str {
    "Give arguments that select fewer rows, or read the rest with query_database, if it is among your tools."
}
