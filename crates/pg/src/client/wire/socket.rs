//! The sockets that PostgreSQL listens on, with optional TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::tls;
use super::transport::Transport;
use crate::client::connect_options::{Address, ConnectOptions, Keepalive, SshTunnel, SslMode, TlsOptions};
use crate::client::unix_socket;

#[derive(Debug)]
pub(crate) enum Socket {
    Plain(Transport),
    Tls(Box<TlsStream<Transport>>),
}

/// The address of one server and everything needed to connect to it. CancelRequests use it as well.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// A TCP address always has its `hostaddr` here.
    pub(crate) address: Address,
    pub(crate) tls: TlsOptions,
    pub(crate) keepalive: Keepalive,
    pub(crate) requirepeer: Option<String>,
    pub(crate) ssh_tunnel: Option<SshTunnel>,
}

impl Endpoint {
    pub(crate) fn new(address: Address, target: &ConnectOptions) -> Self {
        Self {
            address,
            tls: target.tls.clone(),
            keepalive: target.keepalive.clone(),
            requirepeer: target.requirepeer.clone(),
            ssh_tunnel: target.ssh_tunnel.clone(),
        }
    }

    /// A copy without encryption, for the fallback of `sslmode=prefer`.
    pub(crate) fn plain(&self) -> Self {
        Self { tls: TlsOptions { mode: SslMode::Disable, ..TlsOptions::default() }, ..self.clone() }
    }
}

impl Socket {
    /// Connects. A unix socket never uses TLS: its data does not leave the machine.
    pub(crate) async fn connect(route: &Endpoint) -> io::Result<Self> {
        match &route.address {
            Address::Tcp { host, hostaddr, port } => {
                let name = hostaddr.map_or_else(|| host.clone(), |address| address.to_string());
                let stream = match &route.ssh_tunnel {
                    Some(tunnel) => Transport::Tunnel(tunnel.connect(&name, *port).await?),
                    None => {
                        let stream = TcpStream::connect((name.as_str(), *port)).await?;
                        stream.set_nodelay(true)?;
                        keep_alive(&stream, &route.keepalive)?;
                        Transport::Tcp(stream)
                    }
                };
                match route.tls.mode {
                    SslMode::Disable => Ok(Self::Plain(stream)),
                    _ if route.tls.is_direct => {
                        Ok(Self::Tls(Box::new(tls::handshake(stream, host, &route.tls).await?)))
                    }
                    _ => Self::ask_for_tls(stream, host, &route.tls).await,
                }
            }
            Address::Unix(folder, port) => {
                let stream = unix_socket::connect(folder, *port, route.requirepeer.as_deref()).await?;
                Ok(Self::Plain(Transport::Unix(stream)))
            }
        }
    }

    /// SSLRequest: the server answers with one byte, S or N.
    async fn ask_for_tls(mut stream: Transport, host: &str, tls: &TlsOptions) -> io::Result<Self> {
        let mut request = BytesMut::new();
        frontend::ssl_request(&mut request);
        stream.write_all(&request).await?;
        match (stream.read_u8().await?, tls.mode) {
            (b'S', _) => Ok(Self::Tls(Box::new(tls::handshake(stream, host, tls).await?))),
            (b'N', SslMode::Prefer) => Ok(Self::Plain(stream)),
            (b'N', _) => Err(io::Error::other("the server has no TLS, and sslmode asks for it")),
            _ => Err(io::Error::other("the server's answer to SSLRequest is none that PostgreSQL gives")),
        }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Whether others may read sent data: it leaves the machine unencrypted.
    pub(crate) fn is_exposed(&self) -> bool {
        match self {
            Self::Plain(Transport::Tcp(stream)) => {
                !stream.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback())
            }
            Self::Plain(Transport::Tunnel(_)) => true,
            Self::Plain(Transport::Unix(_)) | Self::Tls(_) => false,
        }
    }

    /// The channel-binding data of the connection (RFC 5929, `tls-server-end-point`); `None` if there is none.
    pub(crate) fn end_point(&self) -> Option<Vec<u8>> {
        let Self::Tls(stream) = self else { return None };
        super::channel_binding::end_point(stream.get_ref().1.peer_certificates()?.first()?)
    }

    /// Reads what has arrived, without waiting. Returns whether the peer has closed the connection.
    pub(crate) fn is_closed(&mut self, inbox: &mut BytesMut) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let mut bytes = [0; 1024];
        // Bounded: a peer that keeps sending is alive.
        for _ in 0..64 {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *self).poll_read(&mut context, &mut buffer) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => inbox.extend_from_slice(buffer.filled()),
                Poll::Ready(_) => return true,
            }
        }
        false
    }
}

fn keep_alive(stream: &TcpStream, wanted: &Keepalive) -> io::Result<()> {
    let socket = SockRef::from(stream);
    if wanted.is_on {
        let mut keepalive = TcpKeepalive::new();
        keepalive = wanted.idle.into_iter().fold(keepalive, TcpKeepalive::with_time);
        keepalive = wanted.interval.into_iter().fold(keepalive, TcpKeepalive::with_interval);
        // As in libpq, the count has no effect on Windows, where not every version has it.
        if cfg!(not(windows)) {
            keepalive = wanted.count.into_iter().fold(keepalive, TcpKeepalive::with_retries);
        }
        socket.set_tcp_keepalive(&keepalive)?;
    }
    #[cfg(target_os = "linux")]
    if wanted.user_timeout.is_some() {
        socket.set_tcp_user_timeout(wanted.user_timeout)?;
    }
    Ok(())
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
