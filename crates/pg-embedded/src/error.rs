//! Errors of a cluster. Each message names the cause and a remedy.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::version::Version;

/// Why a cluster could not be started, restarted or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be read, made or changed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The action as a verb: "create", "read".
        action: &'static str,
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },

    /// `COUNTERSIGN_PG_BINDIR` is set, but there is no usable PostgreSQL.
    #[error(
        "COUNTERSIGN_PG_BINDIR is {}, but {reason}; set it to a folder that holds initdb and postgres of PostgreSQL 14 \
         or later, or unset it to let countersign look for one", dir.display()
    )]
    Bindir { dir: PathBuf, reason: String },

    /// No PostgreSQL is installed, and no package manager could fetch one.
    #[error(
        "no PostgreSQL 14 or later was found on this machine{}; {install}, or set COUNTERSIGN_PG_BINDIR to the \
             folder that holds initdb and postgres",
        tried_text(tried)
    )]
    NoPostgres {
        /// Each source that was tried and the reason why it failed.
        tried: Vec<String>,
        /// How to install PostgreSQL on this system.
        install: &'static str,
    },

    /// The data folder was created by another major version than every available PostgreSQL.
    #[error(
        "the data in {} was made by PostgreSQL {data_major}, but the one at hand is {available} ({}); install PostgreSQL \
         {data_major}, or start anew with --fresh, which deletes that data", data.display(), bindir.display()
    )]
    VersionMismatch {
        data: PathBuf,
        /// The major version that created it.
        data_major: u32,
        available: Version,
        bindir: PathBuf,
    },

    /// The folder exists but is not a data folder of PostgreSQL.
    #[error(
        "{} exists but holds no complete PostgreSQL cluster; move it away, or start anew with --fresh, which deletes it",
        data.display()
    )]
    NotACluster { data: PathBuf },

    /// The caller asked for fresh data while another process uses the cluster.
    #[error("the cluster in {} is in use by another process; end that first, or leave out --fresh", folder.display())]
    InUse { folder: PathBuf },

    /// Another process holds the start lock and does not release it.
    #[error(
        "another process has been starting or stopping the cluster in {} for more than {} s; end it and try again",
        folder.display(), waited.as_secs()
    )]
    Locked { folder: PathBuf, waited: Duration },

    /// The unprivileged user that runs the server cannot enter a folder.
    #[error(
        "as root the server runs as user {user}, who cannot enter {}; allow it (chmod o+x), or choose a folder elsewhere",
        folder.display()
    )]
    Unreachable { folder: PathBuf, user: String },

    /// The process runs as root, and no unprivileged user exists.
    #[error(
        "PostgreSQL refuses to run as root, and there is neither a user postgres nor a user nobody to run it as; \
             create one (useradd --system postgres), or run countersign as an ordinary user"
    )]
    NoUnprivilegedUser,

    /// An invalid option of the caller.
    #[error("{what}")]
    Invalid {
        /// The mistake and the valid choices.
        what: String,
    },

    #[error("{} could not make a data folder in {}:\n{output}", program.display(), data.display())]
    Initdb {
        program: PathBuf,
        data: PathBuf,
        /// The last lines of its output.
        output: String,
    },

    /// The server ended, or did not answer in time.
    #[error("PostgreSQL {reason}; the end of its log {}:\n{tail}", log.display())]
    DidNotStart { reason: String, log: PathBuf, tail: String },

    /// The server did not end after SIGKILL.
    #[error("PostgreSQL (process {pid}) did not end; end it by hand (kill -9 {pid})")]
    DidNotStop { pid: i32 },

    #[error("cannot run {program}: {source}")]
    Program { program: String, source: io::Error },
}

/// Turns an `io::Error` into [`Error::File`] with the action and the path.
pub(crate) fn at<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
    move |source| Error::File { action, path: path.to_path_buf(), source }
}

fn tried_text(tried: &[String]) -> String {
    if tried.is_empty() { String::new() } else { format!(" ({})", tried.join("; ")) }
}

pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_short_text_are_all_of_it() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 2), "a");
        assert_eq!(last_lines("", 2), "");
    }
}
