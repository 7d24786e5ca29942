//! Whether a server runs on a data folder: its `postmaster.pid`, checked against the process that the file names.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process;

/// The content of `postmaster.pid`. (PostgreSQL's `miscadmin.h` numbers its lines.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PidFile {
    pub(crate) pid: i32,
    /// Line 5; absent while the server has no socket yet.
    pub(crate) socket_dir: Option<PathBuf>,
    /// Line 8: `starting`, `ready`, `stopping`, `standby`.
    pub(crate) status: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerState {
    /// There is no server and no `postmaster.pid`.
    Nothing,
    /// The server has ended. Another process may have its process id by now.
    Stale(PidFile),
    /// A running server of exactly this data folder.
    Alive(PidFile),
}

/// The state of a data folder, given by its canonical path.
pub(crate) fn server_state(data: &Path) -> ServerState {
    let Some(lock) = fs::read_to_string(data.join("postmaster.pid")).ok().and_then(|text| parse(&text)) else {
        return ServerState::Nothing;
    };
    if process::is_postmaster_of(lock.pid, data) { ServerState::Alive(lock) } else { ServerState::Stale(lock) }
}

fn parse(text: &str) -> Option<PidFile> {
    let line = |number: usize| text.lines().nth(number - 1).map(str::trim);
    Some(PidFile {
        pid: line(1)?.parse().ok()?,
        socket_dir: line(5).filter(|folder| !folder.is_empty()).map(PathBuf::from),
        status: line(8).unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_file_tells_process_socket_and_status() {
        let text = "4711\n/d\n1700000000\n5432\n/run/s\n\n  123456   7\nready   \n";
        let lock = parse(text).unwrap();
        assert_eq!(lock, PidFile { pid: 4711, socket_dir: Some("/run/s".into()), status: "ready".to_owned() });
    }

    #[test]
    fn a_file_that_is_still_being_written_is_no_ready_server() {
        assert_eq!(parse("4711\n/d\n").unwrap().status, "");
        assert_eq!(parse(""), None);
    }

    #[test]
    fn the_process_id_of_another_program_is_stale() {
        let data = tempfile::tempdir().unwrap();
        let pid = std::process::id();
        let text = format!("{pid}\n{}\n1\n5432\n/run/s\n\n1 1\nready\n", data.path().display());
        fs::write(data.path().join("postmaster.pid"), text).unwrap();
        assert!(matches!(server_state(data.path()), ServerState::Stale(_)));
    }
}
