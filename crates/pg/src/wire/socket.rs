//! The sockets that PostgreSQL listens on, and TLS on top of one of them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use super::tls;
use crate::target::{Address, Tls, TlsMode};

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Socket {
    /// Connects; a host name may resolve to several addresses, which are tried in order. A unix socket has no TLS: it
    /// never leaves the machine.
    pub(crate) async fn connect(address: &Address, tls: &Tls) -> io::Result<Self> {
        match address {
            Address::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                if tls.mode == TlsMode::Disable {
                    Ok(Self::Tcp(stream))
                } else {
                    Self::ask_for_tls(stream, host, tls).await
                }
            }
            Address::Unix(folder, port) => {
                Ok(Self::Unix(UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await?))
            }
        }
    }

    /// SSLRequest: the server answers with one byte, S or N.
    async fn ask_for_tls(mut stream: TcpStream, host: &str, tls: &Tls) -> io::Result<Self> {
        let mut request = BytesMut::new();
        frontend::ssl_request(&mut request);
        stream.write_all(&request).await?;
        match (stream.read_u8().await?, tls.mode) {
            (b'S', _) => Ok(Self::Tls(Box::new(tls::handshake(stream, host, tls).await?))),
            (b'N', TlsMode::Prefer) => Ok(Self::Tcp(stream)),
            (b'N', _) => Err(io::Error::other("the server has no TLS, and sslmode asks for it")),
            _ => Err(io::Error::other("the server's answer to SSLRequest is none that PostgreSQL gives")),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
