//! The health page. The program that serves the console supplies the check.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use review::Finding;

/// The findings of one check.
pub type HealthFindings = Pin<Box<dyn Future<Output = Vec<Finding>> + Send>>;

/// Checks the ledger and the servers.
#[derive(Clone)]
pub struct HealthCheck(Arc<dyn Fn() -> HealthFindings + Send + Sync>);

impl HealthCheck {
    /// A check that calls this function.
    pub fn new(check: impl Fn() -> HealthFindings + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    pub(crate) async fn findings(&self) -> Vec<Finding> {
        (self.0)().await
    }
}

impl fmt::Debug for HealthCheck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HealthCheck")
    }
}
