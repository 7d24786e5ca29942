//! What a write needs before it runs: who must agree, and whether the agent must say why.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many people have to approve a write of tier [`Tier::Approve`], and who.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRule {
    /// The number of people.
    pub approvals: u32,
    /// The group that they must belong to, a role of PostgreSQL; `None` if anyone who may decide can approve.
    pub approvers: Option<String>,
}

impl Default for ApprovalRule {
    fn default() -> Self {
        Self { approvals: 1, approvers: None }
    }
}

crate::text_enum! {
    /// The approval that a write needs before it runs.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Tier {
        /// T1: no agreement is needed.
        #[default]
        Auto = "auto",
        /// T2: the user of the caller.
        Confirm = "confirm",
        /// T3: a person who is not the caller.
        Approve = "approve",
    }
}

/// The argument of a write tool in which an agent says why it writes, for people.
pub const REASON: &str = "reason";

/// The maximum length of an agent's reason for a write, in characters.
pub const MAX_WRITE_REASON_CHARS: u32 = 500;

crate::text_enum! {
    /// Whether an agent must give a reason for a write.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ReasonRule {
        /// A call without a reason is accepted.
        #[default]
        Optional = "optional",
        /// A call without a reason is refused.
        Required = "required",
    }
}
