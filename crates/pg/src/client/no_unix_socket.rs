//! No Unix sockets on Windows: tokio has none there.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection over a Unix socket, of which there are none.
#[derive(Debug)]
pub(crate) enum UnixStream {}

/// Connects to nothing.
pub(crate) async fn connect(_: &Path, _: u16, _: Option<&str>) -> io::Result<UnixStream> {
    let why = "there are no Unix sockets on Windows: name the host, such as localhost";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

impl AsyncRead for UnixStream {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}

impl AsyncWrite for UnixStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match *self {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}
