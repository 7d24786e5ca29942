//! Where libpq looks for the user's files and for the server's socket (PostgreSQL manual, "The Password File", "The
//! Connection Service File", "Client Certificates").

#[cfg(unix)]
pub(super) use unix::*;
#[cfg(windows)]
pub(super) use windows::*;

#[cfg(unix)]
mod unix {
    use std::path::PathBuf;

    use nix::unistd::{Uid, User};

    pub(crate) const PASSWORDS: &str = ".pgpass";
    pub(crate) const SERVICES: &str = ".pg_service.conf";
    pub(crate) const ROOTS: &str = ".postgresql/root.crt";
    pub(crate) const REVOKED: &str = ".postgresql/root.crl";
    pub(crate) const CERTIFICATE: &str = ".postgresql/postgresql.crt";
    pub(crate) const KEY: &str = ".postgresql/postgresql.key";

    /// The default folders of the server's socket: Debian, Red Hat and Alpine use the first, PostgreSQL itself the
    /// second.
    pub(crate) const SOCKET_FOLDERS: &[&str] = &["/var/run/postgresql", "/tmp"];

    /// The user's home directory.
    pub(crate) fn folder() -> Option<PathBuf> {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        home.or_else(|| Some(User::from_uid(Uid::effective()).ok()??.dir))
    }
}

#[cfg(windows)]
mod windows {
    use std::path::PathBuf;

    pub(crate) const PASSWORDS: &str = "pgpass.conf";
    pub(crate) const SERVICES: &str = ".pg_service.conf";
    pub(crate) const ROOTS: &str = "root.crt";
    pub(crate) const REVOKED: &str = "root.crl";
    pub(crate) const CERTIFICATE: &str = "postgresql.crt";
    pub(crate) const KEY: &str = "postgresql.key";

    /// Without a host, libpq connects to `localhost`.
    pub(crate) const SOCKET_FOLDERS: &[&str] = &[];

    /// `%APPDATA%\postgresql`.
    pub(crate) fn folder() -> Option<PathBuf> {
        let data = std::env::var_os("APPDATA").filter(|data| !data.is_empty())?;
        Some(PathBuf::from(data).join("postgresql"))
    }
}
