//! `get_recent_mutations`: recent writes, for agents that are about to write.

use std::pin::Pin;

use ledger::{RecordStatus, Records};
use manifest::Access;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schema::{arguments, builtin_info, default_list_limit, one_of};
use crate::tool::{Call, Tool, ToolInfo, ToolOutput, ToolResult};
use catalog::ledger_failure;

pub(super) const NAME: &str = "get_recent_mutations";

const DESCRIPTION: &str = "List the latest writes of this account, newest first: what was called, what came of it, and \
    the correlation_id to look each of them up with get_mutation_detail. Look here before a write that may have been \
    made already.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The most records to list.
    #[serde(default = "default_list_limit")]
    #[schemars(range(min = 1, max = 100))]
    limit: u32,
    /// Only writes of this tool.
    #[serde(default)]
    #[schemars(with = "String")]
    tool_name: Option<String>,
    /// Only writes in this state.
    #[serde(default)]
    #[schemars(schema_with = "statuses")]
    status: Option<String>,
}

fn statuses(_: &mut SchemaGenerator) -> Schema {
    one_of(&RecordStatus::ALL.map(RecordStatus::as_str))
}

/// `data` of the answer.
#[derive(Debug, Serialize, JsonSchema)]
struct MutationsData {
    /// The records, newest first.
    mutations: Vec<Map<String, Value>>,
    /// How many there are in `mutations`.
    count: usize,
}

pub(super) struct GetRecentMutations {
    info: ToolInfo,
    records: Records,
}

impl GetRecentMutations {
    pub(super) fn new(records: Records) -> Self {
        let info = builtin_info::<Arguments, MutationsData>(NAME, "List recent writes", DESCRIPTION, Access::Write);
        Self { info, records }
    }
}

impl Tool for GetRecentMutations {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>> {
        Box::pin(async move {
            let arguments: Arguments = arguments(NAME, call.arguments)?;
            let status =
                RecordStatus::ALL.into_iter().find(|status| Some(status.as_str()) == arguments.status.as_deref());
            let mutations = self
                .records
                .recent(&call.principal.account_id, arguments.limit, arguments.tool_name, status)
                .await
                .map_err(|error| ledger_failure(&error))?;
            ToolOutput::read(&MutationsData { count: mutations.len(), mutations })
        })
    }
}
