//! Queues messages to send, each whole or not at all.

use std::io;

use bytes::BytesMut;
use postgres_protocol::message::frontend;

use super::exchange::{Purpose, RequestKind, StatementId};
use super::{Connection, MAX_MESSAGE_BYTES, PROBE};
use crate::client::error::{Error, ServerError};

/// The length of the queue at some point ([`Connection::pushed`]).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pushed {
    bytes: usize,
    requests: usize,
}

impl Connection {
    /// Queues all messages of `push` or, if it fails, none: the next flush must not send half a message or half a
    /// pipeline.
    pub(crate) fn push_whole<T, E>(&mut self, push: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        let before = self.pushed();
        push(self).inspect_err(|_| self.take_back(before))
    }

    /// The current length of the queue.
    pub(crate) fn pushed(&self) -> Pushed {
        Pushed { bytes: self.outbox.len(), requests: self.exchange.len() }
    }

    /// Removes the messages that were queued since then. None of them may have been sent.
    pub(crate) fn take_back(&mut self, before: Pushed) {
        self.outbox.truncate(before.bytes);
        self.exchange.truncate(before.requests);
    }

    /// Begins another statement. Messages that are queued from now on belong to it.
    pub(crate) fn next_statement(&mut self) -> StatementId {
        self.exchange.next_statement()
    }

    /// Keeps the row of the statement that was begun last, whatever consumes the answer.
    pub(crate) fn watch_last(&mut self) {
        self.watched = (self.exchange.last_statement(), None);
    }

    fn push_request<E>(
        &mut self,
        kind: RequestKind,
        push: impl FnOnce(&mut BytesMut) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = self.outbox.len();
        push(&mut self.outbox).inspect_err(|_| self.outbox.truncate(bytes))?;
        self.exchange.push(kind, self.max_message_bytes);
        Ok(())
    }

    /// `param_types` are `pg_type.oid`s; 0 or a missing entry lets the server infer the type.
    ///
    /// The protocol cannot carry a NUL, so a text with one is refused here, with PostgreSQL's own error. It must
    /// neither leave half a message in the outbox nor look like a lost connection.
    pub(crate) fn push_parse(&mut self, name: &str, sql: &str, param_types: &[u32]) -> Result<(), Error> {
        if let Some(index) = sql.chars().position(|c| c == '\0') {
            return Err(Error::Server(Box::new(ServerError {
                position: u32::try_from(index + 1).ok(),
                ..ServerError::synthetic("22021", "invalid byte sequence for encoding \"UTF8\": 0x00")
            })));
        }
        let types = param_types.iter().copied();
        Ok(self.push_request(RequestKind::Parse, |outbox| frontend::parse(name, sql, types, outbox))?)
    }

    /// Parameters and results in text form.
    pub(crate) fn push_bind(&mut self, portal: &str, statement: &str, params: &[Option<String>]) -> io::Result<()> {
        self.push_bind_as(portal, statement, (&[], params), &[])
    }

    /// Queues Bind with a format for each parameter and for each result column: 0 is text, 1 is binary. No formats
    /// mean text for all.
    pub(crate) fn push_bind_as<T: AsRef<[u8]>>(
        &mut self,
        portal: &str,
        statement: &str,
        (param_formats, params): (&[i16], &[Option<T>]),
        result_formats: &[i16],
    ) -> io::Result<()> {
        self.push_request(RequestKind::Bind, |outbox| {
            frontend::bind(
                portal,
                statement,
                param_formats.iter().copied(),
                params,
                |param, buf| match param {
                    Some(bytes) => {
                        buf.extend_from_slice(bytes.as_ref());
                        Ok(postgres_protocol::IsNull::No)
                    }
                    None => Ok(postgres_protocol::IsNull::Yes),
                },
                result_formats.iter().copied(),
                outbox,
            )
        })
        .map_err(|error| match error {
            frontend::BindError::Serialization(error) => io::Error::other(error),
            frontend::BindError::Conversion(error) => io::Error::other(error),
        })
    }

    /// Queues Close of a prepared statement. It is not an error if the statement does not exist.
    pub(crate) fn push_close_statement(&mut self, name: &str) -> io::Result<()> {
        self.push_request(RequestKind::Close, |outbox| frontend::close(b'S', name, outbox))
    }

    pub(crate) fn push_describe_statement(&mut self, name: &str) -> io::Result<()> {
        self.push_request(RequestKind::DescribeStatement, |outbox| frontend::describe(b'S', name, outbox))
    }

    pub(crate) fn push_describe_portal(&mut self, name: &str) -> io::Result<()> {
        self.push_request(RequestKind::DescribePortal, |outbox| frontend::describe(b'P', name, outbox))
    }

    /// Queues Execute. `max_rows` 0 means no limit.
    pub(crate) fn push_execute(&mut self, portal: &str, max_rows: i32) -> io::Result<()> {
        self.push_request(RequestKind::Execute, |outbox| frontend::execute(portal, max_rows, outbox))
    }

    pub(crate) fn push_sync(&mut self, purpose: Purpose) {
        frontend::sync(&mut self.outbox);
        self.exchange.push(RequestKind::Sync(purpose), self.max_message_bytes);
    }

    /// Lets the next pipeline begin with a probe if the peer has been silent for long: it may be gone without notice.
    /// The probe is not sent on its own.
    pub(crate) fn push_probe(&mut self) {
        if self.last_heard.elapsed() >= self.key.route.keepalive.probe_after && !self.outbox.starts_with(PROBE) {
            let rest = self.outbox.split();
            self.outbox.extend_from_slice(PROBE);
            self.outbox.unsplit(rest);
            self.exchange.push_close_first(MAX_MESSAGE_BYTES);
        }
    }

    /// Queues a simple query, which may contain several statements. `sql` must be a constant of this crate.
    pub(crate) fn push_simple_query(&mut self, sql: &str, purpose: Purpose) -> io::Result<()> {
        self.push_request(RequestKind::Query(purpose), |outbox| frontend::query(sql, outbox))
    }
}
