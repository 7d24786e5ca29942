//! Receives rows in portions: because they need a conversion, or because they are passed on as they arrive.
//!
//! PostgreSQL sends rows when it has 8 KiB of them or when the portion ends. So few rows are requested while they
//! arrive slowly, and more when they arrive fast.

use std::time::{Duration, Instant};

use super::answer::{Answer, RowOutput};
use super::fetch::{FetchError, statement_error};
use super::server_json::{self, PartialRow};
use super::statement_metadata::StatementMetadata;
use super::{Reader, read_transaction, too_large};
use crate::client::error::{Error, ServerError};
use crate::client::session::{Session, TransactionSettings};
use crate::client::wire::{Failure, Purpose, StatementId};

/// A portion that took less time is followed by a larger one.
const SHORT: Duration = Duration::from_millis(20);

/// The intended maximum duration of a portion.
const LONG: Duration = Duration::from_millis(100);

/// The maximum growth from one portion to the next.
const GROWTH: usize = 8;

/// The maximum number of rows in a portion. With so many rows, the round trip no longer matters.
const MAX_ROWS: usize = 32_768;

/// The target size of a portion that is kept in memory until its end, estimated from the rows before it.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// The sizes of the portions of one portal.
#[derive(Debug)]
pub(super) struct Portions {
    rows: usize,
    max_rows: usize,
    began: Instant,
    /// When the last portion was requested, and how long the receiver had blocked by then.
    asked: (Instant, Duration),
}

impl Portions {
    /// Portions whose first one has `first` rows.
    fn new(first: usize, max_rows: usize) -> Self {
        let now = Instant::now();
        Self { rows: first, max_rows, began: now, asked: (now, Duration::ZERO) }
    }

    /// Notes that the next portion is requested. `blocked` is the time spent waiting for the receiver so far.
    fn ask(&mut self, blocked: Duration) {
        self.asked = (Instant::now(), blocked);
    }

    /// The row count for Execute.
    fn rows(&self) -> i32 {
        i32::try_from(self.rows).unwrap_or(i32::MAX)
    }

    /// The duration of all portions so far, including the time of their receiver.
    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Notes that the portion has arrived. `blocked` is as for [`Portions::ask`]: a slow receiver does not reduce the
    /// portions. `largest_row` is in bytes, 0 if rows are not kept.
    fn arrived(&mut self, blocked: Duration, largest_row: usize) {
        let (asked_at, blocked_before) = self.asked;
        let took = asked_at.elapsed().saturating_sub(blocked.saturating_sub(blocked_before));
        if took < SHORT {
            self.rows = self.rows.saturating_mul(GROWTH);
        } else if took > LONG {
            self.rows = (self.rows as f64 * LONG.as_secs_f64() / took.as_secs_f64()) as usize;
        }
        let max_rows = self.max_rows.min(MAX_KEPT_BYTES.checked_div(largest_row).unwrap_or(usize::MAX));
        self.rows = self.rows.min(max_rows).max(1);
    }
}

/// The portal of a statement whose rows come in portions. An unnamed portal would not survive the conversion of its
/// rows.
pub(super) const PORTAL: &str = "countersign_portal";

