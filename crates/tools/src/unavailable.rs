//! Tools of a server that has not reached its database yet. It lists the tools that read, and each call fails with the
//! reason.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use ledger::read::ReadLimits;
use manifest::ToolCatalog;
use tokio::sync::watch;
use types::Failure;

use crate::builtin;
use crate::metrics::Metrics;
use crate::registry::{Registry, RegistryError};
use crate::tool::{Call, Tool, ToolInfo, ToolResult};

/// Failure that every call returns for now; the task that tries to connect keeps it up to date.
pub type Unavailable = watch::Receiver<Failure>;

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

impl Registry {
    /// The tools that read, for an unreachable database; `catalog` has the overrides of manifests.
    ///
    /// # Errors
    /// [`RegistryError`] if a schema is unusable.
    pub fn unavailable(
        limits: &ReadLimits,
        call_deadline: Duration,
        failure: &Unavailable,
        metrics: &Metrics,
        catalog: &ToolCatalog,
    ) -> Result<Self, RegistryError> {
        let mut registry = Self::unreached(call_deadline, catalog);
        for info in builtin::builtin_infos(limits, catalog) {
            let tool = UnavailableTool { info, failure: failure.clone() };
            registry.add_builtin(Box::new(tool), catalog, metrics)?;
        }
        Ok(registry)
    }
}
