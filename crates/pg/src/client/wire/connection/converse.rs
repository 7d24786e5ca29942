//! The loop that reads answers, and the interface of its consumers.

use std::ops::ControlFlow;

use postgres_protocol::message::frontend;
use tokio::time::{Instant, timeout_at};

use super::{Connection, Event, StatementId};
use crate::client::error::{Error, ServerError};

/// Consumes the events of an answer one by one. Closures implement it if they need not wait.
pub(crate) trait EventConsumer: Send {
    /// Consumes an event. [`ControlFlow::Break`] leaves the rest of the answer unread.
    fn take(&mut self, event: Event) -> impl Future<Output = Result<ControlFlow<()>, Error>> + Send;

    /// The time at which [`EventConsumer::flush`] must be called even if no event has arrived.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Passes on what the consumer has buffered.
    fn flush(&mut self) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }
}

impl<F: FnMut(Event) -> Result<(), Error> + Send> EventConsumer for F {
    async fn take(&mut self, event: Event) -> Result<ControlFlow<()>, Error> {
        self(event).map(ControlFlow::Continue)
    }
}

/// A statement that the server refused.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) statement: StatementId,
    pub(crate) error: Box<ServerError>,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Server(failure.error)
    }
}

const NO_COPY: &str = "COPY from the client is not supported here";

impl Connection {
    /// Passes the events up to the next Sync to `consumer`. Returns the first statement that failed, if one did.
    ///
    /// # Errors
    /// An error of the connection or of `consumer`. The rest of the answer is still pending then.
    pub(crate) async fn converse(&mut self, consumer: &mut impl EventConsumer) -> Result<Option<Failure>, Error> {
        let mut failure = None;
        loop {
            let event = match consumer.due() {
                Some(due) => timeout_at(due, self.event()).await,
                None => Ok(self.event().await),
            };
            let Ok(event) = event else {
                consumer.flush().await?;
                continue;
            };
            match event? {
                Event::Failed(statement, error) => failure = failure.or(Some(Failure { statement, error })),
                Event::Ready => return Ok(failure),
                event => {
                    if matches!(event, Event::CopyIn) {
                        self.refuse_copy().await?;
                    }
                    if consumer.take(event).await?.is_break() {
                        return Ok(failure);
                    }
                }
            }
        }
    }

    /// Like [`Connection::converse`], but drops all events.
    ///
    /// # Errors
    /// [`Error::Server`] for a statement that failed, otherwise as [`Connection::converse`].
    pub(crate) async fn finish(&mut self) -> Result<(), Error> {
        match self.converse(&mut |_| Ok(())).await? {
            None => Ok(()),
            Some(failure) => Err(failure.into()),
        }
    }

    /// Answers CopyInResponse with CopyFail. While the server waits for COPY data, it ignores the Sync that has been
    /// sent, so another Sync is sent. If the statement has failed by then (a view, a trigger), the server answers
    /// both Syncs. So the number of pending ReadyForQuery messages is unknown.
    async fn refuse_copy(&mut self) -> Result<(), Error> {
        frontend::copy_fail(NO_COPY, &mut self.outbox)?;
        frontend::sync(&mut self.outbox);
        Ok(self.flush().await?)
    }
}
