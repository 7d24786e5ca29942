//! `get_recent_mutations`: recent writes, for agents that are about to write.

use ledger::{RecordStatus, Records};
use manifest::Access;
use review::hide_error;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Builtin, correlation_id, no_write};
use crate::schema::{builtin_info, default_list_limit, one_of};
use crate::tool::{Call, Tool, ToolOutput, ToolResult};
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
    #[schemars(with = "String", default)]
    tool_name: Option<String>,
    /// Only writes in this state.
    #[schemars(schema_with = "statuses", default)]
    status: Option<String>,
    /// Only writes before this one: next_older_than of the answer before.
    #[schemars(with = "String", default)]
    older_than: Option<String>,
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
    /// The search stopped here, and older writes may match. Repeat the call with it as older_than.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    next_older_than: Option<String>,
}

pub(super) fn tool(records: Records) -> Box<dyn Tool> {
    let info = builtin_info::<Arguments, MutationsData>(NAME, "List recent writes", DESCRIPTION, Access::Write);
    Builtin::boxed(info, records, |records, given, call| Box::pin(recent(records, given, call)))
}

async fn recent(records: &Records, given: Arguments, call: Call) -> ToolResult {
    let status = given.status.as_deref().and_then(RecordStatus::parse);
    let older_than = given.older_than.as_deref().map(|id| correlation_id(NAME, id)).transpose()?;
    let found = records.recent(&call.principal, given.limit, given.tool_name, status, older_than).await;
    let Some(found) = found.map_err(|error| ledger_failure(&error))? else {
        return Err(no_write(given.older_than.as_deref().unwrap_or_default()).into());
    };
    let mut mutations = found.records;
    for record in &mut mutations {
        if call.masks.is_some() {
            hide_error(record);
        }
        record.shift_remove("error_sqlstate");
    }
    ToolOutput::read(&MutationsData {
        count: mutations.len(),
        mutations,
        next_older_than: found.stopped_at.map(|id| id.to_string()),
    })
}
