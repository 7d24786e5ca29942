//! The ages from which records and the log of reads may be pruned.

use types::Age;

const DAY_SECONDS: u64 = 24 * 3600;

/// An age of a day or more.
pub(crate) fn retention(text: &str) -> Result<Age, String> {
    let age: Age = text.parse().map_err(|error: types::TimeError| error.to_string())?;
    if age.as_secs() < DAY_SECONDS {
        return Err("records of the last day are never pruned: give 1d (24h) or more".to_owned());
    }
    Ok(age)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_day_is_never_pruned() {
        assert_eq!(retention("1d"), retention("24h"));
        assert!(retention("1d").is_ok());
        assert!(retention("23h59m").unwrap_err().contains("last day"));
    }
}
