//! Points and spans of time as people type them: `90s`, `1h30m`, `'1 hour ago'`, `yesterday`, `14:00`,
//! `'2026-11-22 09:00'`.
//!
//! The calendar is that of the crate `time`. The forms are parsed here because no crate parses all of them:
//! `humantime` has neither `ago` nor times of day, `jiff` has no time of day without a date, and each would add a
//! second calendar.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use time::{Date, Month, OffsetDateTime, Time, UtcOffset};

/// A hundred years. A longer span is taken to be a typing error.
const MAX_SECONDS: u64 = 100 * 365 * 86_400;

/// The units with their names, the longest first.
const UNITS: [(u64, &[&str]); 5] = [
    (7 * 86_400, &["w", "week", "weeks"]),
    (86_400, &["d", "day", "days"]),
    (3600, &["h", "hr", "hrs", "hour", "hours"]),
    (60, &["m", "min", "mins", "minute", "minutes"]),
    (1, &["s", "sec", "secs", "second", "seconds"]),
];

/// A span of time in whole seconds, from 1 second to 100 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Age(u64);

/// A point in time: fixed, or relative to the time at which it is resolved. A text without a zone is in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The time at which it is resolved.
    Now,
    /// This long before the time at which it is resolved.
    Ago(Age),
    /// A time of day, on the day at which it is resolved or on a day before.
    Day {
        /// 0 is today.
        days_ago: u8,
        time: Time,
    },
    /// A fixed point in time.
    At(OffsetDateTime),
}

/// The reason why a text is not a valid span or point in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    #[error("{0:?} is no span of time: give one such as 90s, 1h30m or 7d")]
    NotAnAge(String),
    #[error("{0:?} is no time: give one such as 30m, '2026-11-22 09:00' (UTC) or 2026-11-22T09:00:00+01:00")]
    NotAMoment(String),
    #[error("{0:?} is a span of no time: give one such as 90s, 1h30m or 7d")]
    Zero(String),
    #[error("{0:?} is too long: 100 years at most")]
    TooLong(String),
}

/// The reason why a range of time is empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmptyRange {
    #[error("the range of time begins in the future: {from}, and it is {now}")]
    Future { from: String, now: String },
    #[error("the range of time is empty: it begins at {from} and ends at {to}")]
    Reversed { from: String, to: String },
}

/// A range of time that is not empty, including its beginning and excluding its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// The beginning; `None` if it is open.
    pub from: Option<OffsetDateTime>,
    /// The end, exclusive; `None` if it is open.
    pub to: Option<OffsetDateTime>,
}

impl TimeRange {
    /// The range between two points. An end that is not given is open.
    pub fn new(from: Option<Moment>, to: Option<Moment>, now: OffsetDateTime) -> Result<Self, EmptyRange> {
        let (from, to) = (from.map(|from| from.at(now)), to.map(|to| to.at(now)));
        if let Some(from) = from.filter(|from| *from >= now) {
            return Err(EmptyRange::Future { from: rfc3339(from), now: rfc3339(now) });
        }
        match (from, to) {
            (Some(from), Some(to)) if from >= to => Err(EmptyRange::Reversed { from: rfc3339(from), to: rfc3339(to) }),
            (from, to) => Ok(Self { from, to }),
        }
    }
}

impl Age {
    /// The span as a [`Duration`].
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }

    /// The span in seconds.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0
    }
}

impl FromStr for Age {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        match span(text.trim()) {
            None => Err(TimeError::NotAnAge(text.to_owned())),
            Some(0) => Err(TimeError::Zero(text.to_owned())),
            Some(seconds) if seconds <= MAX_SECONDS => Ok(Self(seconds)),
            Some(_) => Err(TimeError::TooLong(text.to_owned())),
        }
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        for (seconds, names) in UNITS {
            let count = rest / seconds;
            rest %= seconds;
            if let (1.., Some(name)) = (count, names.first()) {
                write!(f, "{count}{name}")?;
            }
        }
        Ok(())
    }
}

