//! `describe_database`: the schema of the database. The overview is small; details are available on request.

use manifest::Access;
use schemars::JsonSchema;
use serde::Deserialize;
use types::{ErrorCode, Failure};

use super::Builtin;
use crate::mask_policy::MaskPolicy;
use crate::schema::builtin_info;
use crate::tool::{Call, Tool, ToolInfo, ToolOutput, ToolResult};
use catalog::{DatabaseDescriber, DescribeData};

pub(crate) const NAME: &str = catalog::DESCRIBE_TOOL;

const DESCRIPTION: &str = "Find out what is in the database. Without arguments: the schemas with their \
    tables and views. With schema: those of one schema. With table or \
    tables: everything of these: columns with common values, keys, references, checks, indexes, enum values, row \
    level security, a view's SQL, and which tools read or write it. With search: tables and columns. notes are the \
    operator's. Only what query_database may read.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Only this schema.
    #[schemars(with = "String", length(min = 1), default)]
    schema: Option<String>,
    /// Everything of this table or view: its name, or schema.name.
    #[schemars(with = "String", length(min = 1), default)]
    table: Option<String>,
    /// Several.
    #[schemars(with = "Vec<String>", length(min = 1, max = 20), default)]
    tables: Option<Vec<String>>,
    /// A word in a name, comment, note or enum value. Not with table or tables.
    #[schemars(with = "String", length(min = 1), default)]
    search: Option<String>,
}

struct DescribeDatabase {
    describer: DatabaseDescriber,
    masks: MaskPolicy,
}

pub(super) fn info() -> ToolInfo {
    builtin_info::<Arguments, DescribeData>(NAME, "Describe the database", DESCRIPTION, Access::Read)
}

pub(super) fn tool(describer: DatabaseDescriber, masks: MaskPolicy) -> Box<dyn Tool> {
    let tool = DescribeDatabase { describer, masks };
    Builtin::boxed(info(), tool, |tool, given, call| Box::pin(tool.answer(given, call)))
}

impl DescribeDatabase {
    async fn answer(&self, given: Arguments, call: Call) -> ToolResult {
        match tokio::time::timeout_at(call.deadline, self.describe(&given, &call)).await {
            Ok(data) => ToolOutput::read(&data?),
            Err(_) => Err(Failure::new(ErrorCode::Timeout, format!("{NAME} did not finish in time")).into()),
        }
    }

    async fn describe(&self, arguments: &Arguments, call: &Call) -> Result<DescribeData, Failure> {
        let masks = self.masks.of(&call.profile, &call.principal.account_id).cloned();
        let describer = self.describer.with_masks(masks).for_caller(&call.principal.context);
        let tools = &call.tools;
        let schema = arguments.schema.as_deref().map(unquoted);
        let schema = schema.as_deref();
        let serves = |name: &str| tools.info(name).is_some();
        match (&arguments.table, &arguments.tables, &arguments.search) {
            (Some(table), None, None) => describer.table(schema, table, &serves).await,
            (None, Some(names), None) => describer.tables(schema, names, &serves).await,
            (None, None, Some(word)) => describer.search(schema, word).await,
            (None, None, None) => describer.overview(schema).await,
            (Some(_), Some(_), _) => {
                let message = format!("{NAME}: pass either `table` or `tables`, not both");
                Err(Failure::new(ErrorCode::InvalidParams, message).hint("Give all of them as tables."))
            }
            (_, _, Some(_)) => {
                let message = format!("{NAME}: pass either `table` or `search`, not both");
                Err(Failure::new(ErrorCode::InvalidParams, message)
                    .hint("Search first, then ask for the table that was found."))
            }
        }
    }
}

/// A name without the quotes that SQL may need.
fn unquoted(name: &str) -> String {
    let name = name.trim();
    let quoted = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
    quoted.map_or_else(|| name.to_owned(), |name| name.replace("\"\"", "\""))
}
