//! The policy of a tool: its rules and the limit of its calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Tier;

crate::text_enum! {
    /// What a rule makes of the calls that it matches.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum RuleAction {
        /// The user of the caller has to agree.
        Confirm = "confirm",
        /// A person who is not the caller has to agree.
        Approve = "approve",
        /// The call is refused.
        Deny = "deny",
    }
}

impl RuleAction {
    /// The tier that it requires; `None` if it refuses the call.
    #[must_use]
    pub const fn tier(self) -> Option<Tier> {
        match self {
            Self::Confirm => Some(Tier::Confirm),
            Self::Approve => Some(Tier::Approve),
            Self::Deny => None,
        }
    }
}

/// A rule of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The condition: a boolean SQL expression over the parameters of the tool, as people read it.
    pub when: String,
    /// The consequence for calls that meet the condition.
    pub then: RuleAction,
    /// The reason, for agents and reviewers; 1 to 200 characters.
    pub message: Option<String>,
}

/// The most calls of a tool, and the most rows that they change, in a period that ends now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ToolLimit {
    /// How many calls; `None` for any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
    /// How many rows; `None` for any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u32>,
    /// The length of the period, in seconds.
    pub per_s: u32,
    /// Whose calls are counted together.
    pub by: LimitScope,
}

impl ToolLimit {
    /// The two numbers in words: "50 calls and 1000 rows".
    #[must_use]
    pub fn amount(&self) -> String {
        let calls = self.calls.map(|calls| format!("{calls} calls"));
        let rows = self.rows.map(|rows| format!("{rows} rows"));
        calls.into_iter().chain(rows).collect::<Vec<_>>().join(" and ")
    }
}

/// Whose calls a limit counts together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// Those of an account.
    #[default]
    Account,
    /// Those of an actor of an account; calls without an actor count as those of one.
    Actor,
}

impl LimitScope {
    /// Name in manifests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Actor => "actor",
        }
    }
}
