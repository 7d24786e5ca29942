//! The process that outlives a killed user: it waits at the end of a pipe, then leaves on the user's behalf.

use std::io::{self, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use crate::environment;
use crate::error::Error;
use crate::place::Place;
use crate::users::User;

const SCRIPT: &str = include_str!("watcher.sh");

/// A running watcher. Dropping it without `dismiss` is like being killed: it tidies up.
#[derive(Debug)]
pub(crate) struct Watcher {
    pipe: Option<PipeWriter>,
    process: Child,
}

impl Watcher {
    /// Starts one for a user of a cluster. The write end of the pipe is close-on-exec, so that no other child of ours,
    /// not even the server, keeps it open.
    pub(crate) fn start(place: &Place, user: &User) -> Result<Self, Error> {
        let failed = |source| Error::Program { program: "sh".to_owned(), source };
        let (reader, writer) = io::pipe().map_err(failed)?;
        let process = environment::plain("/bin/sh")
            .args(["-c", SCRIPT, "countersign-watcher"])
            .arg(place.home())
            .arg(user.file())
            .arg(if place.is_temporary() { "remove" } else { "keep" })
            .arg(place.socket_dir())
            .arg(place.cluster_name())
            .current_dir("/")
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A group of its own, so that what a terminal sends to ours (Ctrl-C) does not end it.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        Ok(Self { pipe: Some(writer), process })
    }

    /// The user has left in order: there is nothing to tidy up.
    pub(crate) fn dismiss(mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // Killed by somebody: then there is nobody to dismiss.
            let _gone = pipe.write_all(b"done\n");
        }
        let _reaped = self.process.wait();
    }
}
