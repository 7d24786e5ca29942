//! The findings of a check of a ledger and of the servers that use it.

use serde::Serialize;
use serde_json::Value;

types::text_enum! {
    /// The level of a finding.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum FindingLevel {
        /// Nothing is wrong.
        Ok = "ok",
        /// The check was not made.
        Unchecked = "unchecked",
        /// It works, but an operator should look at it.
        Warning = "warning",
        /// Something does not work, or waits forever.
        Problem = "problem",
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    pub level: FindingLevel,
    /// The area that was checked, in one word.
    pub area: &'static str,
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Details for programs, if the finding is about one record or proposal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl Finding {
    /// A check that found nothing wrong.
    pub fn ok(area: &'static str, message: impl Into<String>) -> Self {
        Self { level: FindingLevel::Ok, area, message: message.into(), advice: None, details: None }
    }

    /// A check that was not made. The message says how it can be made.
    pub fn unchecked(area: &'static str, message: impl Into<String>) -> Self {
        Self { level: FindingLevel::Unchecked, ..Self::ok(area, message) }
    }

    /// A state that works, but that an operator should look at.
    pub fn warning(area: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: FindingLevel::Warning, advice: Some(advice.into()), ..Self::ok(area, message) }
    }

    /// A state that does not work, and what to do about it.
    pub fn problem(area: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: FindingLevel::Problem, ..Self::warning(area, message, advice) }
    }

    /// A problem without advice: the message says what to do, or nothing can be done here.
    pub fn broken(area: &'static str, message: impl Into<String>) -> Self {
        Self { level: FindingLevel::Problem, ..Self::ok(area, message) }
    }

    /// A check whose query failed. A busy database is no problem of what was to be checked.
    #[must_use]
    pub fn unasked(area: &'static str, what: &str, error: &ledger::read::Error) -> Self {
        let message = format!("{what} cannot be asked: {error}");
        match error {
            ledger::read::Error::Deadline => Self::unchecked(area, message),
            _ => Self::broken(area, message),
        }
    }

    /// Lowers the level to a warning, for a state that works nevertheless.
    #[must_use]
    pub fn into_warning(self) -> Self {
        Self { level: FindingLevel::Warning, ..self }
    }

    /// Adds details for programs.
    #[must_use]
    pub fn with(self, details: &impl Serialize) -> Self {
        Self { details: serde_json::to_value(details).ok(), ..self }
    }
}
