//! Connections byte by byte, over loopback and over the address that this machine has on its network.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use testkit::{Database, HttpServer, external};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

/// How long an answer, or the end of a connection, may take before the test fails.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One connection.
pub(super) struct RawConnection {
    stream: TcpStream,
    received: Vec<u8>,
}

/// One answer.
#[derive(Debug)]
pub(super) struct RawAnswer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl RawAnswer {
    pub(super) fn closes(&self) -> bool {
        self.head.to_ascii_lowercase().contains("connection: close")
    }
}

/// A GET of this path with these lines of its head, addressed to loopback.
pub(super) fn get(path: &str, lines: &[&str]) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n")
}

impl RawConnection {
    pub(super) async fn open(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.expect("a connection"), received: Vec::new() }
    }

    /// To a server on loopback.
    pub(super) async fn to(server: &HttpServer) -> Self {
        Self::open(server.address().parse().unwrap()).await
    }

    /// Sends bytes; a connection that the server has closed takes none.
    pub(super) async fn try_send(&mut self, text: &str) -> bool {
        self.stream.write_all(text.as_bytes()).await.is_ok()
    }

    /// The next answer; `None` if the server has closed the connection.
    pub(super) async fn answer(&mut self) -> Option<RawAnswer> {
        tokio::time::timeout(TIMEOUT, self.read_answer()).await.expect("an answer, or the end")
    }

    pub(super) async fn ask(&mut self, request: &str) -> Option<RawAnswer> {
        self.try_send(request).await;
        self.answer().await
    }

    async fn read_answer(&mut self) -> Option<RawAnswer> {
        loop {
            let text = String::from_utf8_lossy(&self.received).into_owned();
            if let Some((head, rest)) = text.split_once("\r\n\r\n") {
                let length = head
                    .lines()
                    .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
                let length: usize = length.expect("an answer of known length");
                if rest.len() >= length {
                    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                    let (head, body) = (head.to_owned(), rest[..length].to_owned());
                    self.received = rest.as_bytes()[length..].to_vec();
                    return Some(RawAnswer { status, head, body });
                }
            }
            if self.stream.read_buf(&mut self.received).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Waits for the end of the connection.
    pub(super) async fn closed(mut self) {
        let reading = async { while self.stream.read_buf(&mut self.received).await.is_ok_and(|bytes| bytes > 0) {} };
        tokio::time::timeout(TIMEOUT, reading).await.expect("the server closes the connection");
    }
}

/// An address of this machine that is not loopback; a line says so if there is none.
pub(super) fn network_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Nothing is sent: the system only looks up from where it would be.
    let address = socket.connect(("198.51.100.1", 9)).ok().and_then(|()| Some(socket.local_addr().ok()?.ip()));
    let address = address.filter(|address| !address.is_loopback() && !address.is_unspecified());
    if address.is_none() {
        external::skip_unprivileged("this machine has no address besides loopback");
    }
    address
}

/// A server that listens on all addresses, with this configuration, and its port.
pub(super) async fn on_all_addresses(db: &Database, folder: &tempfile::TempDir, config: &str) -> (HttpServer, u16) {
    let path = folder.path().join("countersign.toml");
    std::fs::write(&path, config).unwrap();
    let mut command = Command::new(testkit::countersign());
    command.env("DATABASE_URL", db.writer_url()).args(["--log", "info", "serve", "--http", "0.0.0.0:0", "--config"]);
    command.arg(path).kill_on_drop(true);
    let server = HttpServer::listening(command).await;
    server.logged(" ready ").await;
    let port = server.address().rsplit_once(':').unwrap().1.parse().unwrap();
    (server, port)
}
