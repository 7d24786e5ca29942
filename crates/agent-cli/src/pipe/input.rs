//! Commands in the order of their lines. Queries over the limit are deferred, together with the commands after them.

use futures_util::StreamExt;
use tokio::io::AsyncRead;
use tokio::time::Instant;
use tokio_util::codec::FramedRead;
use types::{Line, LineCodec};

use super::{CLOSE_GRACE, Parsed, Pipe, PipeEnd};
use crate::error::{CliError, EventErrorCode};
use crate::request::{self, AffectedTransactions, Command, RequestError};
use crate::run_query::passed;
use crate::writer::OutputClosedError;

/// Maximum number of commands that are read ahead while the first of them cannot be accepted.
const MAX_HELD: usize = 64;

impl Pipe {
    /// Reads commands until the end is requested.
    pub(super) async fn listen<R: AsyncRead + Unpin>(&mut self, lines: &mut FramedRead<R, LineCodec>) -> PipeEnd {
        loop {
            if self.held.front().is_some_and(|command| self.has_room_for(command))
                && let Some(command) = self.held.pop_front()
            {
                match self.handle(command).await {
                    Ok(()) => continue,
                    Err(OutputClosedError) => return PipeEnd::OutputClosed,
                }
            }
            if self.held.is_empty() && self.asked_to_end.is_some() {
                return PipeEnd::Requested;
            }
            let line = tokio::select! {
                biased;
                () = self.in_flight.room(), if !self.held.is_empty() => continue,
                () = passed(self.asked_to_end.map(|asked| asked + CLOSE_GRACE)) => return PipeEnd::Requested,
                line = lines.next(), if self.asked_to_end.is_none() && self.held.len() < MAX_HELD => line,
            };
            let command = match line {
                Some(Ok(Line::Complete(line))) => request::parse(&line),
                Some(Ok(Line::TooLong(id))) => Err(Box::new(RequestError::too_long(request::name_of(id)))),
                None => Ok(Command::Close),
                Some(Err(error)) => return PipeEnd::InputLost(error),
            };
            let handled = match command {
                Ok(Command::Close) => {
                    self.asked_to_end = Some(Instant::now());
                    Ok(())
                }
                // These commands overtake deferred ones.
                Ok(Command::Ping) => self.handle(command).await,
                Ok(Command::Cancel { id }) if !self.in_flight.contains(&id) => self.cancel_held(id).await,
                Ok(Command::Cancel { .. }) => self.handle(command).await,
                command => {
                    self.held.push_back(command);
                    Ok(())
                }
            };
            if handled.is_err() {
                return PipeEnd::OutputClosed;
            }
        }
    }

    /// Returns whether the command can be accepted now. Commands other than queries always can.
    fn has_room_for(&self, command: &Parsed) -> bool {
        !matches!(command, Ok(Command::Query(_) | Command::Begin { .. })) || self.in_flight.has_room()
    }

    async fn cancel_held(&mut self, id: String) -> Result<(), OutputClosedError> {
        let is_it = |command: &Parsed| matches!(command, Ok(Command::Query(query)) if query.id == id);
        let place = self.held.iter().position(is_it);
        let Some(Ok(Command::Query(query))) = place.and_then(|place| self.held.remove(place)) else {
            return self.handle(Ok(Command::Cancel { id })).await;
        };
        let problem = CliError::new(EventErrorCode::Cancelled, "the query was cancelled");
        let affected = AffectedTransactions::ForSession { session: query.session, is_begin: false };
        self.refuse(Some(query.id), problem, &affected).await
    }
}
