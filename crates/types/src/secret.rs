//! Text that no log, message or answer may show.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A password or a connection string. `Debug` and `Display` print `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret text itself, for the code that connects with it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Secret, E> {
                Ok(Secret::new(text))
            }

            // serde's default message would quote the value, which may be a password without its quotes.
            fn visit_i64<E: Error>(self, _: i64) -> Result<Secret, E> {
                Err(E::custom("a number instead of a string"))
            }

            fn visit_f64<E: Error>(self, _: f64) -> Result<Secret, E> {
                Err(E::custom("a number instead of a string"))
            }
        }
        deserializer.deserialize_str(Text)
    }
}
