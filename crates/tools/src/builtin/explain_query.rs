//! `explain_query`: PostgreSQL's plan of a query, without its execution.

use std::sync::Arc;

use manifest::Access;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::NumberFields;

use super::{Builtin, QueryReader};
use crate::schema::{AnyParameter, builtin_info};
use crate::tool::{Call, Tool, ToolInfo, ToolOutput, ToolResult};

pub(super) const NAME: &str = "explain_query";

const DESCRIPTION: &str = "Show the plan of a read-only SQL query as JSON, with PostgreSQL's estimates of cost and rows, \
    without running it. Use it before a query that may be expensive, or when one timed out. Give the query itself, \
    without EXPLAIN in front.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// One SQL statement that query_database would take: SELECT, WITH, VALUES or TABLE.
    query: String,
    /// The values of $1, $2, ..., in order: the plan is the one for these values.
    #[serde(default)]
    #[schemars(with = "Vec<AnyParameter>")]
    params: Vec<Value>,
}

/// `data` of the answer.
#[derive(Debug, Serialize, JsonSchema)]
struct PlanData {
    /// The root of the plan, with "Node Type", "Startup Cost", "Total Cost", "Plan Rows", "Plans" and more.
    plan: Value,
}

impl PlanData {
    /// Takes the plan out of the output of EXPLAIN, which is an array with one object.
    fn new(mut explained: Value) -> Self {
        let plan = explained.pointer_mut("/0/Plan").map(Value::take);
        Self { plan: plan.unwrap_or(explained) }
    }
}

pub(super) fn info() -> ToolInfo {
    builtin_info::<Arguments, PlanData>(NAME, "Explain a query", DESCRIPTION, Access::Read)
}

pub(super) fn tool(queries: QueryReader) -> Box<dyn Tool> {
    Box::new(Builtin::<Arguments, QueryReader> {
        info: info(),
        number_fields: Some(Arc::new(NumberFields::of_document("plan"))),
        state: queries,
        run: |queries, given, call| Box::pin(explain(queries, given, call)),
    })
}

async fn explain(queries: &QueryReader, given: Arguments, call: Call) -> ToolResult {
    telemetry::set_statement(&given.query);
    match queries.of(&call).explain(&given.query, &given.params, call.trace.as_deref()).await {
        Ok(explained) => ToolOutput::read(&PlanData::new(explained)),
        Err(error) => Err(queries.failure(error, &given.query, &call).await),
    }
}
