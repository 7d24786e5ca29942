//! Facts about a read, for the caller's log.

use std::sync::{Arc, Mutex, PoisonError};

use super::ResultSet;

/// Facts about one read. A failed read has those that were known when it failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadFacts {
    /// The text of the statement.
    pub sql: Option<String>,
    /// The tables that its plan reads, as `schema.table`; `None` without a plan, or if the reader does not collect
    /// them.
    pub tables: Option<Arc<[String]>>,
    /// The number of rows.
    pub rows: Option<usize>,
    /// The length of the rows as JSON, in bytes.
    pub row_bytes: usize,
    /// Whether a limit left rows out.
    pub is_truncated: bool,
}

/// Collects the facts of one read while it runs.
#[derive(Debug, Default)]
pub struct ReadTrace {
    facts: Mutex<ReadFacts>,
}

impl ReadTrace {
    /// Takes the facts that are known so far.
    #[must_use]
    pub fn take(&self) -> ReadFacts {
        std::mem::take(&mut *self.facts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the text of the statement, or of another kind of read request.
    pub fn set_text(&self, sql: &str) {
        self.update(|facts| facts.sql = Some(sql.to_owned()));
    }

    /// Sets the number and the size of rows that come from elsewhere than the statement.
    pub fn set_rows(&self, rows: usize, row_bytes: usize) {
        self.update(|facts| (facts.rows, facts.row_bytes) = (Some(rows), row_bytes));
    }

    pub(super) fn set_tables(&self, tables: Option<Arc<[String]>>) {
        self.update(|facts| facts.tables = tables);
    }

    pub(super) fn set_result(&self, result: &ResultSet) {
        self.update(|facts| {
            facts.rows = Some(result.rows.len());
            facts.row_bytes = result.rows.bytes();
            facts.is_truncated = result.truncated_by.is_some();
        });
    }

    fn update(&self, change: impl FnOnce(&mut ReadFacts)) {
        change(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
