//! The role and the claims under which the statements of a caller run, for row level security.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ErrorCode, Failure};

/// The maximum length of a claim's value, in bytes.
pub const MAX_CLAIM_BYTES: usize = 1024;

/// The maximum number of claims of a caller.
pub const MAX_CLAIMS: usize = 16;

/// The longest name of PostgreSQL, in bytes. A longer one would be cut, and could be that of another role.
const MAX_ROLE_BYTES: usize = 63;

/// The longest name of a claim, in bytes.
const MAX_NAME_BYTES: usize = 40;

/// A role that callers may have. PostgreSQL's own roles and those of the ledger are not among them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct RoleName(String);

/// The text is no [`RoleName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is no role for callers: {why}", crate::quoted(text))]
pub struct RoleNameError {
    text: String,
    why: &'static str,
}

impl RoleName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The failure of a call whose statements may not run as this role.
    #[must_use]
    pub fn refused(&self) -> Failure {
        Failure::new(
            ErrorCode::NotPermitted,
            format!("statements may not run as the role {self}; nothing was executed"),
        )
        .hint("Tell the operator: countersign doctor says why this role is refused.")
    }
}

impl TryFrom<String> for RoleName {
    type Error = RoleNameError;

    fn try_from(text: String) -> Result<Self, RoleNameError> {
        let is_name = !text.is_empty() && text.len() <= MAX_ROLE_BYTES && !text.chars().any(char::is_control);
        let why = match text.as_str() {
            _ if !is_name => "the name of a role has 1 to 63 bytes without control characters",
            "none" | "public" => "PostgreSQL has no role of this name",
            name if name.starts_with("pg_") => "it is one of PostgreSQL's own",
            name if name.starts_with("countersign_") => "roles of countersign begin with countersign_",
            _ => return Ok(Self(text)),
        };
        Err(RoleNameError { text, why })
    }
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::quoted(&self.0))
    }
}

/// The name of a claim in SQL: the setting `countersign.claim_NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct ClaimName(String);

/// The text is no [`ClaimName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is no name for a claim in SQL: it has 1 to 40 of a-z, 0-9 and _, and no digit first", crate::quoted(.0))]
pub struct ClaimNameError(String);

impl ClaimName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ClaimName {
    type Error = ClaimNameError;

    fn try_from(text: String) -> Result<Self, ClaimNameError> {
        let is_letter = |letter: u8| letter.is_ascii_lowercase() || letter == b'_';
        let mut letters = text.bytes();
        let is_name = text.len() <= MAX_NAME_BYTES
            && letters.next().is_some_and(is_letter)
            && letters.all(|letter| is_letter(letter) || letter.is_ascii_digit());
        if is_name { Ok(Self(text)) } else { Err(ClaimNameError(text)) }
    }
}

/// What the transactions of a caller have besides its account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerContext {
    /// The role that the statements run as; `None` for that of the login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleName>,
    /// The claims of the caller's token that the operator has chosen. One that the token does not have is empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<ClaimName, String>,
}

impl CallerContext {
    /// Whether the statements run as for a caller of whom only the account is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.role.is_none() && self.claims.is_empty()
    }

    /// The context as JSON; `None` if it is empty.
    #[must_use]
    pub fn to_json(&self) -> Option<String> {
        if self.is_empty() { None } else { serde_json::to_string(self).ok() }
    }

    /// The claims as people read them: `tenant = "acme", region = ""`; `None` without claims.
    #[must_use]
    pub fn claims_text(&self) -> Option<String> {
        let shown = |value: &str| crate::visible(&serde_json::Value::from(value).to_string());
        let claim = |(name, value): (&ClaimName, &String)| format!("{} = {}", name.as_str(), shown(value));
        let claims: Vec<String> = self.claims.iter().map(claim).collect();
        (!claims.is_empty()).then(|| claims.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_none_of_postgresqls_and_none_of_the_ledgers() {
        for name in ["app_eu", "App EU", "r\"x", "é"] {
            RoleName::try_from(name.to_owned()).unwrap();
        }
        let long = "x".repeat(64);
        for name in ["", "none", "public", "pg_read_all_data", "countersign_owner", "a\nb", &long] {
            let error = RoleName::try_from(name.to_owned()).unwrap_err().to_string();
            assert!(error.contains("is no role for callers") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn the_name_of_a_claim_is_part_of_a_setting() {
        for name in ["tenant", "_t", "org_id2"] {
            ClaimName::try_from(name.to_owned()).unwrap();
        }
        let long = "x".repeat(41);
        for name in ["", "2x", "Tenant", "a.b", "a-b", "https://x/tenant", &long] {
            ClaimName::try_from(name.to_owned()).unwrap_err();
        }
    }

    #[test]
    fn an_empty_context_has_no_json_and_another_one_is_read_back() {
        assert_eq!(CallerContext::default().to_json(), None);
        let claims = BTreeMap::from([(ClaimName("tenant".to_owned()), "a\"b".to_owned())]);
        let context = CallerContext { role: Some(RoleName("app_eu".to_owned())), claims };
        let json = context.to_json().unwrap();
        assert_eq!(json, r#"{"role":"app_eu","claims":{"tenant":"a\"b"}}"#);
        assert_eq!(serde_json::from_str::<CallerContext>(&json).unwrap(), context);
        serde_json::from_str::<CallerContext>(r#"{"role":"pg_monitor"}"#).unwrap_err();
    }
}
