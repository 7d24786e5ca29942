//! What a look at a ledger and what serves it has found.

use serde::Serialize;
use serde_json::Value;

/// The level of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    /// As it should be.
    Ok,
    /// It was not looked at.
    Unchecked,
    /// It works, and an operator should look at it.
    Warning,
    /// Something does not work, or waits for ever.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// How it is.
    pub level: FindingLevel,
    /// The subject, in one word.
    pub area: &'static str,
    /// The finding.
    pub message: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// The facts for programs, if the finding is about one record or proposal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl FindingLevel {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unchecked => "unchecked",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl Finding {
    /// A finding that is as it should be.
    pub fn ok(area: &'static str, message: impl Into<String>) -> Self {
        Self { level: FindingLevel::Ok, area, message: message.into(), advice: None, details: None }
    }

    /// A finding that was not checked, and how it can be.
    pub fn unchecked(area: &'static str, message: impl Into<String>) -> Self {
        Self { level: FindingLevel::Unchecked, ..Self::ok(area, message) }
    }

    /// Something that works, and that an operator should look at.
    pub fn warning(area: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: FindingLevel::Warning, advice: Some(advice.into()), ..Self::ok(area, message) }
    }

    /// Something that does not work, and its remedy.
    pub fn problem(area: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: FindingLevel::Problem, ..Self::warning(area, message, advice) }
    }

    /// A problem whose message says what to do, or where nothing can be done from here.
    pub fn broken(area: &'static str, message: impl Into<String>) -> Self {
        Self { level: FindingLevel::Problem, ..Self::ok(area, message) }
    }

    /// The finding that a query failed.
    #[must_use]
    pub fn unasked(area: &'static str, what: &str, error: &ledger::read::Error) -> Self {
        Self::broken(area, format!("{what} cannot be asked: {error}"))
    }

    /// The finding as a warning, for something that works all the same.
    #[must_use]
    pub fn into_warning(self) -> Self {
        Self { level: FindingLevel::Warning, ..self }
    }

    /// The finding with facts for programs.
    #[must_use]
    pub fn with(self, details: &impl Serialize) -> Self {
        Self { details: serde_json::to_value(details).ok(), ..self }
    }
}
