//! `explain_query`: PostgreSQL's plan of a query, without its execution.

use std::pin::Pin;
use std::sync::Arc;

use ledger::read::Reader;
use manifest::Access;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::NumberFields;

use crate::mask_policy::MaskPolicy;
use crate::schema::arguments;
use crate::schema::{AnyJson, AnyParameter, builtin_info};
use crate::tool::{Call, Tool, ToolInfo, ToolOutput, ToolResult};
use catalog::{CatalogNames, corrected, read_failure};

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
    #[schemars(with = "AnyJson")]
    plan: Value,
}

impl PlanData {
    /// Takes the plan out of the output of EXPLAIN, which is an array with one object.
    fn new(mut explained: Value) -> Self {
        let plan = explained.pointer_mut("/0/Plan").map(Value::take);
        Self { plan: plan.unwrap_or(explained) }
    }
}

pub(super) struct ExplainQuery {
    info: ToolInfo,
    reader: Reader,
    names: CatalogNames,
    masks: MaskPolicy,
    number_fields: Arc<NumberFields>,
}

pub(super) fn info() -> ToolInfo {
    builtin_info::<Arguments, PlanData>(NAME, "Explain a query", DESCRIPTION, Access::Read)
}

impl ExplainQuery {
    pub(super) fn new(reader: Reader, names: CatalogNames, masks: MaskPolicy) -> Self {
        Self { info: info(), reader, names, masks, number_fields: Arc::new(NumberFields::of_document("plan")) }
    }
}

impl Tool for ExplainQuery {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn number_fields(&self) -> Option<&Arc<NumberFields>> {
        Some(&self.number_fields)
    }

    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>> {
        Box::pin(async move {
            let arguments: Arguments = arguments(NAME, call.arguments)?;
            let masks = self.masks.of(&call.profile, &call.principal.account_id);
            let reader = masks.map(|masks| self.reader.with_masks(Arc::clone(masks), false));
            let reader = reader.as_ref().unwrap_or(&self.reader);
            match reader.explain(&arguments.query, &arguments.params, call.trace.as_deref()).await {
                Ok(explained) => ToolOutput::read(&PlanData::new(explained)),
                Err(error) => {
                    let failure = read_failure(error, self.reader.limits().deadline);
                    Err(corrected(&self.names, &arguments.query, failure, call.deadline).await.into())
                }
            }
        })
    }
}
