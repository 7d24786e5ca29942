//! One connection: messages out, messages in, and the transaction status that the server reports.

mod converse;
mod exchange;
mod message;
mod push;
mod receive;
pub(super) mod rows;

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use postgres_protocol::message::backend::{Header, Message};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

pub(crate) use converse::{EventConsumer, Failure};
use exchange::Exchange;
pub(crate) use exchange::{Event, Purpose, StatementId};
pub(crate) use message::other_encoding;
use message::{may_be_volunteered, violation};

use super::socket::{Endpoint, Socket};
use crate::client::connect_options::AuthMethod;
use crate::client::error::{Error, ServerError};

/// The status of the transaction in the last ReadyForQuery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionStatus {
    Idle,
    Open,
    Failed,
}

/// The data of a cancel request for this session.
#[derive(Debug, Clone)]
pub(crate) struct CancelKey {
    pub(crate) route: Endpoint,
    pub(crate) process_id: i32,
    pub(crate) secret_key: i32,
}

impl CancelKey {
    /// Whether the server has sent a key.
    pub(crate) fn is_given(&self) -> bool {
        (self.process_id, self.secret_key) != (0, 0)
    }
}

/// Parameters that a server reports at start-up; `None` behind a pooler that does not forward them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reported {
    pub(crate) in_hot_standby: Option<bool>,
    pub(crate) default_transaction_read_only: Option<bool>,
    pub(crate) other_engine: Option<OtherEngine>,
}

/// A database that speaks the protocol of PostgreSQL, and is another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherEngine {
    CockroachDb,
    YugabyteDb,
}

impl OtherEngine {
    /// The engine that reports this parameter.
    pub(crate) fn reporting(name: &str, value: &str) -> Option<Self> {
        match name {
            "crdb_version" => Some(Self::CockroachDb),
            // `15.2-YB-2025.1.0.0-b0`
            "server_version" if value.contains("-YB-") => Some(Self::YugabyteDb),
            _ => None,
        }
    }
}

impl std::fmt::Display for OtherEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::CockroachDb => "CockroachDB",
            Self::YugabyteDb => "YugabyteDB",
        })
    }
}

/// A connection after start-up.
///
/// The `push_*` functions queue messages, and [`Connection::flush`] sends them; [`Connection::receive`] returns one
/// answer at a time. Except while data is being sent, the connection does not read ahead, so a slow consumer slows
/// the server down instead of filling memory.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Socket,
    inbox: BytesMut,
    /// The number of bytes in the inbox that belong to a skipped message.
    skipped: usize,
    outbox: BytesMut,
    /// The largest message that may answer the requests pushed next, in bytes. Of a larger error, the beginning is
    /// read; a larger notice is skipped; any other larger message is an error.
    pub(crate) max_message_bytes: usize,
    pub(crate) key: CancelKey,
    pub(crate) transaction_status: TransactionStatus,
    exchange: Exchange,
    pub(crate) reported: Reported,
    /// The statement whose row is kept for [`Connection::take_watched`], and that row.
    watched: (StatementId, Option<Vec<Option<String>>>),
    /// The reason that the server gave before it closed this connection.
    fatal_error: Option<String>,
    /// Whether the connection can no longer be used.
    pub(crate) is_broken: bool,
    /// Whether the session may have a client encoding other than UTF8 for now. Only ASCII is sent meanwhile.
    pub(crate) allow_client_encoding_change: bool,
    /// How long an answer may take to begin; `None` is no limit.
    pub(crate) read_timeout: Option<Duration>,
    /// The authentication method that the server has requested.
    pub(crate) asked: AuthMethod,
    /// When the last byte arrived.
    pub(crate) last_heard: Instant,
    /// When the connection counts as lost, since a probe was sent and nothing has arrived since.
    probe_deadline: Option<Instant>,
}

/// A request that PostgreSQL answers at once, whatever follows: Close of the unnamed statement, and Flush.
const PROBE: &[u8] = b"C\0\0\0\x06S\0H\0\0\0\x04";

/// The default limit for a message.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// The initial capacity of the outbox.
const OUTBOX_BYTES: usize = 1024;

/// The largest capacity that an empty buffer keeps, in bytes.
const MAX_IDLE_BYTES: usize = 64 * 1024;

