//! Times as people read them.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The distance of a time from now: `12 s ago`, `3 days ago`, `in 25 min`. A text that is not an RFC 3339 time is
/// shown as it is.
#[must_use]
pub fn ago(time: &str, now: SystemTime) -> String {
    let Ok(time_read) = OffsetDateTime::parse(time, &Rfc3339) else { return types::visible(time) };
    let time_read = SystemTime::from(time_read);
    match now.duration_since(time_read) {
        Ok(past) => format!("{} ago", rounded(past, SHORT)),
        Err(error) => format!("in {}", rounded(error.duration(), SHORT)),
    }
}

/// The names of days, hours, minutes and seconds.
pub type Units = [&'static str; 4];

const SHORT: Units = ["days", "h", "min", "s"];

/// Units for sentences.
pub const WORDS: Units = ["days", "hours", "minutes", "seconds"];

/// The duration in the largest unit of which there are at least two.
#[must_use]
pub fn rounded(duration: Duration, [days, hours, minutes, seconds]: Units) -> String {
    let units = [(86_400, days), (3600, hours), (60, minutes)];
    let largest = units.into_iter().find(|(unit, _)| duration.as_secs() >= 2 * unit);
    let (unit, name) = largest.unwrap_or((1, seconds));
    format!("{} {name}", duration.as_secs() / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_the_largest_unit_that_fits_twice() {
        let now = SystemTime::from(OffsetDateTime::parse("2026-03-05T12:00:00Z", &Rfc3339).unwrap());
        for (time, told) in [
            ("2026-03-05T12:00:00.000Z", "0 s ago"),
            ("2026-03-05T11:58:01.000Z", "119 s ago"),
            ("2026-03-05T11:58:00.000Z", "2 min ago"),
            ("2026-03-05T09:59:00.000Z", "2 h ago"),
            ("2026-03-03T12:00:00.000Z", "2 days ago"),
            ("2025-03-05T12:00:00.000Z", "365 days ago"),
            ("2026-03-05T12:30:00.000Z", "in 30 min"),
            ("soon", "soon"),
        ] {
            assert_eq!(ago(time, now), told, "{time}");
        }
    }
}
