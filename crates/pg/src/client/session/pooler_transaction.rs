//! Transactions through a pooler that lends a backend for one transaction at a time.
//!
//! ```text
//! directly           statements, prepared once a session                                Sync
//! through a pooler   BEGIN · settings · statements, each parsed anew without a name · END · Sync
//! ```
//! State of a session (start-up settings, the name of a statement) reaches one backend, and another one may run the
//! next transaction. The first backend may by then serve another client. So a transaction sets everything that it
//! relies on, and removes everything that would outlive it before it ends: the pooler lends the backend on at that
//! moment.

use super::{PipelineError, PipelineStatement, Session, StatementResult};
use crate::client::error::Error;
use crate::client::literal::sql_literal;
use crate::client::session_settings::SessionSettings;
use crate::client::wire::Purpose;

/// The statements with which each transaction through a pooler begins.
#[derive(Debug)]
pub(crate) struct TransactionPreamble {
    /// The text after BEGIN: the modes that a direct session has by default.
    mode: String,
    /// A query that sets the rest.
    settings: String,
}

/// Removes what outlives a rolled-back transaction: advisory locks of the session, and prepared statements.
pub(crate) const RESET_STATEMENTS: [&str; 2] = ["select pg_catalog.pg_advisory_unlock_all()", "deallocate all"];

/// Leaves a transaction block that may have failed. The block stays open until all of it has been done. If a step
/// fails, the pooler still sees a transaction, and closes the backend when this client disconnects.
const ABORT_AND_RESET: &str =
    "rollback and chain; select pg_catalog.pg_advisory_unlock_all(); deallocate all; rollback";

impl TransactionPreamble {
    /// The preamble for sessions that start with these settings if there is no pooler.
    pub(crate) fn new(settings: &SessionSettings) -> Self {
        let mut mode = String::new();
        let mut rest = Vec::new();
        for (name, value) in settings.iter() {
            match name {
                // The level of this transaction; the default applies to later ones.
                "default_transaction_isolation" => mode.push_str(&format!(" isolation level {value}")),
                "default_transaction_read_only" if value == "on" => mode.push_str(" read only"),
                _ => rest.push((name, value)),
            }
        }
        Self { mode, settings: format!("select {}", setting(&rest)) }
    }

    /// The statements that open a transaction block. `mode` replaces the session's mode.
    fn opening(&self, mode: Option<&str>) -> [String; 2] {
        let begin = match mode {
            None => format!("begin{}", self.mode),
            Some(mode) => format!("begin {mode}"),
        };
        [begin, self.settings.clone()]
    }
}

/// A query that makes these settings for the transaction.
pub(crate) fn setting(settings: &[(&str, &str)]) -> String {
    let calls = settings.iter().map(|(name, value)| {
        format!("pg_catalog.set_config({}, {}, true)", sql_literal(Some(name)), sql_literal(Some(value)))
    });
    calls.collect::<Vec<_>>().join(", ")
}

