//! The process that removes a temporary cluster if its user is killed. It waits for the end of a pipe.

use std::io::{self, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use crate::cluster_dir::ClusterDir;
use crate::environment;
use crate::error::Error;

const SCRIPT: &str = include_str!("reaper.sh");

/// A running reaper. Dropping it without `dismiss` has the same effect as a kill: it removes the cluster.
#[derive(Debug)]
pub(crate) struct Reaper {
    pipe: Option<PipeWriter>,
    process: Child,
}

impl Reaper {
    /// Starts a reaper for a temporary cluster. The write end of the pipe is close-on-exec, so that no other child
    /// process, such as the server, keeps it open.
    pub(crate) fn start(dir: &ClusterDir) -> Result<Self, Error> {
        let failed = |source| Error::Program { program: "sh".to_owned(), source };
        let (reader, writer) = io::pipe().map_err(failed)?;
        let process = environment::plain("/bin/sh")
            .args(["-c", SCRIPT, "countersign-reaper"])
            .args([dir.home(), dir.socket_dir()])
            .arg(dir.cluster_name())
            .current_dir("/")
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Runs in its own process group, so that a Ctrl-C in the terminal does not end it.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        Ok(Self { pipe: Some(writer), process })
    }

    /// Ends the reaper. The caller removes the cluster.
    pub(crate) fn dismiss(mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // Fails if the reaper was killed.
            let _ended = pipe.write_all(b"done\n");
        }
        let _status = self.process.wait();
    }
}
