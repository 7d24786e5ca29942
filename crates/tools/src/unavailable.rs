//! The tools of a server that has not reached its database yet: those that read, as they will be, and each call of them fails
//! with the reason.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use contract::Failure;
use ledger::read::ReadLimits;
use tokio::sync::watch;

use crate::builtin;
use crate::metrics::Metrics;
use crate::registry::{Registry, RegistryError};
use crate::tool::{Call, Outcome, Tool, ToolInfo};

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

    fn call(&self, _: Call) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        let failure = self.failure.borrow().clone();
        Box::pin(async move { Err(failure.into()) })
    }
}

impl Registry {
    /// The tools that read, for a database that is not reachable.
    ///
    /// # Errors
    /// [`RegistryError`] if a schema cannot be used.
    pub fn unavailable(
        limits: &ReadLimits,
        call_deadline: Duration,
        failure: &Unavailable,
        metrics: &Metrics,
    ) -> Result<Self, RegistryError> {
        let mut registry = Self::empty(call_deadline);
        for info in builtin::reading_infos(limits) {
            registry.add(Box::new(UnavailableTool { info, failure: failure.clone() }), metrics)?;
        }
        Ok(registry)
    }
}
