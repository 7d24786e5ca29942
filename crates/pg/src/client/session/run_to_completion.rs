//! A statement of anybody's in a transaction that writes: described first, then run to its end.
//!
//! A read stops when it has enough rows; a statement that writes must not, since the rest of what it does would be
//! missing. So all rows are received, and only some are kept.

use super::collector::{Collector, RowRetention};
use super::{Session, StatementResult};
use crate::client::error::Error;
use crate::client::limits::TruncatedBy;
use crate::client::wire::Purpose;

/// What a statement that ran to its end gave back.
#[derive(Debug, Default)]
pub struct CompleteResult {
    /// The rows that were kept.
    pub outcome: StatementResult,
    /// Which of the limits left rows out, if one did.
    pub truncated_by: Option<TruncatedBy>,
    /// Whether the text holds no statement at all.
    pub is_empty: bool,
}

impl Session {
    /// This session does not go back to its pool: nobody knows what is left in it.
    pub fn mark_unusable(&mut self) {
        self.outdated = true;
    }

    /// Whether a statement may set another client encoding than UTF8: its caller takes back what it has set, and sends nothing
    /// but ASCII until then. An answer that is not UTF-8 is an error all the same.
    pub fn allow_client_encoding_change(&mut self, bears: bool) {
        self.connection.allow_client_encoding_change = bears;
    }

    /// Takes back every prepared statement, whoever made it.
    ///
    /// SQL reaches prepared statements by name (EXECUTE), those of the protocol as well: a prepared COMMIT of ours would
    /// be one that any text can run.
    ///
    /// # Errors
    /// Whatever the server or the connection says.
    pub async fn deallocate_all(&mut self) -> Result<(), Error> {
        self.deallocate_after("").await
    }

    /// The same behind a constant of ours, which may hold several statements.
    ///
    /// # Errors
    /// Whatever the server or the connection says.
    pub async fn deallocate_after(&mut self, own_text: &str) -> Result<(), Error> {
        self.prepared.clear();
        self.batch_execute(&format!("{own_text}; deallocate all")).await
    }

    /// Runs the statement that was described under this name, to its end.
    ///
    /// # Errors
    /// [`Error::Server`] if it failed; after any other error it is unknown what ran.
    pub async fn run_to_completion(
        &mut self,
        name: &str,
        params: &[Option<String>],
        keep: RowRetention,
    ) -> Result<CompleteResult, Error> {
        let usual = std::mem::replace(&mut self.connection.max_message_bytes, keep.bytes);
        let pushed = self.connection.push_whole(|connection| {
            connection.next_statement();
            connection.push_bind("", name, params)?;
            connection.push_describe_portal("")?;
            connection.push_execute("", 0)
        });
        self.connection.max_message_bytes = usual;
        pushed?;
        self.connection.push_sync(Purpose::Call);
        self.connection.flush().await?;
        let mut collector = Collector::new(keep, 0);
        let failure = self.collect(&mut collector).await?;
        let Collector { mut results, truncated_by, is_empty, .. } = collector;
        let result = CompleteResult { outcome: results.pop().unwrap_or_default(), truncated_by, is_empty };
        failure.map_or(Ok(result), |failure| Err(failure.into()))
    }
}
