//! Words of the pages.

use serde_json::{Map, Value};
use types::visible;

/// Something that a page says about its subject.
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) value: FactValue,
}

/// How a value is shown.
pub(crate) enum FactValue {
    Text(String),
    /// An RFC 3339 time.
    Time(String),
    Link {
        to: String,
        text: String,
    },
}

impl Fact {
    pub(crate) fn text(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, value: FactValue::Text(text.into()) }
    }

    pub(crate) fn time(name: &'static str, time: impl Into<String>) -> Self {
        Self { name, value: FactValue::Time(time.into()) }
    }

    pub(crate) fn link(name: &'static str, to: String, text: String) -> Self {
        Self { name, value: FactValue::Link { to, text } }
    }
}

/// Who proposed, for people.
pub(crate) fn proposer(actor: Option<&str>, account: &str) -> String {
    match actor {
        Some(actor) => format!("{} ({})", visible(actor), visible(account)),
        None => visible(account),
    }
}

/// `2026-11-23 18:04 UTC` of an RFC 3339 time.
pub(crate) fn to_the_minute(time: impl AsRef<str>) -> String {
    let minute: String = time.as_ref().chars().take(16).collect();
    format!("{} UTC", minute.replace('T', " "))
}

/// The first sentence of a description, and the rest.
pub(crate) fn sentences(description: &str) -> (String, String) {
    let (first, rest) = description.split_once(". ").unwrap_or((description, ""));
    (visible(first.trim_end_matches('.')), visible(rest))
}

/// `1 row`, `3 rows`.
pub(crate) fn rows(count: u64) -> String {
    format!("{count} row{}", if count == 1 { "" } else { "s" })
}

/// A text of a record, with control and formatting characters made visible; `None` for null.
pub(crate) fn field(record: &Map<String, Value>, name: &str) -> Option<String> {
    match record.get(name)? {
        Value::Null => None,
        Value::String(text) => Some(visible(text)),
        other => Some(visible(&other.to_string())),
    }
}

/// The state of a record: `reversed` if later writes have undone it.
pub(crate) fn record_status(record: &Map<String, Value>) -> String {
    match record.get("is_reversed") {
        Some(Value::Bool(true)) => "reversed".to_owned(),
        _ => field(record, "status").unwrap_or_default(),
    }
}

/// A query string of the fields that have a value: `?tool=set_status&actor=anna`, or nothing.
pub(crate) fn query_string<'a>(fields: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in fields {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            query.append_pair(name, &value);
        }
    }
    let query = query.finish();
    if query.is_empty() { query } else { format!("?{query}") }
}
