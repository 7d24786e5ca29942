//! The settings of `execute_sql`.

use clap::ValueEnum;
use ledger::ModificationLimits;
use ledger::read::ReadLimits;
use schemars::JsonSchema;
use serde::Deserialize;
use tools::ExecuteSqlSettings;
use types::Tier;

use super::keys::ServeKeys;

const DEFAULT_MAX_ROWS: u64 = 100;

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

/// The settings of the tool; `None` if it is not served.
pub(super) fn execute_sql(keys: &ServeKeys, limits: &ReadLimits) -> Option<ExecuteSqlSettings> {
    let (default, modifications) = match keys.execute_sql.unwrap_or_default() {
        ExecuteSqlMode::Off => return None,
        ExecuteSqlMode::Any => (Tier::Approve, None),
        ExecuteSqlMode::Rows => {
            let max_rows = keys.execute_sql_max_rows.map_or(DEFAULT_MAX_ROWS, |rows| rows.get().into());
            let tables = keys.execute_sql_tables.clone().unwrap_or_default();
            (Tier::Confirm, Some(ModificationLimits { max_rows, tables }))
        }
    };
    let tier = keys.execute_sql_tier.map_or(default, Tier::from);
    Some(ExecuteSqlSettings { limits: limits.clone(), tier, modifications })
}
