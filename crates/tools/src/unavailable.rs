//! The tools of a server that has not reached its database yet: those that read, as they will be, and each call of them fails
//! with the reason.

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

/// What every call is answered with for now; whoever tries to reach the database keeps it up to date.
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
    /// The tools that read, for a database that is not reachable; `catalog` has what manifests say of them.
    ///
    /// # Errors
    /// [`RegistryError`] if a schema cannot be used.
    pub fn unavailable(
        limits: &ReadLimits,
        call_deadline: Duration,
        failure: &Unavailable,
        metrics: &Metrics,
        catalog: &ToolCatalog,
    ) -> Result<Self, RegistryError> {
        let mut registry = Self::unreached(call_deadline, catalog);
        for info in builtin::reading_infos(limits) {
            let tool = UnavailableTool { info, failure: failure.clone() };
            registry.add_builtin(Box::new(tool), catalog, metrics)?;
        }
        Ok(registry)
    }
}