impl Moment {
    /// Resolves the point in time at `now`.
    #[must_use]
    pub fn at(self, now: OffsetDateTime) -> OffsetDateTime {
        let ago =
            |seconds: u64| now.saturating_sub(time::Duration::seconds(i64::try_from(seconds).unwrap_or(i64::MAX)));
        match self {
            Self::Now => now,
            Self::Ago(age) => ago(age.0),
            Self::Day { days_ago, time } => {
                ago(u64::from(days_ago) * 86_400).to_offset(UtcOffset::UTC).replace_time(time)
            }
            Self::At(at) => at,
        }
    }
}

impl FromStr for Moment {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let words = text.trim().to_ascii_lowercase();
        let (first, rest) = words.split_once([' ', 't']).unwrap_or((&words, ""));
        let day = match words.as_str() {
            _ if words.starts_with("today") => words.strip_prefix("today").map(|rest| (0, rest.trim_start())),
            _ if words.starts_with("yesterday") => words.strip_prefix("yesterday").map(|rest| (1, rest.trim_start())),
            "now" => return Ok(Self::Now),
            _ => None,
        };
        let not_a_moment = || TimeError::NotAMoment(text.to_owned());
        if let Some((days_ago, clock)) = day {
            let time = if clock.is_empty() { Some(Time::MIDNIGHT) } else { time_of_day(clock) };
            return Ok(Self::Day { days_ago, time: time.ok_or_else(not_a_moment)? });
        }
        if let Some(time) = time_of_day(&words) {
            return Ok(Self::Day { days_ago: 0, time });
        }
        if let Some(date) = date(first) {
            return date_and_time(date, rest).map(Self::At).ok_or_else(not_a_moment);
        }
        match words.strip_suffix("ago").unwrap_or(&words).parse::<Age>() {
            Ok(age) => Ok(Self::Ago(age)),
            Err(TimeError::NotAnAge(_)) => Err(not_a_moment()),
            Err(TimeError::Zero(_)) => Err(TimeError::Zero(text.to_owned())),
            Err(_) => Err(TimeError::TooLong(text.to_owned())),
        }
    }
}

