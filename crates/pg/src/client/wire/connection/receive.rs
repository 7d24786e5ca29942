//! Receives messages within their size limits, and turns them into events of the statements that were sent.

use std::io;

use bytes::{Buf, BytesMut};
use postgres_protocol::message::backend::{
    ERROR_RESPONSE_TAG, Header, Message, NOTICE_RESPONSE_TAG, NOTIFICATION_RESPONSE_TAG, PARAMETER_STATUS_TAG,
};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout_at};

use super::message::{beginning, check_body, is_utf8, other_encoding, violation};
use super::rows::owned_row;
use super::{
    Connection, Event, HEADER_BYTES, MAX_IDLE_BYTES, OtherEngine, READ_BYTES, TransactionStatus, closed, unanswered,
    within,
};
use crate::client::error::{Error, ServerError};

/// The number of bytes to read of an error that is too large as a whole: severity and SQLSTATE come first, then the
/// message.
const ERROR_HEAD_BYTES: usize = 16 * 1024;

impl Connection {
    /// The next event. After start-up, this is the only way to read from the connection.
    ///
    /// Cancel safe: bytes that have arrived stay in the inbox.
    pub(crate) async fn event(&mut self) -> Result<Event, Error> {
        loop {
            let event = match self.next_message().await? {
                Message::NoticeResponse(body) => {
                    let notice = ServerError::from_fields(body.fields());
                    notice.map(|notice| Some(Event::Notice(self.exchange.current(), Box::new(notice))))
                }
                message => self.exchange.accept(message),
            };
            if let Some(event) = event.map_err(Error::Lost).inspect_err(|error| self.poison(error))? {
                if let Event::Row(statement, row) = &event
                    && *statement == self.watched.0
                {
                    self.watched.1 = Some(owned_row(row)?);
                }
                if matches!(event, Event::Ready) && self.exchange.is_copying() {
                    self.poison(&Error::Lost(violation("how many answers follow a copy is unknown")));
                }
                return Ok(event);
            }
        }
    }

    /// The row of the statement of [`Connection::watch_last`], if it has arrived.
    pub(crate) fn take_watched(&mut self) -> Option<Vec<Option<String>>> {
        self.watched.1.take()
    }

    /// The next message while the session starts. Notices are skipped.
    pub(crate) async fn receive(&mut self) -> Result<Message, Error> {
        loop {
            match self.next_message().await? {
                Message::NoticeResponse(_) => {}
                message => return Ok(message),
            }
        }
    }

    async fn next_message(&mut self) -> Result<Message, Error> {
        self.receive_answer().await.inspect_err(|error| {
            // After a malformed message, later messages cannot be separated.
            if matches!(error, Error::Lost(_)) {
                self.poison(error);
            }
        })
    }

    async fn receive_answer(&mut self) -> Result<Message, Error> {
        loop {
            let message = self.receive_any().await?;
            check_body(&message)?;
            match &message {
                Message::NoticeResponse(body) => {
                    let notice = ServerError::from_fields(body.fields())?;
                    // The text of the notice is not logged: the function that raised it may quote any value.
                    tracing::debug!(severity = notice.severity, sqlstate = notice.sqlstate, "the server has a notice");
                }
                Message::ParameterStatus(body) => {
                    let (name, value) = (body.name()?, body.value()?);
                    self.reported.other_engine = self.reported.other_engine.or(OtherEngine::reporting(name, value));
                    if !self.allow_client_encoding_change && name == "client_encoding" && !is_utf8(value) {
                        let error = Error::Server(Box::new(other_encoding(value)));
                        self.poison(&error);
                        return Err(error);
                    }
                    match name {
                        "in_hot_standby" => self.reported.in_hot_standby = Some(value == "on"),
                        "default_transaction_read_only" => {
                            self.reported.default_transaction_read_only = Some(value == "on");
                        }
                        _ => {}
                    }
                    continue;
                }
                Message::NotificationResponse(_) => continue,
                Message::ReadyForQuery(body) => {
                    self.transaction_status = match body.status() {
                        b'I' => TransactionStatus::Idle,
                        b'T' => TransactionStatus::Open,
                        _ => TransactionStatus::Failed,
                    };
                }
                Message::ErrorResponse(body) => self.note_fatal(&ServerError::from_fields(body.fields())?),
                _ => {}
            }
            return Ok(message);
        }
    }

    async fn receive_any(&mut self) -> Result<Message, Error> {
        loop {
            let passed_over = self.skipped.min(self.inbox.len());
            self.inbox.advance(passed_over);
            self.skipped -= passed_over;
            if let Some(header) = Header::parse(&self.inbox)? {
                let size = usize::try_from(header.len()).unwrap_or(usize::MAX);
                // The announced length is checked before the body is stored, so a value of 1 GB takes no memory.
                let limit = self.exchange.max_message_bytes().unwrap_or(self.max_message_bytes);
                if size <= limit {
                    self.inbox.reserve((size + 1).saturating_sub(self.inbox.len()));
                    if let Some(message) = Message::parse(&mut self.inbox)? {
                        return Ok(message);
                    }
                } else if let Some(message) = self.pass_over(header.tag(), size, limit)? {
                    return Ok(message);
                } else if self.skipped > 0 {
                    continue;
                }
            }
            if self.inbox.is_empty() && self.inbox.capacity() > MAX_IDLE_BYTES {
                // The capacity for a large row is released with the row.
                self.inbox = BytesMut::with_capacity(READ_BYTES);
            }
            // A parsed message takes its part of the buffer with it. Without this, reads would shrink to a few bytes.
            self.inbox.reserve(READ_BYTES);
            match self.read().await {
                Ok(0) => return Err(Error::Lost(self.lost(closed()))),
                Ok(_) => {}
                Err(error) => return Err(Error::Lost(self.lost(error))),
            }
        }
    }

    async fn read(&mut self) -> io::Result<usize> {
        let read = self.socket.read_buf(&mut self.inbox);
        let read = match (self.probe_deadline, self.read_timeout) {
            (Some(deadline), _) => timeout_at(deadline, read).await.unwrap_or_else(|_| Err(unanswered())),
            (None, read_timeout) => within(read_timeout, read).await,
        }?;
        (self.last_heard, self.probe_deadline) = (Instant::now(), None);
        Ok(read)
    }

    /// Handles a message of `size` bytes that exceeds the limit. Returns the usable part of it once enough bytes have
    /// arrived.
    fn pass_over(&mut self, tag: u8, size: usize, limit: usize) -> Result<Option<Message>, Error> {
        match tag {
            NOTICE_RESPONSE_TAG | PARAMETER_STATUS_TAG | NOTIFICATION_RESPONSE_TAG => {
                self.skipped = size + 1;
                Ok(None)
            }
            ERROR_RESPONSE_TAG => match self.inbox.get(HEADER_BYTES..ERROR_HEAD_BYTES.min(size + 1)) {
                Some(fields) => {
                    let mut message = beginning(fields);
                    self.skipped = size + 1;
                    Ok(Message::parse(&mut message)?)
                }
                None => Ok(None),
            },
            _ => Err(Error::MessageTooLarge { size, limit }),
        }
    }
}
