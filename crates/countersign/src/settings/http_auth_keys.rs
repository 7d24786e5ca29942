//! The keys of `[[tokens]]` and `[oauth]`.

use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, Error};
use serde_spanned::Spanned;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use types::AccountId;

/// The list of the tokens.
pub(super) const TOKENS: &str = "tokens";
/// The table of the issuer.
pub(super) const OAUTH: &str = "oauth";

/// The keys of one token.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct TokenKeys {
    /// SHA-256 of the token, as `countersign token new` prints it: sha256: and 64 hexadecimal digits.
    #[schemars(with = "Option<String>", regex(pattern = "^sha256:[0-9a-fA-F]{64}$"))]
    pub(super) hash: Option<Spanned<String>>,
    /// On whose behalf whoever has the token calls: scope of the records, of duplicates and of idempotency keys.
    #[schemars(with = "Option<String>")]
    pub(super) account: Option<AccountId>,
    /// Which tools it sees: readonly, write (the default), admin, or a profile of this file.
    #[schemars(with = "Option<String>")]
    pub(super) profile: Option<Spanned<String>>,
    /// A label for the records: which agent or which person has the token.
    #[schemars(with = "Option<String>")]
    pub(super) label: Option<Spanned<String>>,
    /// From when on it counts no more: 2027-01-01T00:00:00Z. Without, it always counts.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub(super) expires: Option<Expiry>,
}

impl TokenKeys {
    pub(super) const NAMES: &[&str] = &["hash", "account", "profile", "label", "expires"];
}

/// The keys of the issuer, without the table of its scopes.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct OAuthKeys {
    /// Who signs the tokens: the claim iss, to the letter.
    #[schemars(with = "Option<String>")]
    pub(super) issuer: Option<Spanned<String>>,
    /// What the claim aud must have; public_url with /mcp by default, which is what clients ask the issuer for.
    #[schemars(with = "Option<String>")]
    pub(super) audience: Option<Spanned<String>>,
    /// Where the issuer's keys stand: https, or http on this machine. Looked up when needed, and every hour.
    #[schemars(with = "Option<String>")]
    pub(super) jwks_url: Option<Spanned<String>>,
    /// Or a file with them, read at the start and at SIGHUP.
    #[schemars(with = "Option<String>")]
    pub(super) jwks_file: Option<Spanned<String>>,
    /// The claim that names the account; sub by default.
    #[schemars(with = "Option<String>")]
    pub(super) account_claim: Option<Spanned<String>>,
    /// What is put before it; oauth: by default, so that nobody has the account of a token by their name.
    #[schemars(with = "Option<String>")]
    pub(super) account_prefix: Option<Spanned<String>>,
    /// The claim that is the label for the records.
    #[schemars(with = "Option<String>")]
    pub(super) label_claim: Option<Spanned<String>>,
    /// The scopes that clients are told to ask for; all of scopes by default.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) request_scopes: Option<Vec<Spanned<String>>>,
}

impl OAuthKeys {
    pub(super) const NAMES: &[&str] = &[
        "issuer",
        "audience",
        "jwks_url",
        "jwks_file",
        "account_claim",
        "account_prefix",
        "label_claim",
        "request_scopes",
    ];
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