impl Reader {
    /// Receives portions up to the end of the transaction. Returns PostgreSQL's error if the statement was refused.
    /// The server converts values to JSON before it sends the next portion.
    pub(super) async fn run_portions<O: RowOutput>(
        &self,
        session: &mut Session,
        (mut portions, answer): (Portions, &mut Answer<'_, O>),
        first: Option<Failure>,
        statement: StatementId,
    ) -> Result<Option<ServerError>, FetchError> {
        let mut failure = first.map(|failure| statement_error(failure, statement));
        loop {
            let (drafts, largest_row) = answer.take_drafts();
            portions.arrived(answer.output.blocked(), largest_row);
            if let Some(error) = failure {
                if self.push_abort_and_reset(session).await.is_err() {
                    session.mark_unusable();
                }
                return Ok(Some(error));
            }
            let has_leaves = server_json::push(session, &drafts)?;
            let is_last = !answer.is_suspended;
            if is_last {
                self.transaction.push_end(session, answer.metadata().leaves_nothing)?;
            }
            session.connection.flush().await?;
            let converted = self.take_converted(session, answer, drafts, has_leaves).await?;
            if answer.is_cut {
                return Ok(None);
            }
            if is_last {
                // If the conversion failed, the end failed with it: they are in one pipeline.
                let ended = self.ended(session, answer.metadata()).await?;
                return Ok(converted.or(ended));
            }
            failure = converted;
            if failure.is_some() {
                continue;
            }
            if !answer.is_suspended {
                self.transaction.push_end(session, answer.metadata().leaves_nothing)?;
                session.connection.flush().await?;
                return Ok(self.ended(session, answer.metadata()).await?);
            }
            portions.ask(answer.output.blocked());
            failure = match self.push_portion(session, &portions, answer.output)? {
                Some(statement) => {
                    answer.resume(statement);
                    session.connection.flush().await?;
                    let failure = session.connection.converse(answer).await.map_err(too_large)?;
                    if answer.is_cut {
                        return Ok(None);
                    }
                    failure.map(|failure| statement_error(failure, statement))
                }
                None => Some(out_of_time()),
            };
        }
    }

    /// Queues the next portion, with the remaining time of the statement as its timeout. `None` if no time is left.
    fn push_portion<O: RowOutput>(
        &self,
        session: &mut Session,
        portions: &Portions,
        output: &O,
    ) -> Result<Option<StatementId>, Error> {
        let timeout_ms = session.settings.statement_timeout_ms;
        if timeout_ms > 0 && !session.is_pooled() {
            let Some(left_ms) = timeout_ms.checked_sub(portions.elapsed().as_millis()).filter(|left| *left > 0) else {
                return Ok(None);
            };
            let settings = TransactionSettings { statement_timeout_ms: left_ms, ..session.settings.clone() };
            read_transaction::push_settings(session, &settings)?;
        }
        session.connection.max_message_bytes = output.max_message_bytes();
        let statement = session.connection.next_statement();
        session.connection.push_execute(PORTAL, rows_to_ask(Some(portions), output))?;
        session.connection.push_sync(Purpose::Call);
        Ok(Some(statement))
    }

    /// Converts rows and passes them on. Returns PostgreSQL's error if the conversion was refused.
    async fn take_converted<O: RowOutput>(
        &self,
        session: &mut Session,
        answer: &mut Answer<'_, O>,
        drafts: Vec<PartialRow>,
        has_leaves: bool,
    ) -> Result<Option<ServerError>, FetchError> {
        let limit = answer.output.max_message_bytes();
        let converted = match server_json::receive(session, drafts, has_leaves, limit).await {
            Ok(converted) => converted,
            Err(Error::Server(error)) => return Ok(Some(*error)),
            Err(error @ Error::MessageTooLarge { .. }) => {
                answer.is_cut = true;
                answer.output.cut(error).map_err(too_large)?;
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        for row in converted.rows {
            if !answer.output.take_values(row).await.map_err(too_large)? {
                answer.is_suspended = false;
                break;
            }
        }
        if converted.is_cut {
            answer.is_cut = true;
            answer.output.cut(Error::MessageTooLarge { size: limit, limit }).map_err(too_large)?;
        }
        Ok(None)
    }
}

/// The row count for Execute; 0 means all rows.
pub(super) fn rows_to_ask<O: RowOutput>(portions: Option<&Portions>, output: &O) -> i32 {
    let wanted = output.row_limit().map(|rows| i32::try_from(rows).unwrap_or(i32::MAX));
    match (portions.map(Portions::rows), wanted) {
        (Some(portion), Some(wanted)) => portion.min(wanted.max(1)),
        (portion, wanted) => portion.or(wanted).unwrap_or(0),
    }
}

/// The portions in which the rows come; `None` if all come at once. PostgreSQL uses parallel workers only if all rows
/// are requested at once.
pub(super) fn portions_of<O: RowOutput>(metadata: &StatementMetadata, output: &O) -> Option<Portions> {
    if metadata.conversion.is_some() {
        return Some(Portions::new(O::FIRST_PORTION, server_json::MAX_PORTION));
    }
    let comes_in_portions = metadata.returns_rows && output.is_streamed() && !metadata.is_parallel;
    comes_in_portions.then(|| Portions::new(1, MAX_ROWS))
}

/// PostgreSQL's own error for a statement that exceeds its timeout.
fn out_of_time() -> ServerError {
    ServerError::synthetic("57014", "canceling statement due to statement timeout")
}
