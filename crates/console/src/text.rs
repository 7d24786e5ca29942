//! Words of the pages.

use types::visible;

/// Who proposed, for people.
pub(crate) fn proposer(actor: Option<&str>, account: &str) -> String {
    match actor {
        Some(actor) => format!("{} ({})", visible(actor), visible(account)),
        None => visible(account),
    }
}

/// `2026-11-23 18:04 UTC` of an RFC 3339 time.
pub(crate) fn to_the_minute(time: &str) -> String {
    let minute: String = time.chars().take(16).collect();
    format!("{} UTC", minute.replace('T', " "))
}

/// The first sentence of a description, and the rest.
pub(crate) fn sentences(description: &str) -> (String, String) {
    let (first, rest) = description.split_once(". ").unwrap_or((description, ""));
    (visible(first.trim_end_matches('.')), visible(rest))
}
