//! The arguments of `countersign token`.

use auth::{LABEL_RULE, is_label};
use clap::{Args, Subcommand};
use tools::Profile;
use types::{AccountId, Age, DatabaseName};

use crate::settings::is_profile_name;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, print it once, and print its table for the configuration. Needs no database.
    New(NewArgs),
    /// Read a token from standard input, and print its hash for the configuration.
    Hash,
}

#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// Account of calls with this token: scope of its records, duplicates and idempotency keys.
    #[arg(long)]
    pub(crate) account: AccountId,
    /// Profile of calls with this token: minimal, readonly, write, admin, or a profile of the configuration file.
    #[arg(long, default_value = Profile::DEFAULT, value_parser = profile)]
    pub(crate) profile: String,
    /// Databases that calls with this token reach, separated by commas. Default: all that the profile reaches.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) databases: Option<Vec<DatabaseName>>,
    /// Label for the records: the agent or person that gets the token.
    #[arg(long, value_parser = label)]
    pub(crate) label: Option<String>,
    /// Time until the token expires: 12h, 90d or 52w. Default: never.
    #[arg(long, value_name = "TIME")]
    pub(crate) expires_in: Option<Age>,
    /// Print one JSON object: token, hash, account, profile, label, expires, toml.
    #[arg(long)]
    pub(crate) json: bool,
}

fn profile(text: &str) -> Result<String, String> {
    if is_profile_name(text) {
        Ok(text.to_owned())
    } else {
        Err("a profile is called by a lower-case letter, then at most 31 of a-z, 0-9, _ and -".to_owned())
    }
}

fn label(text: &str) -> Result<String, String> {
    if is_label(text) { Ok(text.to_owned()) } else { Err(format!("a label takes {LABEL_RULE}")) }
}
