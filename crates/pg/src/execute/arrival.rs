//! The answer to a caller's statement on its way into an [`Outlet`].

use contract::Column;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::outlet::Outlet;
use crate::error::{Error, ServerError};
use crate::read::{Conversion, DraftRow};
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
    /// Rows that still need a conversion.
    pub(crate) drafts: Vec<DraftRow>,
}

/// Which of the messages are the statement's.
pub(crate) struct Expected<'a> {
    /// How many statements are bound before it.
    pub(crate) before: usize,
    pub(crate) columns: &'a [Column],
    pub(crate) conversion: Option<&'a Conversion>,
    /// Whether rows that are not taken any more are waited for all the same: what a write does must come to its end before
    /// it can be taken back in order.
    pub(crate) to_its_end: bool,
}

const NO_COPY: &str = "COPY from the client is not supported here";

/// Takes in the answer of one statement, up to the next ReadyForQuery.
///
/// # Errors
/// [`Error::Unread`] if nobody takes the rows, or whatever the connection says.
pub(crate) async fn arrive(
    session: &mut Session,
    expected: &Expected<'_>,
    outlet: &mut Outlet,
) -> Result<Arrival, Error> {
    let mut arrival = Arrival::default();
    let mut is_here = expected.before == 0 && session.connection.owed > 0;
    loop {
        match session.connection.receive().await? {
            Message::BindComplete => {
                arrival.bound += 1;
                is_here = arrival.bound == expected.before + 1;
            }
            // Not what the end of the transaction has to say.
            Message::NoticeResponse(body) if is_here => outlet.notice(&body).await?,
            Message::DataRow(body) if is_here => match expected.conversion {
                Some(conversion) => arrival.drafts.push(conversion.draft(&body, expected.columns)?),
                None if outlet.take(&body).await? => {}
                None if expected.to_its_end => {}
                None => {
                    arrival.is_cut = true;
                    return Ok(arrival);
                }
            },
            Message::PortalSuspended if is_here => (arrival.is_suspended, is_here) = (true, false),
            Message::CommandComplete(body) if is_here => {
                outlet.end(body.tag().unwrap_or_default());
                is_here = false;
            }
            Message::EmptyQueryResponse if is_here => (arrival.is_empty, is_here) = (true, false),
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
                session.connection.is_lost |= arrival.copies;
                return Ok(arrival);
            }
            _ => {}
        }
    }
}
