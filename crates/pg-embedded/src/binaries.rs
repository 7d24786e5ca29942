//! The programs of one PostgreSQL: where they are, which version, and whether they can be used at all.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::account::Account;
use crate::environment;

/// The oldest major version that countersign works with.
pub(crate) const OLDEST_MAJOR: u32 = 14;

/// A version of PostgreSQL, such as 15.18; a beta counts as minor version 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The major version: data folders of different major versions do not fit each other.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
}

impl Version {
    /// Reads the first version number of a text: `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, `18beta1`.
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

/// A folder with `initdb` and `postgres` that run on this machine, as the user who has to run them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    bindir: PathBuf,
    version: Version,
    found: String,
}

impl Binaries {
    /// Looks at a folder and runs its `postgres --version` as the server's user; the error says what is wrong with it.
    pub(crate) fn check(bindir: &Path, found: &str, account: &Account) -> Result<Self, String> {
        for program in ["initdb", "postgres"] {
            if !bindir.join(program).is_file() {
                return Err(format!("there is no {program} in it"));
            }
        }
        let program = bindir.join("postgres");
        let output = account
            .applied_to(environment::plain(&program).arg("--version").current_dir("/").stdin(Stdio::null()))
            .output()
            .map_err(|error| format!("its postgres cannot be run: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(format!("its postgres cannot be run: {}", complaint.trim()));
        }
        let version = Version::parse(&said).ok_or_else(|| format!("its postgres says {:?}", said.trim()))?;
        if version.major < OLDEST_MAJOR {
            return Err(format!("its version is {version}"));
        }
        Ok(Self { bindir: bindir.to_path_buf(), version, found: found.to_owned() })
    }

    /// The folder that holds the programs.
    pub fn bindir(&self) -> &Path {
        &self.bindir
    }

    /// The version that `postgres --version` gives.
    pub fn version(&self) -> Version {
        self.version
    }

    /// How they were found: "PATH", "COUNTERSIGN_PG_BINDIR", "npm package ..".
    pub fn found(&self) -> &str {
        &self.found
    }

    /// The path of one program. `initdb` and `postgres` are always there; packages may leave out the others, such as
    /// `psql`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bindir.join(name)
    }
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
