//! `get_mutation_detail`: the ledger's full record of one write (promises A6).

use std::pin::Pin;

use ledger::Records;
use manifest::Access;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use types::{CorrelationId, ErrorCode, Failure};

use crate::schema::arguments;
use crate::schema::builtin_info;
use crate::tool::{Call, Tool, ToolInfo, ToolOutput, ToolResult};
use catalog::ledger_failure;

pub(super) const NAME: &str = "get_mutation_detail";

const DESCRIPTION: &str = "Look up one write of this account by the correlation_id that its answer carried: parameters, \
    result, how to undo it, what reversed it, and why it failed if it did.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// meta.correlation_id of the write's answer: a UUID.
    correlation_id: String,
}

/// The tool.
pub(super) struct GetMutationDetail {
    info: ToolInfo,
    records: Records,
}

impl GetMutationDetail {
    pub(super) fn new(records: Records) -> Self {
        let info = builtin_info::<Arguments, Map<String, Value>>(NAME, "Look up a write", DESCRIPTION, Access::Write);
        Self { info, records }
    }
}

impl Tool for GetMutationDetail {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>> {
        Box::pin(async move {
            let arguments: Arguments = arguments(NAME, call.arguments)?;
            let Some(correlation_id) = CorrelationId::parse(&arguments.correlation_id) else {
                let message =
                    format!("{NAME}: correlation_id must be a UUID like 3f0c1a52-9c1e-4c7e-8a55-0d9f6b1f2a34");
                return Err(Failure::new(ErrorCode::InvalidParams, message).into());
            };
            let found = self.records.detail(&call.principal.account_id, correlation_id).await;
            match found.map_err(|error| ledger_failure(&error))? {
                Some(record) => ToolOutput::read(&record),
                None => Err(Failure::new(
                    ErrorCode::NotFound,
                    format!("this account has no write with correlation_id {correlation_id}"),
                )
                .into()),
            }
        })
    }
}
