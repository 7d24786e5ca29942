//! The Unix sockets of PostgreSQL.

use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};
pub(crate) use tokio::net::UnixStream;

/// Connects to the socket of this port in a folder. `requirepeer`: the user that the server must run as.
pub(crate) async fn connect(folder: &Path, port: u16, requirepeer: Option<&str>) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket_path(folder, port)).await?;
    if let Some(user) = requirepeer {
        check_peer(&stream, user)?;
    }
    Ok(stream)
}

fn socket_path(folder: &Path, port: u16) -> PathBuf {
    let path = folder.join(format!(".s.PGSQL.{port}"));
    // In an address of the abstract namespace, a zero byte replaces the `@`.
    match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => PathBuf::from(format!("\0{name}")),
        None => path,
    }
}

/// `requirepeer`: checks that the process behind the socket runs as this user.
fn check_peer(stream: &UnixStream, user: &str) -> io::Result<()> {
    let uid = Uid::from_raw(stream.peer_cred()?.uid());
    let found = User::from_uid(uid)?.map_or_else(|| uid.to_string(), |user| user.name);
    if found == user {
        return Ok(());
    }
    Err(io::Error::other(format!("the server runs as \"{found}\", and requirepeer asks for \"{user}\"")))
}
