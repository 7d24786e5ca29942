//! The tools of a server that has not reached its database yet. The server lists the read tools, and each call fails
//! with the reason.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use ledger::read::ReadLimits;
use manifest::ToolCatalog;

use crate::builtin;
use crate::metrics::Metrics;
use crate::tool::{Call, Tool, ToolInfo, ToolResult};
use crate::toolset::{Toolset, ToolsetError, Unavailable};

struct UnavailableTool {
    info: ToolInfo,
    failure: Unavailable,
}

impl Tool for UnavailableTool {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn call(&self, _: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>> {
        let failure = self.failure.borrow().clone();
        Box::pin(async move { Err(failure.into()) })
    }
}

impl Toolset {
    /// The read tools, for an unreachable database. `catalog` has the overrides of manifests.
    pub fn unavailable(
        limits: &ReadLimits,
        call_deadline: Duration,
        failure: &Unavailable,
        metrics: &Metrics,
        catalog: &ToolCatalog,
    ) -> Result<Self, ToolsetError> {
        let mut toolset = Self::unreached(call_deadline, catalog, failure.clone());
        for info in builtin::builtin_infos(limits, catalog) {
            let tool = UnavailableTool { info, failure: failure.clone() };
            toolset.add_builtin(Box::new(tool), catalog, metrics)?;
        }
        Ok(toolset)
    }
}
