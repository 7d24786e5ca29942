//! The programs of one PostgreSQL installation: their folder, their version, and whether they run here.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::environment;
use crate::os_account::OsAccount;
use crate::version::Version;

/// The oldest major version that countersign works with.
pub(crate) const OLDEST_MAJOR: u32 = 14;

/// A folder with `initdb` and `postgres` that the server's user can run on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    bindir: PathBuf,
    version: Version,
    found_by: String,
}

impl Binaries {
    /// Checks a folder and runs its `postgres --version` as the server's user. The error says what is missing.
    pub(crate) fn check(bindir: &Path, found_by: &str, account: &OsAccount) -> Result<Self, String> {
        for program in ["initdb", "postgres"] {
            if !bindir.join(program).is_file() {
                return Err(format!("there is no {program} in it"));
            }
        }
        let program = bindir.join("postgres");
        let output = account
            .apply_to(environment::plain(&program).arg("--version").current_dir("/").stdin(Stdio::null()))
            .output()
            .map_err(|error| format!("its postgres cannot be run: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(format!("its postgres cannot be run: {}", stderr.trim()));
        }
        let version = Version::parse(&said).ok_or_else(|| format!("its postgres says {:?}", said.trim()))?;
        if version.major < OLDEST_MAJOR {
            return Err(format!("its version is {version}"));
        }
        Ok(Self { bindir: bindir.to_path_buf(), version, found_by: found_by.to_owned() })
    }

    pub fn bindir(&self) -> &Path {
        &self.bindir
    }

    /// The version that `postgres --version` prints.
    pub fn version(&self) -> Version {
        self.version
    }

    /// How the programs were found: "PATH", "COUNTERSIGN_PG_BINDIR", "npm package ..".
    pub fn found_by(&self) -> &str {
        &self.found_by
    }

    /// The path of a program. `initdb` and `postgres` always exist; packages may leave out others, such as `psql`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bindir.join(name)
    }
}
