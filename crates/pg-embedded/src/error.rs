//! What can go wrong; each message names the thing and the way out.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::binaries::Version;

/// Why a cluster could not be started, restarted or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be read, made or changed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried, as a verb: "create", "read".
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },

    /// `COUNTERSIGN_PG_BINDIR` is set, but there is no usable PostgreSQL.
    #[error(
        "COUNTERSIGN_PG_BINDIR is {}, but {reason}; set it to a folder that holds initdb and postgres of PostgreSQL 14 \
         or later, or unset it to let countersign look for one", dir.display()
    )]
    Bindir {
        /// The value of the variable.
        dir: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// Nothing installed, and no package client could deliver one.
    #[error(
        "no PostgreSQL 14 or later was found on this machine{}; {install}, or set COUNTERSIGN_PG_BINDIR to the \
             folder that holds initdb and postgres",
        tried_text(tried)
    )]
    NoPostgres {
        /// What was tried, and why each did not do.
        tried: Vec<String>,
        /// How PostgreSQL is installed on this system.
        install: &'static str,
    },

    /// The data folder was made by another major version than every PostgreSQL at hand.
    #[error(
        "the data in {} was made by PostgreSQL {data_major}, but the one at hand is {available} ({}); install PostgreSQL \
         {data_major}, or start anew with --fresh, which deletes that data", data.display(), bindir.display()
    )]
    VersionMismatch {
        /// The data folder.
        data: PathBuf,
        /// The major version that made it.
        data_major: u32,
        /// The newest version at hand.
        available: Version,
        /// Where that is.
        bindir: PathBuf,
    },

    /// The folder exists and is not a data folder of PostgreSQL.
    #[error(
        "{} exists but holds no complete PostgreSQL cluster; move it away, or start anew with --fresh, which deletes it",
        data.display()
    )]
    NotACluster {
        /// The folder.
        data: PathBuf,
    },

    /// `fresh` was asked for while others use the cluster.
    #[error(
        "the cluster in {} is in use by process {}; end that first, or leave out --fresh", folder.display(), pids_text(pids)
    )]
    InUse {
        /// The cluster's folder.
        folder: PathBuf,
        /// The processes that use it.
        pids: Vec<i32>,
    },

    /// Another process holds the start lock and does not let go.
    #[error(
        "another process has been starting or stopping the cluster in {} for more than {} s; end it and try again",
        folder.display(), waited.as_secs()
    )]
    Locked {
        /// The cluster's folder.
        folder: PathBuf,
        /// How long we waited.
        waited: Duration,
    },

    /// The unprivileged user that the server runs as cannot get to a folder.
    #[error(
        "as root the server runs as user {user}, who cannot enter {}; allow it (chmod o+x), or choose a folder elsewhere",
        folder.display()
    )]
    Unreachable {
        /// The folder that bars the way.
        folder: PathBuf,
        /// The user.
        user: String,
    },

    /// We are root and there is nobody to run the server as.
    #[error(
        "PostgreSQL refuses to run as root, and there is neither a user postgres nor a user nobody to run it as; \
             create one (useradd --system postgres), or run countersign as an ordinary user"
    )]
    NoUnprivilegedUser,

    /// A choice of the caller that cannot work.
    #[error("{what}")]
    Invalid {
        /// What is wrong, and what would be right.
        what: String,
    },

    /// `initdb` failed.
    #[error("{} could not make a data folder in {}:\n{output}", program.display(), data.display())]
    Initdb {
        /// The program.
        program: PathBuf,
        /// The folder.
        data: PathBuf,
        /// What it said, its last lines.
        output: String,
    },

    /// The server ended, or did not answer in time.
    #[error("PostgreSQL {reason}; the end of its log {}:\n{tail}", log.display())]
    DidNotStart {
        /// What was seen.
        reason: String,
        /// The log.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },

    /// The server did not end, whatever was tried.
    #[error("PostgreSQL (process {pid}) did not end; end it by hand (kill -9 {pid})")]
    DidNotStop {
        /// The postmaster.
        pid: i32,
    },

    /// A program could not be run.
    #[error("cannot run {program}: {source}")]
    Program {
        /// The program.
        program: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// Turns an `io::Error` into one that says what was tried on which path.
pub(crate) fn at<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
    move |source| Error::File { action, path: path.to_path_buf(), source }
}

fn tried_text(tried: &[String]) -> String {
    if tried.is_empty() { String::new() } else { format!(" ({})", tried.join("; ")) }
}

fn pids_text(pids: &[i32]) -> String {
    pids.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")
}
