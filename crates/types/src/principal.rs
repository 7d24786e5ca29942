//! The caller of a tool.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{CallerContext, ClientInfo};

/// The account on whose behalf a call is made. Records, duplicates and idempotency keys belong to an account.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct AccountId(String);

impl AccountId {
    /// Accepts a non-empty text of at most 255 bytes without control characters.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let fits = !text.is_empty() && text.len() <= 255 && !text.chars().any(char::is_control);
        fits.then_some(Self(text))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is not a valid account name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an account takes 1 to 255 bytes without control characters")]
pub struct AccountIdError;

impl TryFrom<String> for AccountId {
    type Error = AccountIdError;

    fn try_from(text: String) -> Result<Self, AccountIdError> {
        Self::new(text).ok_or(AccountIdError)
    }
}

impl std::str::FromStr for AccountId {
    type Err = AccountIdError;

    fn from_str(text: &str) -> Result<Self, AccountIdError> {
        Self::new(text).ok_or(AccountIdError)
    }
}

impl From<AccountId> for String {
    fn from(account: AccountId) -> Self {
        account.0
    }
}

impl Default for AccountId {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

/// The caller. On stdio it comes from the configuration, over HTTP from the bearer token, and never from a tool
/// argument.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Principal {
    pub account_id: AccountId,
    /// A label for people: the agent or the person. It decides only where an operator names it: in freezes, rules and
    /// limits.
    pub actor: Option<String>,
    /// The role and the claims under which its statements run.
    pub context: Arc<CallerContext>,
    /// The client of the call. It is recorded, and never used for a decision.
    pub client: ClientInfo,
}

impl Principal {
    /// The value of `principal.<field>`, for parameters that the server fills in. `None` for an unknown field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        match name {
            "account_id" => Some(self.account_id.as_str()),
            _ => None,
        }
    }

    /// The fields that a manifest can name after `principal.`.
    pub const FIELDS: [&'static str; 1] = ["account_id"];
}
