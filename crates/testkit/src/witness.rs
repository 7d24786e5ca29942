//! A witness of logs in memory (c2sp.org/tlog-witness).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use tlog::{Checkpoint, Hash, KeyKind, NoteError, SignedNote, SigningKey, VerifierKey, verify_consistency};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::receiver::{self, ReceivedRequest};

/// A witness that cosigns what goes on from what it has cosigned. It ends with this value.
#[derive(Debug)]
pub struct Witness {
    address: SocketAddr,
    memory: Arc<Memory>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Memory {
    key: SigningKey,
    log_key: VerifierKey,
    /// The newest checkpoint, and its note with both signatures.
    cosigned: Mutex<Option<(Checkpoint, SignedNote)>>,
}

impl Witness {
    /// Starts a witness of the log with this key.
    pub async fn of(log_key: &str) -> Self {
        let key = SigningKey::generate("example.com/w1", KeyKind::Witness).expect("a key");
        let log_key = log_key.parse().expect("the key of a log");
        let memory = Arc::new(Memory { key, log_key, cosigned: Mutex::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        Self { address, task: tokio::spawn(serve(listener, Arc::clone(&memory))), memory }
    }

    /// Stops answering.
    pub async fn stop(&mut self) {
        self.task.abort();
        let _ended = (&mut self.task).await;
    }

    /// Answers again at the same address, with what it remembers.
    pub async fn resume(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("the port again");
        self.task = tokio::spawn(serve(listener, Arc::clone(&self.memory)));
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub fn vkey(&self) -> String {
        self.memory.key.verifier_key().to_string()
    }

    pub fn has_cosigned(&self, note: &str) -> bool {
        note.parse::<SignedNote>().is_ok_and(|note| note.verify(&[self.memory.key.verifier_key().clone()]).is_ok())
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, memory: Arc<Memory>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let Some(request) = receiver::read(&mut stream).await else { continue };
        let (status, body) = memory.answer(&request).unwrap_or_else(|status| (status, String::new()));
        let length = body.len();
        let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    }
}

impl Memory {
    fn answer(&self, request: &ReceivedRequest) -> Result<(u16, String), u16> {
        let mut cosigned = self.cosigned.lock().expect("no panic");
        if request.line.starts_with("GET ") {
            let origin = Hash::of(&[self.log_key.name().as_bytes()]).to_hex();
            let shown = cosigned.as_ref().filter(|_| request.line.contains(&format!("/{origin}/checkpoint ")));
            return shown.map(|(_, note)| (200, note.to_string())).ok_or(404);
        }
        let (head, note) = request.body.split_once("\n\n").ok_or(400_u16)?;
        let mut lines = head.lines();
        let old = lines.next().and_then(|line| line.strip_prefix("old ")?.parse::<u64>().ok()).ok_or(400_u16)?;
        let proof: Vec<Hash> = lines.map(Hash::from_base64).collect::<Option<_>>().ok_or(400_u16)?;
        let mut note: SignedNote = note.parse().map_err(|_| 400_u16)?;
        let checkpoint: Checkpoint = note.text().parse().map_err(|_| 400_u16)?;
        if checkpoint.origin != self.log_key.name() {
            return Err(404);
        }
        note.verify(std::slice::from_ref(&self.log_key)).map_err(|error| match error {
            NoteError::Malformed(_) => 400_u16,
            NoteError::Unsigned | NoteError::Invalid(_) => 403,
        })?;
        let (size, root) = cosigned.as_ref().map_or((0, Hash::EMPTY_ROOT), |(newest, _)| (newest.size, newest.root));
        if size != old {
            return Ok((409, format!("{size}\n")));
        }
        verify_consistency((size, &root), (checkpoint.size, &checkpoint.root), &proof).map_err(|_| 422_u16)?;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time since 1970").as_secs();
        let cosignature = self.key.sign(note.text(), time);
        note.retain_signed_by(std::slice::from_ref(&self.log_key));
        note.add([cosignature.clone()]);
        *cosigned = Some((checkpoint, note));
        Ok((200, cosignature.to_string()))
    }
}
