//! Parses dates and times with time zone, in the forms of RFC 3339 and of PostgreSQL's output.

use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

/// PostgreSQL's precision: the number of fractional digits of a second.
const FRACTION_DIGITS: usize = 6;

/// Whether the text is a date and time with time zone: `2026-01-31T13:45:00+00:00`, `2026-01-31 13:45:00+00`, or
/// PostgreSQL's `infinity`.
#[must_use]
pub fn is_timestamp(text: &str) -> bool {
    matches!(text, "infinity" | "-infinity") || parsed(text).is_some()
}

/// The same time in UTC, in a canonical spelling. `None` if the text is not such a time, or if PostgreSQL would round
/// it.
#[must_use]
pub fn timestamp_in_utc(text: &str) -> Option<String> {
    let fraction = text.split_once('.').map_or("", |(_, rest)| rest);
    let digits = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
    let time = parsed(text).filter(|_| digits <= FRACTION_DIGITS)?.checked_to_offset(UtcOffset::UTC)?;
    let (date, clock) = (time.date(), time.time());
    let (year, month, day) = date.to_calendar_date();
    let (hour, minute, second, micros) = clock.as_hms_micro();
    let fraction = format!(".{micros:06}");
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    let month = u8::from(month);
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}+00:00"))
}

fn parsed(text: &str) -> Option<OffsetDateTime> {
    let mut text = text.to_owned();
    if text.as_bytes().get(DATE_BYTES) == Some(&b' ') {
        text.replace_range(DATE_BYTES..=DATE_BYTES, "T");
    }
    // The offset consists of hours only.
    if text
        .len()
        .checked_sub(3)
        .filter(|at| *at > DATE_BYTES)
        .is_some_and(|at| text.get(at..).is_some_and(|end| end.starts_with(['+', '-'])))
    {
        text.push_str(":00");
    }
    OffsetDateTime::parse(&text, &Rfc3339).ok()
}

/// The length of `2026-01-31`, in bytes.
const DATE_BYTES: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// N-12, N-27
    #[test]
    fn the_same_time_has_one_spelling() {
        for (text, expected) in [
            ("2026-01-31T13:45:00+00:00", Some("2026-01-31T13:45:00+00:00")),
            ("2026-01-31T13:45:00Z", Some("2026-01-31T13:45:00+00:00")),
            ("2026-01-31 13:45:00+00", Some("2026-01-31T13:45:00+00:00")),
            ("2026-01-31 08:15:00.500000-05:30", Some("2026-01-31T13:45:00.5+00:00")),
            ("2026-02-01T00:45:00+11:00", Some("2026-01-31T13:45:00+00:00")),
            ("2026-01-31T13:45:00.1234567Z", None),
            ("9999-12-31T23:59:59-01:00", None),
            ("2026-01-31", None),
            ("2026-01-31 13:45:00", None),
            ("2026-02-30 13:45:00+00", None),
            ("infinity", None),
            ("tomorrow", None),
            ("2026-01-3é 13:45:00+00", None),
            ("", None),
        ] {
            assert_eq!(timestamp_in_utc(text).as_deref(), expected, "{text}");
        }
        assert!(is_timestamp("2026-01-31 13:45:00+00") && is_timestamp("infinity"));
        assert!(is_timestamp("2026-01-31T13:45:00.1234567Z") && is_timestamp("9999-12-31T23:59:59-01:00"));
        assert!(!is_timestamp("2026-01-31 13:45:00") && !is_timestamp("next week"));
    }
}