/// The length of a message's tag and length field, in bytes.
const HEADER_BYTES: usize = 5;

/// The least number of bytes to request from the socket at once.
const READ_BYTES: usize = 8 * 1024;

/// The most bytes that are read while data remains to be sent: twice what a pipeline may return. Sending and
/// receiving run at the same time. Otherwise a pipeline with large parameters, whose first statement returns a large
/// row, would stop: each side would wait for the other to read.
const MAX_BYTES_AHEAD: usize = 16 << 20;

/// The most bytes of rows that [`Connection::drain_responses`] reads only to drop them.
const MAX_FORGOTTEN_BYTES: usize = 1 << 20;

impl Connection {
    pub(crate) fn new(socket: Socket, route: Endpoint) -> Self {
        Self {
            socket,
            inbox: BytesMut::with_capacity(8 * 1024),
            skipped: 0,
            outbox: BytesMut::with_capacity(OUTBOX_BYTES),
            max_message_bytes: MAX_MESSAGE_BYTES,
            key: CancelKey { route, process_id: 0, secret_key: 0 },
            transaction_status: TransactionStatus::Idle,
            exchange: Exchange::default(),
            reported: Reported::default(),
            watched: Default::default(),
            fatal_error: None,
            is_broken: false,
            allow_client_encoding_change: false,
            read_timeout: None,
            asked: AuthMethod::None,
            last_heard: Instant::now(),
            probe_deadline: None,
        }
    }

