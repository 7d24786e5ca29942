//! The process between a server and its `ssh`. A server may end without a chance to end its children, and `ssh -N` does
//! not look at its standard input; this process does.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The first argument of a guard. A folder and the arguments of `ssh` follow.
pub(super) const GUARD: &str = "ssh-guard";

/// The name of the socket in the folder.
pub(super) const SOCKET: &str = "postgresql";

/// Runs `ssh` until it ends, or until standard input does, and removes socket and folder; `None` if these arguments are not
/// those of a guard.
///
/// # Errors
/// `ssh` cannot be run.
pub fn guard_ssh(mut arguments: impl Iterator<Item = OsString>) -> Option<io::Result<ExitCode>> {
    let folder = arguments.next().filter(|first| first == GUARD).and_then(|_| arguments.next()).map(PathBuf::from)?;
    let outcome = run(Command::new("ssh").args(arguments));
    // There is no socket if ssh has never listened. A folder with anything else is none of ours.
    let _ = std::fs::remove_file(folder.join(SOCKET));
    let _ = std::fs::remove_dir(folder);
    Some(outcome)
}

fn run(command: &mut Command) -> io::Result<ExitCode> {
    let mut ssh = command.stdin(Stdio::null()).spawn()?;
    let pid = i32::try_from(ssh.id()).map_err(io::Error::other)?;
    std::thread::spawn(move || {
        // The other end is open as long as the server uses the tunnel, and nothing is written to it.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    });
    let status = ssh.wait()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
