//! What the health page shows. The program that serves the console knows what to look at.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// How a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthLevel {
    /// As it should be.
    Ok,
    /// It was not looked at.
    Unchecked,
    /// It works, and an operator should look at it.
    Warning,
    /// Something does not work.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthFinding {
    /// How it is.
    pub level: HealthLevel,
    /// The subject, in one word.
    pub area: String,
    /// What was found.
    pub message: String,
    /// What to do about it.
    pub advice: Option<String>,
}

/// The findings of one look.
pub type HealthFindings = Pin<Box<dyn Future<Output = Vec<HealthFinding>> + Send>>;

/// Looks at the ledger and what serves it.
#[derive(Clone)]
pub struct HealthCheck(Arc<dyn Fn() -> HealthFindings + Send + Sync>);

impl HealthCheck {
    /// The check that this function makes.
    pub fn new(check: impl Fn() -> HealthFindings + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    pub(crate) async fn findings(&self) -> Vec<HealthFinding> {
        (self.0)().await
    }
}

impl fmt::Debug for HealthCheck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HealthCheck")
    }
}

impl HealthLevel {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unchecked => "unchecked",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}
