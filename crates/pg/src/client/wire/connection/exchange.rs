//! Assigns each message of the server to the request that it answers.
//!
//! The server answers requests in the order in which they were sent; after an error it skips those up to the next
//! Sync. So the queue of unanswered requests determines which request a message belongs to. A message that does not
//! belong to the first request of the queue is a protocol violation.

use std::collections::VecDeque;
use std::io;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{DataRowBody, Message};

use super::message::violation;
use super::rows::{FieldDescription, field_descriptions, tag};
use crate::client::error::ServerError;

/// A statement that was sent. Statements that were sent later have larger ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct StatementId(u64);

impl StatementId {
    /// The number of statements between `first` and this one; 0 if this one comes before `first`.
    pub(crate) fn since(self, first: Self) -> usize {
        usize::try_from(self.0.saturating_sub(first.0)).unwrap_or(usize::MAX)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Work of a caller. The caller waits for it.
    Call,
    /// The reset of the session after a call. The next user of the session waits for it.
    Reset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    Parse,
    Bind,
    DescribeStatement,
    DescribePortal,
    Execute,
    Close,
    Sync(Purpose),
    Query(Purpose),
}

/// A request that the server has not answered yet.
#[derive(Debug, Clone, Copy)]
struct Request {
    statement: StatementId,
    kind: RequestKind,
    /// The largest message that may answer it, in bytes.
    max_message_bytes: usize,
}

/// A message of the server, with the statement that it belongs to.
#[derive(Debug)]
pub(crate) enum Event {
    Parsed(StatementId),
    Bound(StatementId),
    /// The types of the parameters; `None` for more parameters than Bind can carry.
    Parameters(StatementId, Option<Vec<u32>>),
    /// `None` for a statement without result columns.
    Columns(StatementId, Option<Vec<FieldDescription>>),
    Row(StatementId, DataRowBody),
    /// The statement has ended, with this command tag.
    Completed(StatementId, String),
    /// The portal has more rows.
    Suspended(StatementId),
    /// The text has no statement.
    Empty(StatementId),
    /// The server expects COPY data from the client.
    CopyIn,
    /// The server sends COPY data.
    CopyOut,
    /// A notice, and the statement that raised it; `None` if no statement was running.
    Notice(Option<StatementId>, Box<ServerError>),
    Failed(StatementId, Box<ServerError>),
    /// The server is ready for the next pipeline.
    Ready,
}

/// The requests without an answer, in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pending: VecDeque<Request>,
    last: StatementId,
    /// Whether a statement copies data. The server may also answer a Sync that it ignored during COPY IN.
    is_copying: bool,
}

impl Exchange {
    /// Begins another statement. Requests that are pushed from now on belong to it.
    pub(super) fn next_statement(&mut self) -> StatementId {
        self.last.0 += 1;
        self.last
    }

    pub(super) fn last_statement(&self) -> StatementId {
        self.last
    }

    pub(super) fn push(&mut self, kind: RequestKind, max_message_bytes: usize) {
        if matches!(kind, RequestKind::Sync(_) | RequestKind::Query(_)) {
            self.next_statement();
        }
        self.pending.push_back(Request { statement: self.last, kind, max_message_bytes });
    }

    /// Adds a Close that is sent before everything else.
    pub(super) fn push_close_first(&mut self, max_message_bytes: usize) {
        let statement = StatementId::default();
        self.pending.push_front(Request { statement, kind: RequestKind::Close, max_message_bytes });
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Drops the requests after the first `len`, which were never sent.
    pub(super) fn truncate(&mut self, len: usize) {
        self.pending.truncate(len);
    }

    /// The purposes of the pending Syncs, in order.
    pub(super) fn pending_syncs(&self) -> impl Iterator<Item = Purpose> {
        self.pending.iter().filter_map(|request| match request.kind {
            RequestKind::Sync(purpose) | RequestKind::Query(purpose) => Some(purpose),
            _ => None,
        })
    }

    /// The size limit of the next message.
    pub(super) fn max_message_bytes(&self) -> Option<usize> {
        self.pending.front().map(|request| request.max_message_bytes)
    }

    /// The statement whose answer comes next.
    pub(super) fn current(&self) -> Option<StatementId> {
        self.pending.front().map(|request| request.statement)
    }

    /// Whether a COPY has begun. The number of ReadyForQuery messages that follow is unknown then.
    pub(super) fn is_copying(&self) -> bool {
        self.is_copying
    }

    /// Assigns a message to the request that it answers. `None` for an answer without content.
    ///
    /// # Errors
    /// A protocol violation. The connection must not be used further.
    pub(super) fn accept(&mut self, message: Message) -> io::Result<Option<Event>> {
        use RequestKind as Kind;
        let Some(&Request { statement: id, kind, .. }) = self.pending.front() else {
            return Err(violation("an answer to nothing"));
        };
        let is_query = matches!(kind, Kind::Query(_));
        let (event, is_answered) = match (message, kind) {
            (Message::ErrorResponse(body), _) => {
                let error = ServerError::from_fields(body.fields())?;
                self.skip_to_sync();
                return Ok(Some(Event::Failed(id, Box::new(error))));
            }
            (Message::ReadyForQuery(_), Kind::Sync(_) | Kind::Query(_)) => (Event::Ready, true),
            (Message::ParseComplete, Kind::Parse) => (Event::Parsed(id), true),
            (Message::BindComplete, Kind::Bind) => (Event::Bound(id), true),
            (Message::CloseComplete, Kind::Close) => {
                self.pending.pop_front();
                return Ok(None);
            }
            (Message::ParameterDescription(body), Kind::DescribeStatement) => {
                (Event::Parameters(id, body.parameters().collect().ok()), false)
            }
            (Message::RowDescription(body), Kind::DescribeStatement | Kind::DescribePortal | Kind::Query(_)) => {
                (Event::Columns(id, Some(field_descriptions(&body)?)), !is_query)
            }
            (Message::NoData, Kind::DescribeStatement | Kind::DescribePortal) => (Event::Columns(id, None), true),
            (Message::DataRow(body), Kind::Execute | Kind::Query(_)) => (Event::Row(id, body), false),
            (Message::CommandComplete(body), Kind::Execute | Kind::Query(_)) => {
                (Event::Completed(id, tag(&body)), !is_query)
            }
            (Message::EmptyQueryResponse, Kind::Execute | Kind::Query(_)) => (Event::Empty(id), !is_query),
            (Message::PortalSuspended, Kind::Execute) => (Event::Suspended(id), true),
            (Message::CopyInResponse(_), Kind::Execute | Kind::Query(_)) => {
                self.is_copying = true;
                (Event::CopyIn, false)
            }
            (Message::CopyOutResponse(_), Kind::Execute | Kind::Query(_)) => {
                self.is_copying = true;
                (Event::CopyOut, false)
            }
            (Message::CopyData(_) | Message::CopyDone, Kind::Execute | Kind::Query(_)) if self.is_copying => {
                return Ok(None);
            }
            _ => return Err(violation("an answer to something else")),
        };
        if is_answered {
            self.pending.pop_front();
        }
        Ok(Some(event))
    }

    /// After an error, the server skips everything up to the next Sync, including simple queries. An error in a
    /// simple query ends only that query.
    fn skip_to_sync(&mut self) {
        if !matches!(self.pending.front(), Some(Request { kind: RequestKind::Query(_), .. })) {
            let is_sync = |request: &Request| matches!(request.kind, RequestKind::Sync(_));
            let skipped = self.pending.iter().position(is_sync).unwrap_or(self.pending.len());
            self.pending.drain(..skipped);
        }
    }
}
