//! Collects what statements return.

use super::StatementResult;
use crate::client::error::Error;
use crate::client::limits::TruncatedBy;
use crate::client::wire::{Event, StatementId, owned_row};

/// How much of a result is kept.
#[derive(Debug, Clone, Copy)]
pub struct RowRetention {
    pub rows: usize,
    /// The bytes of text. A single row that is larger ends the connection.
    pub bytes: usize,
}

/// The maximum number of notices that are kept of a statement. Each has fields of up to 8 KiB.
const MAX_NOTICES: usize = 20;

/// Collects the results of a pipeline, its rows up to a limit.
#[derive(Debug)]
pub(super) struct Collector {
    pub(super) results: Vec<StatementResult>,
    current: StatementResult,
    keep: RowRetention,
    /// The bytes to count for each row besides its values.
    row_header_bytes: usize,
    /// The bytes of all rows, including rows that were left out.
    pub(super) bytes: usize,
    /// Which limit left rows out.
    pub(super) truncated_by: Option<TruncatedBy>,
    /// The last statement that was parsed.
    pub(super) parsed: Option<StatementId>,
    /// Whether a text had no statement.
    pub(super) is_empty: bool,
    /// The last statement whose result is left out.
    after: Option<StatementId>,
}

impl Collector {
    pub(super) fn new(keep: RowRetention, row_header_bytes: usize) -> Self {
        Self {
            results: Vec::new(),
            current: StatementResult::default(),
            keep,
            row_header_bytes,
            bytes: 0,
            truncated_by: None,
            parsed: None,
            is_empty: false,
            after: None,
        }
    }

    /// Leaves out the results of statements up to this one, which were queued before and are sent with the others.
    pub(super) fn after(self, statement: StatementId) -> Self {
        Self { after: Some(statement), ..self }
    }

    pub(super) fn take(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Parsed(statement) => self.parsed = Some(statement),
            Event::Columns(_, columns) => self.current.columns = columns.unwrap_or_default(),
            Event::Row(_, body) => {
                self.bytes += body.buffer().len() + self.row_header_bytes;
                if self.current.rows.len() == self.keep.rows {
                    self.truncated_by = Some(TruncatedBy::RowLimit);
                } else if self.bytes > self.keep.bytes {
                    self.truncated_by = Some(TruncatedBy::MaxBytes);
                } else {
                    self.current.rows.push(owned_row(&body)?);
                }
            }
            Event::Notice(_, notice) if self.current.notices.len() < MAX_NOTICES => self.current.notices.push(*notice),
            Event::Completed(statement, tag) => {
                self.current.tag = tag;
                self.end(statement);
            }
            Event::Empty(statement) => {
                self.is_empty = true;
                self.end(statement);
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, statement: StatementId) {
        let result = std::mem::take(&mut self.current);
        if self.after.is_none_or(|after| statement.since(after) > 0) {
            self.results.push(result);
        }
    }
}
