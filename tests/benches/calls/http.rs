//! The server over HTTP. As over stdio, the client does nothing but write requests and look for a few words in answers.

use serde_json::json;
use testkit::{Database, HttpServer};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::IN_FLIGHT;
use crate::call::{Call, Texts};

/// How the calls of a client belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Protocol 2026-07-28: each request has all that it needs.
    Stateless,
    /// Protocol 2025-06-18: a session for each client.
    Session,
}

/// A client for each call under way, with a connection that stays open.
pub(crate) struct HttpClients(Vec<HttpConnection>);

struct HttpConnection {
    address: String,
    stream: BufReader<TcpStream>,
    /// The head of every request, without the length of its body.
    head: String,
    session: Option<String>,
    /// The body of the last answer.
    body: Vec<u8>,
    asked: u64,
}

/// A server with the usual tools and without a limit of requests.
pub(crate) async fn start(db: &Database) -> HttpServer {
    let mut command = HttpServer::command(db);
    command.args(["--http-requests-per-s", "0"]).env("COUNTERSIGN_LOG", "warn,countersign=info");
    HttpServer::start(command).await
}

impl HttpClients {
    pub(crate) async fn connect(server: &HttpServer, protocol: Protocol) -> Self {
        let mut clients = Vec::new();
        for _ in 0..IN_FLIGHT {
            clients.push(HttpConnection::open(server, protocol).await);
        }
        Self(clients)
    }

    pub(crate) async fn run(&mut self, call: &Call) {
        self.0[0].run(call).await;
    }

    /// Makes calls with [`IN_FLIGHT`] of them under way.
    pub(crate) async fn run_many(&mut self, texts: Texts, calls: usize) {
        let mut tasks = JoinSet::new();
        for (first, mut client) in self.0.drain(..).enumerate() {
            tasks.spawn(async move {
                for number in (first..calls).step_by(IN_FLIGHT) {
                    client.run(&texts.call(number)).await;
                }
                client
            });
        }
        self.0 = tasks.join_all().await;
    }
}

impl HttpConnection {
    async fn open(server: &HttpServer, protocol: Protocol) -> Self {
        let address = server.address();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\n"
        );
        let stream = connect(&address).await;
        let mut client = Self { address, stream, head, session: None, body: Vec::new(), asked: 0 };
        match protocol {
            Protocol::Stateless => {
                client.head +=
                    "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: query_database\r\n";
            }
            Protocol::Session => client.open_session().await,
        }
        client
    }

    async fn open_session(&mut self) {
        let client = json!({"name": "bench", "version": "0"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        let opening = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello});
        let head = self.post(&opening.to_string()).await;
        let id = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session");
        self.head += &format!("mcp-protocol-version: 2025-06-18\r\nmcp-session-id: {id}\r\n");
        self.session = Some(id.to_owned());
        self.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string()).await;
    }

    async fn run(&mut self, call: &Call) {
        self.asked += 1;
        let mut params = call.params();
        if self.session.is_none() {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "0"},
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let message = json!({"jsonrpc": "2.0", "id": self.asked, "method": "tools/call", "params": params});
        self.post(&message.to_string()).await;
        call.check_answer(&self.body);
    }

    /// Sends a message and reads the whole answer. Returns its head.
    async fn post(&mut self, message: &str) -> String {
        // The server closes a connection that has been idle for too long.
        if matches!(self.stream.get_mut().try_read(&mut [0]), Ok(0)) {
            self.stream = connect(&self.address).await;
        }
        let request = format!("{}content-length: {}\r\n\r\n{message}", self.head, message.len());
        self.stream.get_mut().write_all(request.as_bytes()).await.unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(self.stream.read_line(&mut head).await.unwrap(), 0, "the connection was closed: {head}");
        }
        assert!(head.starts_with("HTTP/1.1 20"), "{head}");
        self.body.clear();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if let Some(length) = length {
            self.body.resize(length.parse().unwrap(), 0);
            self.stream.read_exact(&mut self.body).await.unwrap();
        } else {
            self.read_chunks().await;
        }
        head
    }

    async fn read_chunks(&mut self) {
        let mut line = String::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).await.unwrap();
            let length = usize::from_str_radix(line.trim_end(), 16).unwrap();
            let start = self.body.len();
            self.body.resize(start + length + 2, 0);
            self.stream.read_exact(&mut self.body[start..]).await.unwrap();
            self.body.truncate(start + length);
            if length == 0 {
                return;
            }
        }
    }
}

async fn connect(address: &str) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    BufReader::with_capacity(1 << 16, stream)
}
