//! No tunnels on Windows: the `ssh` there cannot listen on a Unix socket, and other users of the machine could use a
//! port.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use super::ConnectOptionsError;
use crate::client::unix_socket::UnixStream;

/// A tunnel, of which there are none.
#[derive(Debug, Clone, PartialEq)]
pub enum SshTunnel {}

impl SshTunnel {
    /// # Errors
    /// [`ConnectOptionsError`] always.
    pub fn new(_: String) -> Result<Self, ConnectOptionsError> {
        let problem = "there are no tunnels on Windows: run `ssh -L` beside this program, and connect to its port";
        Err(ConnectOptionsError::Setting { origin: "ssh_tunnel".to_owned(), problem: problem.to_owned() })
    }

    pub(crate) async fn connect(&self, _: &str, _: u16) -> io::Result<UnixStream> {
        match *self {}
    }

    pub(crate) async fn until_logged(&self) {
        match *self {}
    }
}

/// No process is a guard of a tunnel.
pub fn guard_ssh(_: impl Iterator<Item = OsString>) -> Option<io::Result<ExitCode>> {
    None
}
