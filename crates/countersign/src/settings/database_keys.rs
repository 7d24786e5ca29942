//! The keys of `[database.NAME]` that no flag gives.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_spanned::Spanned;

use super::keys::LIMITS;
use super::reads_keys::READS;

/// The table of the databases.
pub(super) const TABLE: &str = "database";

/// The tables of groups within that of a database.
pub(super) const INNER: [&str; 2] = [LIMITS, READS];

/// The keys of a database that no flag gives.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct DatabaseTableKeys {
    /// What the database is used for, such as production. Agents and people see it in every answer.
    #[schemars(with = "Option<String>")]
    pub(super) environment: Option<Spanned<String>>,
    /// What agents should know of the database.
    #[schemars(with = "Option<String>")]
    pub(super) description: Option<Spanned<String>>,
    /// Prefix of the names of the tools of its manifests, where another database has other tools of the same names.
    #[schemars(with = "Option<String>")]
    pub(super) prefix: Option<Spanned<String>>,
}
