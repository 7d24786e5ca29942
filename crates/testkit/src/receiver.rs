//! An HTTP receiver of webhooks whose answers a test chooses.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the receiver does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reception {
    /// Answers with this status.
    Status(u16),
    /// Reads the request and never answers.
    Silence,
    /// Closes the connection without an answer.
    Close,
}

/// A received request. The names of headers are in lower case.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub line: String,
    pub headers: HashMap<String, String>,
    pub body: String,
}

#[derive(Debug, Default)]
struct State {
    receptions: Mutex<Vec<Reception>>,
    requests: Mutex<Vec<ReceivedRequest>>,
}

/// The receiver. It ends with this value.
#[derive(Debug)]
pub struct WebhookReceiver {
    address: SocketAddr,
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
}

impl WebhookReceiver {
    /// Starts a receiver that handles the first requests like this, one after the other, and answers 204 to all
    /// others.
    pub async fn start(receptions: &[Reception]) -> Self {
        Self::on("127.0.0.1:0".parse().expect("an address"), receptions).await
    }

    /// Like [`WebhookReceiver::start`], on this address.
    pub async fn on(address: SocketAddr, receptions: &[Reception]) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let state = Arc::new(State::default());
        *state.receptions.lock().expect("no panic") = receptions.iter().rev().copied().collect();
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(receive(stream, Arc::clone(&shared)));
            }
        });
        Self { address, state, task }
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook?from=countersign", self.address)
    }

    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.state.requests.lock().expect("no panic").clone()
    }

    /// Waits for this number of requests and returns them.
    pub async fn at_least(&self, count: usize) -> Vec<ReceivedRequest> {
        let enough = async || Some(self.requests()).filter(|requests| requests.len() >= count);
        crate::poll::until_some(&format!("{count} requests at the receiver"), enough).await
    }
}

impl Drop for WebhookReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn receive(mut stream: TcpStream, state: Arc<State>) {
    let Some(request) = read(&mut stream).await else { return };
    let reception = state.receptions.lock().expect("no panic").pop().unwrap_or(Reception::Status(204));
    state.requests.lock().expect("no panic").push(request);
    match reception {
        Reception::Status(status) => {
            let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
        Reception::Silence => drop(stream.read(&mut [0; 1]).await),
        Reception::Close => {}
    }
}

pub(crate) async fn read(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    loop {
        let mut part = [0; 4096];
        let length = stream.read(&mut part).await.ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(part.get(..length)?);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let mut lines = head.lines();
        let line = lines.next().unwrap_or_default().to_owned();
        let headers: HashMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let wanted: usize = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or_default();
        if body.len() >= wanted {
            return Some(ReceivedRequest { line, headers, body: body.to_owned() });
        }
    }
}

impl ReceivedRequest {
    /// The HMAC-SHA-256 of this secret over the request, as Standard Webhooks has it.
    pub fn expected_signature(&self, secret: &str) -> String {
        use base64::Engine;
        let base64 = base64::engine::general_purpose::STANDARD;
        let key = base64.decode(secret.trim_start_matches("whsec_")).expect("base64");
        let signed = format!("{}.{}.{}", self.headers["webhook-id"], self.headers["webhook-timestamp"], self.body);
        let tag = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key), signed.as_bytes());
        format!("v1,{}", base64.encode(tag))
    }
}
