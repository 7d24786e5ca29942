//! The name of a database of a server that has several.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A name: `[a-z][a-z0-9_]{0,31}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct DatabaseName(String);

impl DatabaseName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text is no [`DatabaseName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name for a database: a lower-case letter, then at most 31 of a-z, 0-9 and _")]
pub struct DatabaseNameError(String);

impl FromStr for DatabaseName {
    type Err = DatabaseNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for DatabaseName {
    type Error = DatabaseNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut letters = text.bytes();
        let is_name = letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'_')
            && text.len() <= 32;
        if is_name { Ok(Self(text)) } else { Err(DatabaseNameError(text)) }
    }
}

impl fmt::Display for DatabaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a database of a server with several is named to agents and people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DatabaseLabel {
    /// Its name in the configuration.
    #[serde(rename = "database")]
    pub name: DatabaseName,
    /// What it is used for, such as `production`; one line of text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// What agents should know of it.
    #[serde(skip)]
    pub description: Option<String>,
}

impl DatabaseLabel {
    /// Whether people should take particular care: the environment is `production`, `prod` or begins so.
    #[must_use]
    pub fn is_production(&self) -> bool {
        self.environment.as_ref().is_some_and(|environment| environment.starts_with("prod"))
    }
}

impl fmt::Display for DatabaseLabel {
    /// `shop (production)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.environment {
            Some(environment) => write!(f, "{} ({environment})", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_letter_and_letters_digits_and_underscores() {
        for name in ["a", "shop", "shop_2", &"a".repeat(32)] {
            assert_eq!(name.parse::<DatabaseName>().unwrap().as_str(), name);
        }
        for name in ["", "Shop", "2shop", "_a", "a-b", "a b", "é", "a\n", &"a".repeat(33)] {
            assert!(name.parse::<DatabaseName>().is_err(), "{name:?}");
        }
    }
}
