//! Version numbers of PostgreSQL.

use std::fmt;

/// A version of PostgreSQL, such as 15.18. A beta counts as minor version 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The major version. Data folders of different major versions are incompatible.
    pub major: u32,
    pub minor: u32,
}

impl Version {
    /// Parses the first version number in a text: `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, `18beta1`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let start = text.find(|c: char| c.is_ascii_digit())?;
        let (major, rest) = leading_number(text.get(start..)?)?;
        let minor = rest.strip_prefix('.').and_then(leading_number).map_or(0, |(minor, _)| minor);
        Some(Self { major, minor })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

fn leading_number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_programs_say() {
        let version = |text| Version::parse(text).map(|v| (v.major, v.minor));
        assert_eq!(version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some((15, 18)));
        assert_eq!(version("postgres (PostgreSQL) 18beta1"), Some((18, 0)));
        assert_eq!(version("18.4"), Some((18, 4)));
        assert_eq!(version("postgres"), None);
    }

    #[test]
    fn newer_versions_compare_as_greater() {
        let parsed = |text| Version::parse(text).unwrap();
        assert!(parsed("15.18") > parsed("15.9"));
        assert!(parsed("16.0") > parsed("15.18"));
    }
}
