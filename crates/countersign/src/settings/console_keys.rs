//! The keys of `[console]` and `[console.oidc]`.
#![allow(rustdoc::broken_intra_doc_links, reason = "doc comments of keys are help texts, not Markdown")]

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_spanned::Spanned;
use types::{Age, Secret, TimeError};

use super::addresses::ConsoleUrl;
use super::key_group::keys;
use super::secrets::parse_secret;

pub(super) const CONSOLE: &str = "console";
/// The table in it of the provider where people sign in.
pub(super) const OIDC: &str = "oidc";
/// Both, as messages and the schema name them.
pub(super) const CONSOLE_OIDC: &str = "console.oidc";

keys! {
    /// The console: the table `[console]`.
    ConsoleKeys {
        /// Address at which browsers reach the console, such as https://console.example.com. Default: the address
        /// that it listens on.
        #[arg(id = "console_url", long = "url", env = "COUNTERSIGN_CONSOLE_URL", value_name = "URL")]
        url: ConsoleUrl,
        /// Time since the last sign-in within which a person can approve: 15m, 1h (the default), at most 12h; or
        /// session, as long as the session. Later, the person signs in again first.
        #[arg(id = "console_approve_within", long = "approve-within", env = "COUNTERSIGN_CONSOLE_APPROVE_WITHIN", value_name = "TIME")]
        approve_within: ApproveWithin,
    }
}

keys! {
    /// The secret of the console at the provider: part of `[console.oidc]`.
    OidcSecretKeys {
        /// Secret of the console at the provider. Default: a public client, which has none.
        #[arg(id = "console_oidc_client_secret", long = "oidc-client-secret", env = "COUNTERSIGN_CONSOLE_OIDC_CLIENT_SECRET",
              hide_env_values = true, value_parser = parse_secret, value_name = "SECRET")]
        #[schemars(with = "Option<String>")]
        client_secret: Secret,
        /// File with the secret of the console at the provider. A final line break is ignored.
        #[arg(id = "console_oidc_client_secret_file", long = "oidc-client-secret-file",
              env = "COUNTERSIGN_CONSOLE_OIDC_CLIENT_SECRET_FILE", value_name = "FILE")]
        client_secret_file: PathBuf,
    }
}

keys! {
    /// The login of the console that undoes and freezes.
    OperatorKeys {
        /// Connection string of a login with the role countersign_operator and the privileges that undone writes
        /// need, for the console. Without it the console cannot undo writes or freeze accounts.
        #[arg(long, env = "COUNTERSIGN_OPERATOR_URL", hide_env_values = true, value_parser = parse_secret)]
        #[schemars(with = "Option<String>")]
        operator_url: Secret,
        /// File with the connection string of the operator's login.
        #[arg(long, env = "COUNTERSIGN_OPERATOR_URL_FILE", value_name = "FILE")]
        operator_url_file: PathBuf,
    }
}

/// The other keys of the provider, without the table of its groups.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct OidcKeys {
    /// Issuer of the provider: the exact claim iss of its ID tokens. Its discovery document is fetched when a person
    /// signs in, and every hour.
    #[schemars(with = "Option<String>")]
    pub(super) issuer: Option<Spanned<String>>,
    /// Id of the console at the provider.
    #[schemars(with = "Option<String>")]
    pub(super) client_id: Option<Spanned<String>>,
    /// Name of the provider on the login page. Default: the issuer without https://.
    #[schemars(with = "Option<String>")]
    pub(super) name: Option<Spanned<String>>,
    /// Scopes that the console asks for. Default: openid, email, profile.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) scopes: Option<Vec<Spanned<String>>>,
    /// Claim with the name of the person, which decisions are recorded with. Default: email, which counts only if
    /// email_verified is true.
    #[schemars(with = "Option<String>")]
    pub(super) person_claim: Option<Spanned<String>>,
    /// Claim with the groups of the person. Default: groups.
    #[schemars(with = "Option<String>")]
    pub(super) groups_claim: Option<Spanned<String>>,
    /// People who also undo writes and freeze accounts, by the value of person_claim.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) operators: Option<Vec<Spanned<String>>>,
    /// Groups whose members also undo writes and freeze accounts.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) operator_groups: Option<Vec<Spanned<String>>>,
    /// People who decide on proposals, by the value of person_claim.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) reviewers: Option<Vec<Spanned<String>>>,
    /// Groups whose members decide on proposals.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) reviewer_groups: Option<Vec<Spanned<String>>>,
    /// People who read, by the value of person_claim.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) auditors: Option<Vec<Spanned<String>>>,
    /// Groups whose members read.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) auditor_groups: Option<Vec<Spanned<String>>>,
}

/// The time since a sign-in within which the person approves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ApproveWithin(Option<Duration>);

/// As long as a session can be.
const MAX_SECONDS: u64 = 12 * 3600;
const MIN_SECONDS: u64 = 60;

impl ApproveWithin {
    /// The time; `None` for the whole session.
    pub(super) const fn time(self) -> Option<Duration> {
        self.0
    }
}

impl FromStr for ApproveWithin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "session" {
            return Ok(Self(None));
        }
        match text.parse::<Age>() {
            Ok(age) if (MIN_SECONDS..=MAX_SECONDS).contains(&age.as_secs()) => Ok(Self(Some(age.duration()))),
            Ok(_) | Err(TimeError::Zero(_) | TimeError::TooLong(_)) => {
                Err(format!("{text:?} is out of bounds: it takes 1m to 12h, or session"))
            }
            Err(_) => Err(format!("{text:?} is not a time: it is one such as 15m, 1h or 1h30m, or session")),
        }
    }
}

impl TryFrom<String> for ApproveWithin {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl JsonSchema for ApproveWithin {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ApproveWithin".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^([0-9]+ ?[a-z]+( ?[0-9]+ ?[a-z]+)*|session)$"})
    }
}
