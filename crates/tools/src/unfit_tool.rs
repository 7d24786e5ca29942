//! A manifest tool that does not fit the database. Clients do not see it in lists, but a call returns the reason.

use manifest::{Access, OutdatedTool};
use tokio::time::Instant;
use types::{Failure, Meta};

use crate::metrics::{Metrics, ToolMetrics};
use crate::schema_drift;
use crate::tool::ToolResult;

/// A tool that is not served because it does not fit the database.
pub struct UnfitTool {
    pub name: String,
    pub(crate) access: Access,
    pub failure: Failure,
    version: String,
    metrics: ToolMetrics,
}

impl UnfitTool {
    pub(crate) fn new(tool: &OutdatedTool, metrics: &Metrics) -> Self {
        let OutdatedTool { name, version, access, mistakes } = tool;
        let why: Vec<&str> = mistakes.iter().map(|mistake| mistake.message.as_str()).collect();
        Self {
            name: name.clone(),
            access: *access,
            failure: schema_drift::not_served(&why.join("; ")),
            version: version.clone(),
            metrics: metrics.of_tool(name),
        }
    }

    pub(crate) fn call(&self) -> (ToolResult, Meta) {
        let running = self.metrics.begin(Instant::now());
        let outcome = Err(self.failure.clone().into());
        running.ended(&outcome);
        (outcome, Meta::new(self.version.clone(), 0))
    }
}
