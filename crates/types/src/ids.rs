//! The ids of writes and proposals.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            #[must_use]
            #[expect(clippy::new_without_default, reason = "two new ids are never equal, a default would be")]
            pub fn new() -> Self {
                Self(Uuid::new_v4())
            }

            /// Parses the hyphenated form only, which is the form that the server prints.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                (text.len() == 36).then(|| Uuid::try_parse(text).ok()).flatten().map(Self)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }
    };
}

id! {
    /// The UUID v4 of a record, from the operating system's random numbers.
    CorrelationId
}

id! {
    /// The UUID v4 of a proposal.
    ProposalId
}

id! {
    /// The UUID v4 of a schema change.
    SchemaChangeId
}

/// The first characters of an id in its hyphenated form, as a person types them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdPrefix(String);

impl IdPrefix {
    /// The minimum length, in characters.
    pub const MIN_CHARS: usize = 4;

    /// Parses the first 4 to 36 characters of an id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = |(at, byte): (usize, u8)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        };
        let is_prefix = (Self::MIN_CHARS..=36).contains(&text.len()) && text.bytes().enumerate().all(fits);
        is_prefix.then(|| Self(text.to_ascii_lowercase()))
    }

    /// The prefix, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The smallest and the largest id with this prefix, in PostgreSQL's order of UUIDs.
    #[must_use]
    pub fn range(&self) -> [String; 2] {
        ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"].map(|filler| {
            let rest = filler.get(self.0.len()..).unwrap_or_default();
            format!("{}{rest}", self.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_an_id_covers_the_ids_that_begin_like_it() {
        let range = |text: &str| IdPrefix::parse(text).map(|prefix| prefix.range());
        let between = |low: &str, high: &str| Some([low.to_owned(), high.to_owned()]);
        assert_eq!(
            range("0B9f7c52-6"),
            between("0b9f7c52-6000-0000-0000-000000000000", "0b9f7c52-6fff-ffff-ffff-ffffffffffff")
        );
        let whole = CorrelationId::new().to_string();
        assert_eq!(range(&whole), between(&whole, &whole));
        for wrong in ["", "abc", "0b9f7c526", "0b9f-", "0b9g", "0b9%", &format!("{whole}0")] {
            assert_eq!(range(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ten_thousand_ids_are_different_and_version_4() {
        let ids: std::collections::HashSet<String> = (0..10_000).map(|_| CorrelationId::new().to_string()).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19])));
    }

    #[test]
    fn only_the_hyphenated_form_is_read() {
        let id = CorrelationId::new();
        assert_eq!(CorrelationId::parse(&id.to_string()), Some(id));
        assert_eq!(CorrelationId::parse(&id.to_string().replace('-', "")), None);
        assert_eq!(CorrelationId::parse("abc"), None);
    }
}
