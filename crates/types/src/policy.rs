//! The policy of a tool: its rules and the limit of its calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Tier;

/// What a rule makes of the calls that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    /// The user of the caller has to agree.
    Confirm,
    /// A person who is not the caller has to agree.
    Approve,
    /// The call is refused.
    Deny,
}

impl RuleAction {
    /// Name in manifests, in the policy log and in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Confirm => "confirm",
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }

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

/// The most calls of a tool in a period that ends now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CallLimit {
    /// How many calls.
    pub calls: u32,
    /// The length of the period, in seconds.
    pub per_s: u32,
    /// Whose calls are counted together.
    pub by: LimitScope,
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
