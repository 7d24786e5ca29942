//! The agent's receipts.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A new one.
            #[must_use]
            #[expect(clippy::new_without_default, reason = "two new ids are never equal, a default would be")]
            pub fn new() -> Self {
                Self(Uuid::new_v4())
            }

            /// Reads the hyphenated form only: that is what the server gives out.
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
    /// UUID v4 of a mutation, from the operating system's random numbers (promises A2-05, X-07).
    CorrelationId
}

id! {
    /// UUID v4 of a write that waits for agreement.
    ProposalId
}

#[cfg(test)]
mod tests {
    use super::*;

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
