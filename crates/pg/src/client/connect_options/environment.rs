//! The environment of a connection string: environment variables, the user's home directory and name. They supply the
//! values that the string leaves out.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{DEFAULT_CONNECT_TIMEOUT, PasswordCommand, SshTunnel, user_files};

/// The environment of a connection string. Not `Debug`: it may contain PGPASSWORD.
#[derive(Clone)]
pub struct ConnectEnvironment {
    variables: HashMap<String, String>,
    user_files: Option<PathBuf>,
    os_user: Option<String>,
    socket_folders: Vec<PathBuf>,
    pub(super) connect_timeout: Duration,
    pub(super) ssh_tunnel: Option<SshTunnel>,
    pub(super) password_command: Option<PasswordCommand>,
}

impl ConnectEnvironment {
    /// The environment of this process, as libpq sees it. `connect_timeout` applies unless the string or a variable
    /// sets another.
    #[must_use]
    pub fn from_process(connect_timeout: Duration) -> Self {
        let variables = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .filter(|(name, _)| name.starts_with("PG"))
            .collect();
        Self { variables, user_files: user_files::folder(), connect_timeout, ..Self::empty() }
    }

    /// An environment without variables and without files of the user: the system supplies only the user's name and
    /// the socket folders.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            variables: HashMap::new(),
            user_files: None,
            os_user: os::user_name(),
            socket_folders: user_files::SOCKET_FOLDERS.iter().map(PathBuf::from).collect(),
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            ssh_tunnel: None,
            password_command: None,
        }
    }

    /// The environment of connections through this tunnel, or through none.
    #[must_use]
    pub fn with_ssh_tunnel(self, ssh_tunnel: Option<SshTunnel>) -> Self {
        Self { ssh_tunnel, ..self }
    }

    /// The environment of connections whose password this program prints, unless they have one.
    #[must_use]
    pub fn with_password_command(self, password_command: Option<PasswordCommand>) -> Self {
        Self { password_command, ..self }
    }

    /// The value of a `PG*` variable, unless it is unset or empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The path of one of the user's files.
    pub(super) fn user_file(&self, path: &str) -> Option<PathBuf> {
        self.user_files.as_ref().map(|folder| folder.join(path))
    }

    /// The path of one of the user's files, if the file exists.
    pub(super) fn existing_user_file(&self, path: &str) -> Option<PathBuf> {
        self.user_file(path).filter(|path| path.exists())
    }

    /// The name of the user that this process runs as.
    pub(super) fn os_user(&self) -> Option<&str> {
        self.os_user.as_deref()
    }

    /// The folder of the socket for this port; `None` if there is no such socket.
    ///
    /// Only the first folder that exists is used. If any user can write to the second one, another program could
    /// listen there while the real server is down.
    pub(super) fn socket_folder(&self, port: u16) -> Option<&Path> {
        let folder = self.socket_folders.iter().find(|folder| folder.is_dir())?;
        folder.join(format!(".s.PGSQL.{port}")).exists().then_some(folder)
    }
}

/// Whether a server's socket lies in this folder by default.
pub(super) fn is_default(folder: &Path) -> bool {
    user_files::SOCKET_FOLDERS.iter().any(|default| folder == Path::new(default))
}

#[cfg(test)]
impl ConnectEnvironment {
    pub(super) fn for_tests(variables: &[(&str, &str)], home: &Path, socket_folders: &[&Path]) -> Self {
        Self {
            variables: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            user_files: Some(home.to_owned()),
            os_user: Some("me".to_owned()),
            socket_folders: socket_folders.iter().map(|folder| (*folder).to_owned()).collect(),
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            ssh_tunnel: None,
            password_command: None,
        }
    }
}