/// A point in time in UTC, in a form that PostgreSQL and [`Moment`] read: `2026-11-22T09:00:00.250000Z`.
#[must_use]
pub fn rfc3339(at: OffsetDateTime) -> String {
    let at = at.to_offset(UtcOffset::UTC);
    let (date, time) = (at.date(), at.time());
    let fraction = match time.microsecond() {
        0 => String::new(),
        microseconds => format!(".{microseconds:06}"),
    };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

/// Parses `1h30m` or `1 hour 30 minutes` to seconds. Each unit may occur once, the longest first.
fn span(text: &str) -> Option<u64> {
    let mut rest = text;
    let (mut total, mut units) = (0_u64, UNITS.iter());
    while !rest.is_empty() {
        let (count, after) = rest.split_at_checked(rest.find(|one: char| !one.is_ascii_digit())?)?;
        let after = after.trim_start_matches(' ');
        let end = after.find(|one: char| !one.is_ascii_alphabetic()).unwrap_or(after.len());
        let (name, after) = after.split_at_checked(end)?;
        let (seconds, _) = units.find(|(_, names)| names.contains(&name.to_ascii_lowercase().as_str()))?;
        if count.is_empty() {
            return None;
        }
        // A count that overflows saturates, and the limit of an age rejects it.
        let count = count.parse::<u64>().unwrap_or(u64::MAX);
        total = total.saturating_add(count.saturating_mul(*seconds));
        rest = after.trim_start_matches(' ');
    }
    (!text.is_empty()).then_some(total)
}

/// Parses a number of exactly `length` digits.
fn digits<N: FromStr>(text: &str, length: usize) -> Option<N> {
    let is_number = text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// `2026-11-22`.
fn date(text: &str) -> Option<Date> {
    let [year, month, day] = <[&str; 3]>::try_from(text.split('-').collect::<Vec<_>>()).ok()?;
    let month = Month::try_from(digits::<u8>(month, 2)?).ok()?;
    Date::from_calendar_date(digits(year, 4)?, month, digits(day, 2)?).ok()
}

/// `9:00`, `09:00`, `09:00:30`, `09:00:30.25`.
fn time_of_day(text: &str) -> Option<Time> {
    let (hour, rest) = text.split_once(':')?;
    let (minute, seconds) = rest.split_once(':').unwrap_or((rest, "00"));
    let (second, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let hour = digits(hour, if hour.len() == 1 { 1 } else { 2 })?;
    let is_fraction = (1..=9).contains(&fraction.len()) && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let nanoseconds = is_fraction.then(|| format!("{fraction:0<9}").parse().ok()).flatten()?;
    Time::from_hms_nano(hour, digits(minute, 2)?, digits(second, 2)?, nanoseconds).ok()
}

/// Parses what follows a date: nothing, or a time of day with an optional zone.
fn date_and_time(date: Date, rest: &str) -> Option<OffsetDateTime> {
    if rest.is_empty() {
        return Some(date.midnight().assume_utc());
    }
    let end = rest.find(|one: char| !one.is_ascii_digit() && one != ':' && one != '.').unwrap_or(rest.len());
    let (clock, zone) = rest.split_at_checked(end)?;
    let local = date.with_time(time_of_day(clock)?);
    let at = match zone.trim_start_matches(' ') {
        "" | "z" | "utc" => local.assume_utc(),
        zone => local.assume_offset(offset(zone)?),
    };
    // The year must have four digits in UTC, too.
    at.checked_to_offset(UtcOffset::UTC).filter(|at| (0..=9999).contains(&at.year()))
}

/// `+01:00`, `-0500`, `+01`.
fn offset(text: &str) -> Option<UtcOffset> {
    let (sign, clock) = text.split_at_checked(1)?;
    let (hours, minutes) = match (clock.split_once(':'), clock.len()) {
        (Some(parts), _) => parts,
        (None, 4) => clock.split_at_checked(2)?,
        (None, _) => (clock, "00"),
    };
    let sign = match sign {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    UtcOffset::from_hms(digits::<i8>(hours, 2)? * sign, digits::<i8>(minutes, 2)? * sign, 0).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn now() -> OffsetDateTime {
        "2026-11-24T10:30:00Z".parse::<Moment>().unwrap().at(OffsetDateTime::UNIX_EPOCH)
    }

    fn at(text: &str) -> Result<String, TimeError> {
        text.parse::<Moment>().map(|moment| rfc3339(moment.at(now())))
    }

    #[test]
    fn the_forms_that_people_type_are_read() {
        for (text, expected) in [
            ("90s", "2026-11-24T10:28:30Z"),
            ("30m", "2026-11-24T10:00:00Z"),
            ("12h", "2026-11-23T22:30:00Z"),
            ("7d", "2026-11-17T10:30:00Z"),
            ("2w", "2026-11-10T10:30:00Z"),
            ("1h30m", "2026-11-24T09:00:00Z"),
            ("1 hour ago", "2026-11-24T09:30:00Z"),
            ("1 hour 30 minutes ago", "2026-11-24T09:00:00Z"),
            ("2 Days Ago", "2026-11-22T10:30:00Z"),
            ("now", "2026-11-24T10:30:00Z"),
            ("today", "2026-11-24T00:00:00Z"),
            ("yesterday", "2026-11-23T00:00:00Z"),
            ("yesterday 14:00", "2026-11-23T14:00:00Z"),
            ("14:00", "2026-11-24T14:00:00Z"),
            ("9:05:30", "2026-11-24T09:05:30Z"),
            ("2026-11-22", "2026-11-22T00:00:00Z"),
            ("2026-11-22 09:00", "2026-11-22T09:00:00Z"),
            ("2026-11-22T09:00", "2026-11-22T09:00:00Z"),
            ("2026-11-22 09:00 UTC", "2026-11-22T09:00:00Z"),
            ("2026-11-22T09:00:00.250Z", "2026-11-22T09:00:00.250000Z"),
            ("2026-11-22T09:00:00+02:00", "2026-11-22T07:00:00Z"),
            ("2026-11-22 09:00 -05", "2026-11-22T14:00:00Z"),
            ("2026-11-22 09:00+0130", "2026-11-22T07:30:00Z"),
        ] {
            assert_eq!(at(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_gets_three_examples() {
        for text in [
            "",
            "1",
            "h",
            "-1h",
            "+1h",
            "1.5h",
            "30x",
            "١h",
            "30m1h",
            "1h1h",
            "ago",
            "yesterday evening",
            "25:00",
            "14:60",
            "2026-13-01",
            "2026-02-30",
            "2026-11-22 09",
            "2026-11-22 09:00 CET",
            "99999-99-99",
            "2026-11-22T09:00:00+99:00",
            "0000-01-01T00:00:00+05:00",
        ] {
            let refused = at(text).unwrap_err();
            assert!(matches!(refused, TimeError::NotAMoment(_)), "{text}: {refused}");
            let examples = ["30m", "'2026-11-22 09:00'", "2026-11-22T09:00:00+01:00"];
            assert!(examples.iter().all(|example| refused.to_string().contains(example)), "{refused}");
            assert!(examples.iter().all(|example| at(example.trim_matches('\'')).is_ok()));
        }
        for text in ["", "1", "yesterday", "14:00", "1 hour ago", "2026-11-22"] {
            let refused = text.parse::<Age>().unwrap_err().to_string();
            assert!(["90s", "1h30m", "7d"].iter().all(|example| refused.contains(example)), "{refused}");
        }
        assert_eq!("0h".parse::<Age>(), Err(TimeError::Zero("0h".to_owned())));
        assert_eq!("101000w".parse::<Age>(), Err(TimeError::TooLong("101000w".to_owned())));
        assert_eq!(
            "99999999999999999999999d".parse::<Age>(),
            Err(TimeError::TooLong("99999999999999999999999d".to_owned()))
        );
    }

    #[test]
    fn an_empty_range_is_refused() {
        let range = |from: &str, to: &str| TimeRange::new(from.parse().ok(), to.parse().ok(), now());
        assert!(range("1h", "now").is_ok());
        assert!(range("1h", "23:00").is_ok(), "an end in the future is open");
        assert!(matches!(range("1h", "2h"), Err(EmptyRange::Reversed { .. })));
        assert!(matches!(range("1h", "1h"), Err(EmptyRange::Reversed { .. })));
        let refused = range("14:00", "now").unwrap_err();
        let text = "the range of time begins in the future: 2026-11-24T14:00:00Z, and it is 2026-11-24T10:30:00Z";
        assert_eq!(refused.to_string(), text);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*", words in "[0-9 :.TZtz+-]{0,24}|[0-9]{1,20} ?[a-z]{1,8} ?(ago)?") {
            for text in [&text, &words] {
                drop(text.parse::<Age>());
                if let Ok(moment) = text.parse::<Moment>() {
                    prop_assert!(!rfc3339(moment.at(now())).is_empty());
                }
            }
        }

        #[test]
        fn an_age_is_read_as_it_is_written(seconds in 1..=MAX_SECONDS) {
            prop_assert_eq!(Age(seconds).to_string().parse(), Ok(Age(seconds)));
        }

        #[test]
        fn a_time_is_read_as_it_is_written(microseconds in -62_135_596_800_000_000_i64..253_402_300_800_000_000, hours in -12_i8..=14) {
            let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(microseconds) * 1000).unwrap();
            prop_assert_eq!(rfc3339(at).parse(), Ok(Moment::At(at)));
            let local = at.checked_to_offset(UtcOffset::from_hms(hours, 0, 0).unwrap());
            prop_assume!(local.is_some_and(|local| (0..=9999).contains(&local.year())));
            prop_assert_eq!(rfc3339(local.unwrap()), rfc3339(at));
        }
    }
}