impl Session {
    /// Whether another backend may have the next transaction.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        self.preamble.is_some()
    }

    /// Opens a transaction block and runs the steps in it, all in one round trip. `mode` follows BEGIN (`isolation
    /// level repeatable read read only`); `None` is the mode of the session.
    ///
    /// # Errors
    /// As [`Session::run`]; step 0 is also reported if the block could not be opened.
    pub async fn begin(
        &mut self,
        mode: Option<&str>,
        steps: &[PipelineStatement<'_>],
    ) -> Result<Vec<StatementResult>, PipelineError> {
        let opening = match &self.preamble {
            Some(preamble) => preamble.opening(mode).to_vec(),
            None => vec![mode.map_or_else(|| "begin".to_owned(), |mode| format!("begin {mode}"))],
        };
        let all: Vec<PipelineStatement<'_>> =
            opening.iter().map(|sql| PipelineStatement::without_params(sql)).chain(steps.iter().copied()).collect();
        let outcome = self.run_pipeline(&all).await;
        within(outcome, opening.len(), steps.len())
    }

    /// Runs `first` in a transaction of its own, commits it, and runs `second` in the next block, all in one round
    /// trip.
    ///
    /// # Errors
    /// As [`Session::run`]. Steps are counted through both lists; `first.len()` means that COMMIT failed.
    pub async fn commit_and_begin(
        &mut self,
        first: &[PipelineStatement<'_>],
        second: &[PipelineStatement<'_>],
    ) -> Result<Vec<StatementResult>, PipelineError> {
        let preamble = self.preamble.as_ref().map(|preamble| preamble.opening(None).to_vec());
        let begin = preamble.clone().unwrap_or_else(|| vec!["begin".to_owned()]);
        // The second block keeps the modes of the first, but not its settings.
        let again: Vec<String> = preamble.unwrap_or_default().into_iter().skip(1).collect();
        let commit = PipelineStatement::without_params("commit and chain");
        let opening = begin.iter().map(|sql| PipelineStatement::without_params(sql));
        let all: Vec<PipelineStatement<'_>> = opening
            .chain(first.iter().copied())
            .chain([commit])
            .chain(again.iter().map(|sql| PipelineStatement::without_params(sql)))
            .chain(second.iter().copied())
            .collect();
        let (before, between) = (begin.len(), first.len() + 1);
        match self.run_pipeline(&all).await {
            Ok(mut outcomes) => Ok(outcomes.split_off(all.len() - second.len())),
            Err(PipelineError { step, error }) => {
                let step = step.saturating_sub(before);
                let step = if step < between { step } else { step.saturating_sub(again.len()).max(first.len()) };
                Err(PipelineError { step, error })
            }
        }
    }

    /// Opens a transaction block that sees what the exported snapshot sees (`pg_export_snapshot`).
    ///
    /// # Errors
    /// An error of the server or the connection. A block may be open then, and has failed.
    pub async fn begin_with_snapshot(&mut self, snapshot: &str) -> Result<(), Error> {
        let settings = self.preamble.as_ref().map(|preamble| preamble.settings.clone()).unwrap_or_default();
        let import = format!("set transaction snapshot {}", sql_literal(Some(snapshot)));
        self.batch_execute(&format!("begin isolation level repeatable read; {import}; {settings}")).await
    }

    /// Runs the steps as a transaction of their own.
    pub(super) async fn run_in_transaction(
        &mut self,
        steps: &[PipelineStatement<'_>],
    ) -> Result<Vec<StatementResult>, PipelineError> {
        let end = [PipelineStatement::without_params("end")];
        let with_end: Vec<PipelineStatement<'_>> = steps.iter().chain(&end).copied().collect();
        let mut outcome = self.begin(None, &with_end).await;
        if let Ok(outcomes) = &mut outcome {
            outcomes.truncate(steps.len());
        } else if self.is_open() {
            // A block stays open after an error in it.
            self.batch_execute("rollback").await.map_err(|error| PipelineError { step: 0, error })?;
        }
        outcome
    }

    /// Whether a transaction block is open, failed or not, and nothing is under way.
    fn is_open(&self) -> bool {
        !self.connection.has_pending() && !self.is_idle()
    }

    /// Sets the start-up settings within a transaction after RESET ALL. A direct session returns to them by itself.
    pub async fn restore_preamble(&mut self) -> Result<(), Error> {
        let Some(preamble) = &self.preamble else { return Ok(()) };
        let settings = preamble.settings.clone();
        self.run_pipeline(&[PipelineStatement::without_params(&settings)])
            .await
            .map(drop)
            .map_err(|failed| failed.error)
    }

    /// Rolls back a transaction block, failed or not, and removes its traces. On a direct connection, the prepared
    /// statements remain.
    pub(crate) async fn roll_back(&mut self) -> Result<(), Error> {
        if self.is_pooled() { self.batch_execute(ABORT_AND_RESET).await } else { self.batch_execute("rollback").await }
    }

    /// Queues a rollback that removes these traces through a pooler. One ReadyForQuery answers it; after it the
    /// session can be reused.
    pub(crate) fn push_abort_and_reset(&mut self) -> Result<(), Error> {
        self.connection.push_simple_query(ABORT_AND_RESET, Purpose::Reset)?;
        Ok(())
    }
}

/// The outcome of the steps after the first `before` ones.
fn within(
    outcome: Result<Vec<StatementResult>, PipelineError>,
    before: usize,
    steps: usize,
) -> Result<Vec<StatementResult>, PipelineError> {
    match outcome {
        Ok(mut outcomes) => Ok(outcomes.split_off(before.min(outcomes.len()))),
        Err(PipelineError { step, error }) => {
            Err(PipelineError { step: step.saturating_sub(before).min(steps.saturating_sub(1)), error })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_would_be_started_with_is_said_in_every_transaction() {
        let settings = SessionSettings::default().with("jit", "off");
        let reader = TransactionPreamble::new(&settings.clone().with("default_transaction_read_only", "on"));
        let [begin, query] = reader.opening(None);
        assert_eq!(begin, "begin read only");
        for (name, value) in settings.iter() {
            assert!(query.contains(&format!("set_config('{name}', '{value}', true)")), "{query}");
        }
        let writer = TransactionPreamble::new(&settings.with("default_transaction_isolation", "read committed"));
        assert_eq!(writer.opening(None)[0], "begin isolation level read committed");
        assert_eq!(writer.opening(Some("read only"))[0], "begin read only");
    }
}
