//! Values of PostgreSQL as text and as JSON.

use pg::value::text_array;
use serde_json::{Map, Value};
use types::{Column, CorrelationId};

/// RFC 3339 with milliseconds and Z, whatever the session's time zone.
macro_rules! rfc3339 {
    ($column:literal) => {
        concat!("to_char(", $column, " at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')")
    };
}
pub(crate) use rfc3339;

/// The correlation ids as a PostgreSQL array.
pub(crate) fn array(writes: &[CorrelationId]) -> String {
    text_array(&writes.iter().map(ToString::to_string).collect::<Vec<_>>())
}

pub(crate) fn as_object(row: &[Option<String>], columns: &[Column]) -> Map<String, Value> {
    columns
        .iter()
        .zip(row)
        .map(|(column, text)| (column.name.clone(), pg::value::decode(text.as_deref(), &column.ty)))
        .collect()
}

const SUMMARY_BYTES: usize = 500;

/// Cuts a text to 500 bytes, at a character boundary.
pub(crate) fn summary(text: &str) -> String {
    if text.len() <= SUMMARY_BYTES {
        return text.to_owned();
    }
    const MARK: &str = "…";
    let mut end = SUMMARY_BYTES - MARK.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MARK}", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_never_cut_inside_a_character() {
        for padding in 0..5 {
            let text = format!("{}{}", "x".repeat(490 + padding), "😀".repeat(10));
            let short = summary(&text);
            assert!(short.len() <= 500 && short.ends_with('…'), "{} bytes", short.len());
        }
        assert_eq!(summary("short"), "short");
    }
}
