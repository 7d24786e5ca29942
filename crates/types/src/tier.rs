//! Agreement tiers of writes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The approval that a write needs before it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// T1: no agreement is needed.
    #[default]
    Auto,
    /// T2: the user of the caller.
    Confirm,
    /// T3: a person who is not the caller.
    Approve,
}

impl Tier {
    /// Name in manifests, in the ledger and in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Confirm => "confirm",
            Self::Approve => "approve",
        }
    }
}
