//! The keys of `[[tokens]]` and `[oauth]`, or `[[oauth]]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, Error};
use serde_spanned::Spanned;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use types::AccountId;

pub(super) const TOKENS: &str = "tokens";
pub(super) const OAUTH: &str = "oauth";

/// The keys of one token.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct TokenKeys {
    /// SHA-256 of the token, as `countersign token new` prints it: sha256: and 64 hexadecimal digits.
    #[schemars(with = "Option<String>", regex(pattern = "^sha256:[0-9a-fA-F]{64}$"))]
    pub(super) hash: Option<Spanned<String>>,
    /// Account of calls with this token: scope of its records, duplicates and idempotency keys.
    #[schemars(with = "Option<String>")]
    pub(super) account: Option<AccountId>,
    /// Profile of calls with this token: minimal, readonly, write (the default), admin, or a profile of this file.
    #[schemars(with = "Option<String>")]
    pub(super) profile: Option<Spanned<String>>,
    /// Databases that calls with this token reach, by name. Default: all that the profile reaches.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) databases: Option<Vec<Spanned<String>>>,
    /// Label for the records: the agent or person that has the token.
    #[schemars(with = "Option<String>")]
    pub(super) label: Option<Spanned<String>>,
    /// Time at which the token expires: 2027-01-01T00:00:00Z. Default: never.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub(super) expires: Option<Expiry>,
}

/// The keys of an issuer, without the table of its scopes.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct OAuthKeys {
    /// Issuer whose JWTs are accepted: the exact claim iss.
    #[schemars(with = "Option<String>")]
    pub(super) issuer: Option<Spanned<String>>,
    /// Expected claim aud. Default: public_url with /mcp, which is what clients ask the issuer for.
    #[schemars(with = "Option<String>")]
    pub(super) audience: Option<Spanned<String>>,
    /// Address of the issuer's keys: https, or http on this machine. Fetched when needed, and every hour. Default: the
    /// jwks_uri of the issuer's metadata (RFC 8414 or OpenID Connect).
    #[schemars(with = "Option<String>")]
    pub(super) jwks_url: Option<Spanned<String>>,
    /// Instead of jwks_url: file with the issuer's keys, read at the start and at SIGHUP.
    #[schemars(with = "Option<String>")]
    pub(super) jwks_file: Option<Spanned<String>>,
    /// Claim with the account. Default: sub.
    #[schemars(with = "Option<String>")]
    pub(super) account_claim: Option<Spanned<String>>,
    /// Prefix of these accounts. Default: oauth:, so that no name at the issuer equals the account of a token. Of
    /// several issuers each needs its own.
    #[schemars(with = "Option<String>")]
    pub(super) account_prefix: Option<Spanned<String>>,
    /// Claim with the label for the records.
    #[schemars(with = "Option<String>")]
    pub(super) label_claim: Option<Spanned<String>>,
    /// Claim with the role of PostgreSQL that the statements of a call run as. A token without it is refused.
    #[schemars(with = "Option<String>")]
    pub(super) role_claim: Option<Spanned<String>>,
    /// Roles that role_claim may name. The logins of the server must be members of each.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) roles: Option<Vec<Spanned<String>>>,
    /// Claims that policies of row level security can use: countersign.claim('tenant'). A list of
    /// names, or a table with the claim of each name.
    #[schemars(with = "Option<ClaimKeys>")]
    pub(super) claims: Option<Spanned<ClaimKeys>>,
    /// Scopes that clients should request. Default: all of scopes.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) request_scopes: Option<Vec<Spanned<String>>>,
}

// No doc comment: the key has one, and the schema of the configuration would have this one instead.
#[derive(Debug, Clone, serde::Deserialize, JsonSchema)]
#[serde(untagged, expecting = "it is a list of names, or a table with the claim of each name")]
pub(super) enum ClaimKeys {
    Names(Vec<String>),
    Table(BTreeMap<String, String>),
}

/// A date and a time with its offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expiry(pub(super) OffsetDateTime);

impl<'de> Deserialize<'de> for Expiry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const FORM: &str = "it takes a date and a time with its offset, without quotes: 2027-01-01T00:00:00Z";
        let given = toml::value::Datetime::deserialize(deserializer).map_err(|_| D::Error::custom(FORM))?;
        OffsetDateTime::parse(&given.to_string(), &Rfc3339).map(Self).map_err(|_| D::Error::custom(FORM))
    }
}
