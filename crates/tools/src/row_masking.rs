//! The masks of a caller in what the tools for writes answer.

use review::RowMasks;
use serde_json::Value;
use serde_json::value::to_raw_value;
use types::{ErrorCode, Failure, Masks};

use crate::tool::{Disposition, ToolError, ToolOutput, ToolResult};

/// Masks the outcome of a call for a caller with these masks. `is_row`: the data of the answer is the result of a
/// manifest's tool.
pub(crate) fn masked(outcome: ToolResult, masks: &Masks, is_row: bool) -> ToolResult {
    let mut rows = RowMasks::new(masks);
    match outcome {
        Ok(output) => {
            let mut data: Value = serde_json::from_str(output.data.get()).unwrap_or_default();
            // A proposal, or an earlier answer, has its rows under names of its own.
            rows.mask(&mut data, is_row && output.success == Disposition::Done);
            let rollback = output.rollback.map(|rollback| rows.masked_rollback(rollback));
            let redaction = rows.redaction();
            let data = to_raw_value(&redaction.value(&data)).map_err(|error| {
                tracing::error!(%error, "a masked result cannot be serialized");
                Failure::new(ErrorCode::InternalError, "the result cannot be written as JSON")
            })?;
            Ok(ToolOutput { data, rollback, ..output })
        }
        Err(ToolError { correlation_id, mut failure }) => {
            if let Some(conflicts) = &mut failure.conflicts {
                rows.mask(conflicts, false);
            }
            let redaction = rows.redaction();
            Err(ToolError { correlation_id, failure: Box::new(failure.redacted(&redaction)) })
        }
    }
}

/// The failure of a tool that shows rows without their columns' names.
pub(crate) fn refused_for_masks(name: &str) -> Failure {
    Failure::new(ErrorCode::NotPermitted, format!("{name} cannot be called while columns are masked for the caller"))
        .hint("Nothing was executed. Use query_database to read, and the other write tools to write.")
}
