//! The answer to a caller's statement on its way into an [`RowSink`].

use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use tokio::time::timeout_at;
use types::Column;

use super::row_sink::RowSink;
use crate::error::{Error, ServerError};
use crate::read::{PartialRow, ServerJson, too_many_drafts};
use crate::session::Session;

/// What has arrived when the server is ready for the next query.
#[derive(Debug, Default)]
pub(crate) struct Arrival {
    /// How many statements were bound.
    pub(crate) bound: usize,
    /// What PostgreSQL refused, if it did.
    pub(crate) failure: Option<ServerError>,
    /// More rows can be asked for.
    pub(crate) is_suspended: bool,
    /// The outlet takes no more, and the rest was not waited for.
    pub(crate) is_cut: bool,
    /// It wants to copy from or to the client.
    pub(crate) copies: bool,
    /// There is no statement in the text.
    pub(crate) is_empty: bool,
    /// The statement has ended, so a failure is one of what comes behind it.
    pub(crate) has_ended: bool,
    /// Rows that still need a conversion.
    pub(crate) drafts: Vec<PartialRow>,
}

/// Which of the messages are the statement's.
pub(crate) struct Expected<'a> {
    /// How many statements are executed before it.
    pub(crate) before: usize,
    pub(crate) columns: &'a [Column],
    pub(crate) conversion: Option<&'a ServerJson>,
    /// Whether rows that are not taken any more are waited for all the same: what a write does must come to its end before
    /// it can be taken back in order.
    pub(crate) to_its_end: bool,
}

/// Whose messages come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Those of so many statements before it, at least one.
    Before(usize),
    Statement,
    Behind,
}

impl Part {
    fn of(before: usize) -> Self {
        if before == 0 { Self::Statement } else { Self::Before(before) }
    }
}

/// How many rows of the largest size may wait for a conversion at once, by their bytes.
const MAX_LARGEST_DRAFTS: usize = 4;

const NO_COPY: &str = "COPY from the client is not supported here";

/// Takes in the answer of one statement, up to the next ReadyForQuery.
///
/// # Errors
/// [`Error::ReceiverDropped`] if nobody takes the rows, or whatever the connection says.
pub(crate) async fn arrive(
    session: &mut Session,
    expected: &Expected<'_>,
    outlet: &mut RowSink,
) -> Result<Arrival, Error> {
    let mut arrival = Arrival::default();
    let mut part = Part::of(expected.before);
    let mut draft_bytes = 0;
    loop {
        let received = match outlet.due() {
            Some(due) => timeout_at(due, session.connection.receive()).await,
            None => Ok(session.connection.receive().await),
        };
        let Ok(message) = received else {
            outlet.flush_batch().await?;
            continue;
        };
        match message? {
            Message::BindComplete => arrival.bound += 1,
            // Not what the end of the transaction has to say.
            Message::NoticeResponse(body) if part == Part::Statement => outlet.notice(&body).await?,
            Message::DataRow(body) if part == Part::Statement => match expected.conversion {
                Some(conversion) => {
                    let draft = conversion.draft(&body, expected.columns)?;
                    draft_bytes += draft.bytes;
                    let limit = MAX_LARGEST_DRAFTS * outlet.max_message_bytes();
                    if draft_bytes > limit {
                        return Err(too_many_drafts(limit));
                    }
                    arrival.drafts.push(draft);
                }
                None if outlet.take(&body).await? => {}
                None if expected.to_its_end => {}
                None => {
                    arrival.is_cut = true;
                    return Ok(arrival);
                }
            },
            Message::PortalSuspended if part == Part::Statement => (arrival.is_suspended, part) = (true, Part::Behind),
            Message::CommandComplete(body) if part == Part::Statement => {
                outlet.end(body.tag().unwrap_or_default());
                (arrival.has_ended, part) = (true, Part::Behind);
            }
            Message::CommandComplete(_) => {
                if let Part::Before(statements) = part {
                    part = Part::of(statements - 1);
                }
            }
            Message::EmptyQueryResponse if part == Part::Statement => (arrival.is_empty, part) = (true, Part::Behind),
            Message::CopyInResponse(_) => {
                arrival.copies = true;
                // While it waits for data it takes no notice of the Sync that has been sent. But it may have failed by then
                // (a view, a trigger), and answer both: nobody can say how many answers are still to come.
                frontend::copy_fail(NO_COPY, session.connection.outbox())?;
                frontend::sync(session.connection.outbox());
                session.connection.flush().await?;
            }
            Message::CopyOutResponse(_) => {
                arrival.copies = true;
                return Ok(arrival);
            }
            Message::ErrorResponse(body) if arrival.failure.is_none() => {
                arrival.failure = Some(ServerError::from_fields(body.fields())?);
            }
            Message::ReadyForQuery(_) => {
                session.connection.is_broken |= arrival.copies;
                return Ok(arrival);
            }
            _ => {}
        }
    }
}
