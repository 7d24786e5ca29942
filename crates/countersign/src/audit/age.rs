//! Ages as people type them.

/// A hundred years: what is longer is a slip of the finger.
const MOST_HOURS: u32 = 100 * 365 * 24;

/// An age in hours.
pub(crate) fn age(text: &str) -> Result<u32, String> {
    let units = [('h', 1), ('d', 24), ('w', 7 * 24)];
    let read = units.into_iter().find_map(|(unit, hours)| Some((text.strip_suffix(unit)?, hours)));
    let (count, hours) = read
        .filter(|(count, _)| !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or("an age is a whole number and h (hours), d (days) or w (weeks), such as 12h, 90d or 4w")?;
    let hours = count.parse::<u32>().ok().and_then(|count| count.checked_mul(hours));
    match hours {
        Some(0) => Err("an age of zero covers nothing".to_owned()),
        Some(hours) if hours <= MOST_HOURS => Ok(hours),
        _ => Err("an age is 100 years at most".to_owned()),
    }
}

/// An age from which records and the log of reads may be pruned.
pub(crate) fn retention(text: &str) -> Result<u32, String> {
    match age(text)? {
        hours if hours < 24 => Err("records of the last day are never pruned: give 1d (24h) or more".to_owned()),
        hours => Ok(hours),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_a_number_and_a_unit() {
        assert_eq!((age("12h"), age("7d"), age("4w")), (Ok(12), Ok(168), Ok(672)));
        for nonsense in
            ["", "d", "7", "-1d", "+1d", "1.5d", "7 d", "7m", "7days", "0d", "١d", "99999999999h", "5000000w"]
        {
            assert!(age(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn the_last_day_is_never_pruned() {
        assert_eq!(retention("1d"), Ok(24));
        assert_eq!(retention("24h"), Ok(24));
        assert!(retention("23h").unwrap_err().contains("last day"));
    }
}
