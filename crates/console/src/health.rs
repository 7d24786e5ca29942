//! What the health page shows. The program that serves the console knows what to look at.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use review::Finding;

/// The findings of one look.
pub type HealthFindings = Pin<Box<dyn Future<Output = Vec<Finding>> + Send>>;

/// Looks at the ledger and what serves it.
#[derive(Clone)]
pub struct HealthCheck(Arc<dyn Fn() -> HealthFindings + Send + Sync>);

impl HealthCheck {
    /// The check that this function makes.
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
