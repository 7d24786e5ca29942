//! The settings of `execute_sql`.

use clap::ValueEnum;
use ledger::ModificationLimits;
use ledger::read::ReadLimits;
use schemars::JsonSchema;
use serde::Deserialize;
use tools::ExecuteSqlSettings;
use types::{ReasonRule, Tier};

/// The most rows that a statement may change in the mode `rows`, by default.
pub(super) const DEFAULT_MAX_ROWS: u64 = 100;

/// What agents may do with execute_sql.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExecuteSqlMode {
    /// The tool is not served.
    #[default]
    Off,
    /// One INSERT, UPDATE, DELETE or MERGE of tracked tables, for the profiles write and admin.
    Rows,
    /// One arbitrary statement, for the profile admin.
    Any,
}

/// Who must agree to a call of execute_sql.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExecuteSqlTier {
    /// Nobody.
    Auto,
    /// The caller's user.
    Confirm,
    /// A person other than the caller.
    Approve,
}

types::same_variants! { ExecuteSqlTier => Tier { Auto, Confirm, Approve } }

/// Whether every call of execute_sql needs a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExecuteSqlReason {
    /// It may give one.
    Optional,
    /// A call without one is refused.
    Required,
}

types::same_variants! { ExecuteSqlReason => ReasonRule { Optional, Required } }

impl ExecuteSqlMode {
    /// The settings of the tool; `None` if it is not served.
    pub(super) fn settings(
        self,
        tier: Option<ExecuteSqlTier>,
        reason: ReasonRule,
        modifications: ModificationLimits,
        limits: &ReadLimits,
    ) -> Option<ExecuteSqlSettings> {
        let (default, modifications) = match self {
            Self::Off => return None,
            Self::Rows => (Tier::Confirm, Some(modifications)),
            Self::Any => (Tier::Approve, None),
        };
        let tier = tier.map_or(default, Tier::from);
        Some(ExecuteSqlSettings { limits: limits.clone(), tier, reason, modifications })
    }
}
