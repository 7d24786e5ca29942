//! A server that misbehaves in ways in which PostgreSQL never does, over TCP without TLS: for attacks that clients
//! must resist.

use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{hmac, pbkdf2};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misbehaviour {
    /// Starts sessions and then sends nothing, even if a client cancels.
    SaysNothing,
    /// Like `SaysNothing`, but sends zeros on a connection with a cancel request for as long as it is open.
    AnswersCancels,
    /// Like `SaysNothing`, but sessions have no key for cancel requests.
    HasNoKeys,
    /// Requests the password in clear text.
    AsksInClear,
    /// Requests the password in clear text after SCRAM has succeeded.
    AsksAfterScram,
    /// Requests this many SCRAM iterations.
    Iterations(u32),
    /// Answers with a newer protocol version.
    Negotiates,
}

/// The server. It ends with the test.
#[derive(Debug)]
pub struct FakeServer {
    port: u16,
    seen: Arc<Seen>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    cancels: AtomicUsize,
    bytes: AtomicUsize,
    passwords: Mutex<Vec<String>>,
}

impl FakeServer {
    /// The password that the server accepts for every user.
    pub const PASSWORD: &str = "secret";

    /// Starts the server on every address of this machine.
    pub async fn start(misbehaviour: Misbehaviour) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.expect("a socket to listen on");
        let port = listener.local_addr().expect("its address").port();
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let seen = Arc::clone(&shared);
                // A client may go away at any time.
                connections.spawn(async move { drop(serve(stream, misbehaviour, &seen).await) });
            }
        });
        Self { port, seen, accepting }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of cancel requests that the server received.
    pub fn cancels(&self) -> usize {
        self.seen.cancels.load(Ordering::SeqCst)
    }

    /// The number of bytes that the server sent to connections with a cancel request.
    pub fn bytes_taken(&self) -> usize {
        self.seen.bytes.load(Ordering::SeqCst)
    }

    /// The passwords that the server received in clear text.
    pub fn passwords(&self) -> Vec<String> {
        self.seen.passwords.lock().expect("nobody panics while holding it").clone()
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The code of a CancelRequest (PostgreSQL manual, "Message Formats").
const CANCEL_REQUEST: [u8; 4] = 80_877_102_i32.to_be_bytes();
const SSL_REQUEST: [u8; 4] = 80_877_103_i32.to_be_bytes();

async fn serve(mut stream: TcpStream, misbehaviour: Misbehaviour, seen: &Seen) -> std::io::Result<()> {
    let mut first = body(&mut stream).await?;
    if first.starts_with(&SSL_REQUEST) {
        stream.write_all(b"N").await?;
        first = body(&mut stream).await?;
    }
    if first.starts_with(&CANCEL_REQUEST) {
        seen.cancels.fetch_add(1, Ordering::SeqCst);
        if misbehaviour != Misbehaviour::AnswersCancels {
            return Ok(());
        }
        loop {
            let sent = stream.write(&[0; 64 * 1024]).await?;
            seen.bytes.fetch_add(sent, Ordering::SeqCst);
        }
    }
    match misbehaviour {
        Misbehaviour::Negotiates => stream.write_all(b"v\0\0\0\x0c\0\0\0\0\0\0\0\0").await?,
        Misbehaviour::Iterations(number) => scram(&mut stream, number).await?,
        Misbehaviour::AsksAfterScram => scram(&mut stream, 4096).await?,
        _ => {}
    }
    if matches!(misbehaviour, Misbehaviour::AsksInClear | Misbehaviour::AsksAfterScram) {
        ask(&mut stream, 3, b"").await?;
        let password = message(&mut stream).await?;
        let password = String::from_utf8_lossy(&password).trim_end_matches('\0').to_owned();
        seen.passwords.lock().expect("nobody panics while holding it").push(password);
    }
    ask(&mut stream, 0, b"").await?;
    if misbehaviour != Misbehaviour::HasNoKeys {
        stream.write_all(b"K\0\0\0\x0c\0\0\0\x07\0\0\0\x07").await?;
    }
    stream.write_all(b"Z\0\0\0\x05I").await?;
    // The client's query for its backend's process id, in the simple protocol.
    message(&mut stream).await?;
    let process = if misbehaviour == Misbehaviour::HasNoKeys { b"0" } else { b"7" };
    stream.write_all(&[b"D\0\0\0\x0b\0\x01\0\0\0\x01", &process[..], b"Z\0\0\0\x05I"].concat()).await?;
    loop {
        message(&mut stream).await?;
    }
}

/// Sends an authentication request of this kind.
async fn ask(stream: &mut TcpStream, kind: u32, data: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(data.len() + 8).expect("a size");
    stream.write_all(&[b"R", &length.to_be_bytes()[..], &kind.to_be_bytes(), data].concat()).await
}

/// Performs SCRAM-SHA-256 (RFC 5802) without checking the client's proof.
async fn scram(stream: &mut TcpStream, iterations: u32) -> std::io::Result<()> {
    ask(stream, 10, b"SCRAM-SHA-256\0\0").await?;
    let first = String::from_utf8_lossy(&message(stream).await?).into_owned();
    let client_first = &first[first.find("n=").expect("a client-first-message")..];
    let nonce = client_first.split_once("r=").expect("a nonce").1;
    let server_first = format!("r={nonce}fake,s={},i={iterations}", STANDARD.encode("salt"));
    ask(stream, 11, server_first.as_bytes()).await?;
    let client_final = String::from_utf8_lossy(&message(stream).await?).into_owned();
    let without_proof = client_final.split_once(",p=").expect("a proof").0;
    let mut salted = [0; 32];
    let iterations = NonZeroU32::new(iterations).expect("more than none");
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, b"salt", FakeServer::PASSWORD.as_bytes(), &mut salted);
    let sign = |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    let server_key = sign(&salted, "Server Key");
    let signature = sign(server_key.as_ref(), &format!("{client_first},{server_first},{without_proof}"));
    ask(stream, 12, format!("v={}", STANDARD.encode(signature)).as_bytes()).await
}

/// The next message with a tag, without its tag.
async fn message(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    stream.read_u8().await?;
    body(stream).await
}

/// Reads a length and the bytes that follow it.
async fn body(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    let mut body = vec![0; usize::try_from(length).expect("a size").saturating_sub(4)];
    stream.read_exact(&mut body).await?;
    Ok(body)
}
