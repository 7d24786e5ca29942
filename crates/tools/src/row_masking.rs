//! Applies the masks of a caller to the answers of write tools.

use review::RowMasks;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::to_raw_value;
use types::{CellMasks, ErrorCode, Failure, Masks, Redaction};

use crate::tool::{Disposition, ToolError, ToolOutput, ToolResult};

/// Masks the outcome of a call. `declared` is the name of a tool of a manifest, whose answer is its result.
pub(crate) fn masked(outcome: ToolResult, masks: Option<&Masks>, declared: Option<&str>) -> ToolResult {
    match outcome {
        Ok(output) => match masks.filter(|_| !output.is_masked) {
            Some(masks) => masked_output(output, masks, declared),
            None => Ok(output),
        },
        Err(ToolError { correlation_id, failure }) => {
            Err(ToolError { correlation_id, failure: Box::new(failure.shown(CellMasks::new(masks))) })
        }
    }
}

/// The answer of a tool that has applied the masks of the call itself. `redaction` has the masked texts.
pub(crate) fn answer(data: &impl Serialize, redaction: &Redaction) -> ToolResult {
    let data = serde_json::to_value(data).map_err(|error| not_json(&error))?;
    ToolOutput::read(&redaction.value(&data)).map(|output| ToolOutput { is_masked: true, ..output })
}

fn masked_output(output: ToolOutput, masks: &Masks, declared: Option<&str>) -> ToolResult {
    let mut rows = RowMasks::new(Some(masks)).of_tool(declared.unwrap_or_default());
    let mut data: Value = serde_json::from_str(output.data.get()).unwrap_or_default();
    // A proposal or an earlier answer contains its rows under known keys, so `data` itself is not a row.
    rows.mask(&mut data, declared.is_some() && output.success == Disposition::Done);
    let rollback = output.rollback.map(|rollback| rows.masked_rollback(rollback));
    let redaction = rows.redaction();
    let data = to_raw_value(&redaction.value(&data)).map_err(|error| not_json(&error))?;
    Ok(ToolOutput { data, rollback, ..output })
}

fn not_json(error: &serde_json::Error) -> Failure {
    tracing::error!(%error, "a masked result cannot be serialized");
    Failure::new(ErrorCode::InternalError, "the result cannot be written as JSON")
}

/// The failure of a tool whose answers show rows without column names, for a caller with masks.
pub(crate) fn refused_for_masks(name: &str) -> Failure {
    Failure::new(ErrorCode::NotPermitted, format!("{name} cannot be called while columns are masked for the caller"))
        .hint("Nothing was executed. Use query_database to read, and the other write tools to write.")
}