    /// Whether the server has closed the connection, as far as this is visible without a request.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.is_broken |= self.socket.is_closed(&mut self.inbox);
        if !self.has_pending() && !self.is_broken && self.has_unasked() {
            self.poison(&Error::Lost(violation("an answer to nothing")));
        }
        self.is_broken
    }

    /// Whether the inbox holds a message that only a request can cause. On an idle connection it would be taken for
    /// the answer to the next request.
    fn has_unasked(&self) -> bool {
        let mut rest = self.inbox.get(self.skipped..).unwrap_or_default();
        while let Some(&tag) = rest.first() {
            if !may_be_volunteered(tag) {
                return true;
            }
            let Ok(Some(header)) = Header::parse(rest) else { return false };
            let size = usize::try_from(header.len()).unwrap_or(usize::MAX).saturating_add(1);
            rest = rest.get(size..).unwrap_or_default();
        }
        false
    }

    /// Whether a ReadyForQuery is still expected. No other call may use the connection until then.
    pub(crate) fn has_pending(&self) -> bool {
        self.exchange.pending_syncs().next().is_some()
    }

    /// Whether everything was sent, and only the answers to resets are pending.
    pub(crate) fn reset_pending(&self) -> bool {
        let is_reset = self.exchange.pending_syncs().all(|purpose| purpose == Purpose::Reset);
        self.has_pending() && is_reset && self.outbox.is_empty() && !self.is_broken
    }

    /// The memory of the inbox in bytes.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.inbox.capacity()
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) fn outbox(&mut self) -> &mut BytesMut {
        &mut self.outbox
    }

    /// Sends the queued messages, and receives answers meanwhile.
    ///
    /// A server whose answers are not read stops reading. With a long pipeline and a long answer each side would wait
    /// for the other (libpq's manual, "Pipeline Mode"). The bytes received meanwhile are bounded.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        if self.is_broken {
            self.outbox.clear();
            return Err(self.lost(closed()));
        }
        let sent = self.send().await;
        sent.map_err(|error| self.lost(error))
    }

    async fn send(&mut self) -> io::Result<()> {
        let Self { socket, inbox, outbox, last_heard, probe_deadline, read_timeout, .. } = self;
        if outbox.starts_with(PROBE) {
            *probe_deadline = Some(Instant::now() + self.key.route.keepalive.probe_timeout);
        }
        let (mut reading, mut writing) = tokio::io::split(socket);
        let send = async {
            // `mem::take` would lose the capacity of the buffer. A cancelled call leaves in it exactly the bytes that
            // were not sent.
            while outbox.has_remaining() {
                let sent = within(*read_timeout, writing.write(outbox)).await?;
                if sent == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                outbox.advance(sent);
            }
            within(*read_timeout, writing.flush()).await?;
            if outbox.capacity() > MAX_IDLE_BYTES {
                // The memory for a query of megabytes must not be kept for the rest of the session.
                *outbox = BytesMut::with_capacity(OUTBOX_BYTES);
            }
            Ok(())
        };
        tokio::pin!(send);
        loop {
            inbox.reserve(READ_BYTES);
            let may_read = inbox.len() < MAX_BYTES_AHEAD;
            let due = *probe_deadline;
            tokio::select! {
                biased;
                sent = &mut send => return sent,
                read = reading.read_buf(inbox), if may_read => {
                    if read? == 0 {
                        return Err(closed());
                    }
                    (*last_heard, *probe_deadline) = (Instant::now(), None);
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => return Err(unanswered()),
            }
        }
    }

    /// Makes the connection unusable: the server would misinterpret further messages. The server rolls back an open
    /// transaction when the connection closes.
    pub(crate) fn poison(&mut self, why: &Error) {
        self.is_broken = true;
        self.fatal_error.get_or_insert_with(|| why.to_string());
    }

    fn note_fatal(&mut self, error: &ServerError) {
        if matches!(error.severity.as_str(), "FATAL" | "PANIC") {
            self.fatal_error = Some(error.to_string());
        }
    }

    /// Whether the inbox begins with a whole message. `Message::parse` reserves memory for an incomplete one, as much
    /// as its header announces.
    fn holds_message(&self) -> bool {
        let Ok(Some(header)) = Header::parse(&self.inbox) else { return false };
        usize::try_from(header.len()).is_ok_and(|size| size < self.inbox.len())
    }

    /// Marks the connection as lost. If the server gave a reason before it closed the connection, that reason
    /// replaces the socket's error.
    fn lost(&mut self, error: io::Error) -> io::Error {
        self.is_broken = true;
        // The server's reason may have arrived together with the end of the connection, and is still unread.
        self.socket.is_closed(&mut self.inbox);
        while self.fatal_error.is_none() && self.holds_message() {
            let Ok(Some(message)) = Message::parse(&mut self.inbox) else { break };
            if let Message::ErrorResponse(body) = message {
                let _ = ServerError::from_fields(body.fields()).map(|error| self.note_fatal(&error));
            }
        }
        match &self.fatal_error {
            Some(fatal_error) => io::Error::new(io::ErrorKind::ConnectionAborted, fatal_error.clone()),
            None => error,
        }
    }

    /// Reads and drops the pending answers. Also returns when only closing the connection can end them: the server is
    /// still sending a large result, or a request was sent only in part.
    pub(crate) async fn drain_responses(&mut self) {
        let mut bytes = 0;
        while self.has_pending() && self.outbox.is_empty() && bytes <= MAX_FORGOTTEN_BYTES {
            match self.event().await {
                Ok(Event::Row(_, body)) => bytes += body.buffer().len(),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Sends Terminate and waits until the server has received it. The connection cannot be used afterwards.
    pub(crate) async fn terminate(&mut self, within: Duration) {
        // The outbox holds the rest of a request. The server must not receive it.
        if !self.outbox.is_empty() {
            return;
        }
        frontend::terminate(&mut self.outbox);
        let goodbye = async {
            let _ = self.flush().await;
            let _ = self.socket.shutdown().await;
            // The backend closes the socket when it has ended and its slot in the server is free.
            while matches!(self.socket.read_buf(&mut self.inbox).await, Ok(1..)) {
                self.inbox.clear();
            }
        };
        // A server that is gone, or that no longer reads, needs no Terminate.
        let _ = tokio::time::timeout(within, goodbye).await;
    }
}

/// The result of `work`, or an error if the server is silent for this time.
async fn within<T>(read_timeout: Option<Duration>, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let Some(read_timeout) = read_timeout else { return work.await };
    tokio::time::timeout(read_timeout, work).await.unwrap_or_else(|_| {
        let said = format!("nothing arrived from the server for {} s", read_timeout.as_secs_f32());
        Err(io::Error::new(io::ErrorKind::TimedOut, said))
    })
}

fn unanswered() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the server answers nothing on a connection that lay idle")
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the server")
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
