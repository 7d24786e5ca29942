//! Runs a statement of a user in a transaction that writes: it is described first, then run to its end.
//!
//! A read stops when it has enough rows. A statement that writes must not stop, since the rest of its effects would be
//! missing. So all rows are received, and only some are kept.

use super::collector::{Collector, RowRetention};
use super::{Session, StatementResult};
use crate::client::error::Error;
use crate::client::limits::TruncatedBy;
use crate::client::wire::Purpose;

/// The result of a statement that ran to its end.
#[derive(Debug, Default)]
pub struct CompleteResult {
    /// The rows that were kept.
    pub outcome: StatementResult,
    /// The limit that left rows out, if any.
    pub truncated_by: Option<TruncatedBy>,
    /// Whether the text contains no statement.
    pub is_empty: bool,
}

impl Session {
    /// Prevents the session from returning to its pool: its state is unknown.
    pub fn mark_unusable(&mut self) {
        self.is_unusable = true;
    }

    /// Whether statements may set a client encoding other than UTF8. The caller restores the encoding, and sends only
    /// ASCII until then. A row that is not UTF-8 remains an error.
    pub fn allow_client_encoding_change(&mut self, is_allowed: bool) {
        self.connection.allow_client_encoding_change = is_allowed;
    }

    /// Closes every prepared statement, including those of SQL's PREPARE.
    ///
    /// SQL reaches prepared statements by name (EXECUTE), also those of the protocol. If the server prepared COMMIT,
    /// any text could run it.
    pub async fn deallocate_all(&mut self) -> Result<(), Error> {
        self.deallocate_after("").await
    }

    /// Runs a constant text of the server, which may have several statements, and closes every prepared statement.
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
