//! The answer to an agent's statement, as it arrives.

use std::sync::Arc;

use postgres_protocol::message::backend::{DataRowBody, Message};
use types::Column;

use super::json_rows::{JsonRows, RowFormat};
use super::read_transaction;
use super::server_json::{self, PartialRow, ServerJson};
use super::statement_metadata::StatementMetadata;
use super::{ResultSet, TruncatedBy};
use crate::error::{Error, ServerError};
use crate::session::{FieldDescription, Session, raw_columns, raw_row};

/// How far the agent's statement got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Unbound,
    Bound,
    /// What comes behind it is no row of it.
    Ended,
}

/// What comes before the agent's statement in its pipeline.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Before {
    pub(super) bound: usize,
}

/// Rows on their way.
pub(super) struct Rows {
    shape: Arc<StatementMetadata>,
    row_limit: usize,
    max_bytes: usize,
    pub(super) progress: Progress,
    /// Whether everything before the agent's statement went well.
    pub(super) is_open: bool,
    rendered: JsonRows,
    /// The columns as they are now, if they are not as in `shape`; the rows are kept as text then.
    pub(super) changed: Option<Vec<FieldDescription>>,
    raw: Vec<Vec<Option<String>>>,
    /// Rows of a statement with a conversion.
    drafts: Vec<PartialRow>,
    bytes: usize,
    /// A row type is not as it was in `shape`.
    pub(super) is_stale: bool,
    /// More rows can be asked for.
    is_suspended: bool,
    truncated_by: Option<TruncatedBy>,
    pub(super) cut_by_bytes: bool,
}

impl Rows {
    pub(super) fn new(
        shape: Arc<StatementMetadata>,
        row_limit: usize,
        (format, max_bytes): (RowFormat, usize),
    ) -> Self {
        Self {
            shape,
            row_limit,
            max_bytes,
            progress: Progress::Unbound,
            is_open: false,
            rendered: JsonRows::new(format, max_bytes),
            changed: None,
            raw: Vec::new(),
            drafts: Vec::new(),
            bytes: 0,
            is_stale: false,
            is_suspended: false,
            truncated_by: None,
            cut_by_bytes: false,
        }
    }

    /// Up to the next ReadyForQuery, or to the limit on bytes; what the server refused, if it did.
    pub(super) async fn receive(
        &mut self,
        session: &mut Session,
        before: Before,
    ) -> Result<Option<ServerError>, Error> {
        let mut bound = 0;
        let mut failure = None;
        self.is_suspended = false;
        self.is_open |= before.bound == 0;
        loop {
            match session.connection.receive().await? {
                Message::BindComplete => {
                    bound += 1;
                    self.is_open |= bound >= before.bound;
                    if bound == before.bound + 1 {
                        self.progress = Progress::Bound;
                    }
                }
                Message::RowDescription(body) if self.progress == Progress::Bound => {
                    let columns = raw_columns(&body)?;
                    let is_same =
                        columns.iter().map(|column| column.type_oid).eq(self.shape.column_oids.iter().copied());
                    self.changed = (!is_same || self.is_stale).then_some(columns);
                }
                // The last statement before: the check of row types, if there is one.
                Message::DataRow(body) if self.progress != Progress::Bound && bound == before.bound => {
                    let row = raw_row(&body)?;
                    self.is_stale = self.shape.row_types.as_ref().is_some_and(|row_types| !row_types.are(&row));
                }
                Message::DataRow(body) if self.progress == Progress::Bound => {
                    self.bytes += body.buffer().len();
                    if self.arrived() == self.row_limit {
                        self.truncated_by = Some(TruncatedBy::RowLimit);
                    } else if self.bytes > self.max_bytes || !self.keep(&body)? {
                        self.truncated_by = Some(TruncatedBy::MaxBytes);
                        // The rest is not worth waiting for: the caller's lease stops the server. But a portion ends soon.
                        if self.shape.conversion.is_none() {
                            self.cut_by_bytes = true;
                            return Ok(None);
                        }
                    }
                }
                Message::PortalSuspended if self.progress == Progress::Bound => {
                    (self.is_suspended, self.progress) = (true, Progress::Ended);
                }
                Message::CommandComplete(_) if self.progress == Progress::Bound => self.progress = Progress::Ended,
                Message::ErrorResponse(body) if failure.is_none() => {
                    let error = ServerError::from_fields(body.fields())?;
                    let is_of_the_end = self.progress == Progress::Ended;
                    failure = Some(if is_of_the_end { read_transaction::statement_error(error) } else { error });
                }
                Message::ReadyForQuery(_) => return Ok(failure),
                _ => {}
            }
        }
    }

    fn arrived(&self) -> usize {
        self.rendered.len() + self.raw.len() + self.drafts.len()
    }

    /// How many rows to ask for: one more than wanted, in portions if they need a conversion.
    pub(super) fn portion(&self) -> i32 {
        let wanted = (self.row_limit + 1).saturating_sub(self.arrived());
        match self.shape.conversion {
            None => i32::try_from(wanted).unwrap_or(i32::MAX),
            Some(_) => server_json::portion(self.arrived(), wanted),
        }
    }

    /// The other portions of rows that need a conversion.
    pub(super) async fn receive_rest(&mut self, session: &mut Session) -> Result<Option<ServerError>, Error> {
        while self.is_suspended && self.truncated_by.is_none() {
            self.progress = Progress::Bound;
            session.connection.push_execute("", self.portion())?;
            session.connection.push_sync();
            session.connection.flush().await?;
            if let Some(failure) = self.receive(session, Before::default()).await? {
                return Ok(Some(failure));
            }
        }
        Ok(None)
    }

    /// Rows that need a conversion, without it.
    pub(super) fn take_drafts(&mut self) -> Vec<PartialRow> {
        std::mem::take(&mut self.drafts)
    }

    /// The same rows with it.
    pub(super) fn take_converted(&mut self, converted: server_json::ConvertedRows) -> Result<(), Error> {
        for row in converted.rows {
            if !self.rendered.take_values(row, &self.shape.columns)? {
                self.truncated_by = Some(TruncatedBy::MaxBytes);
                break;
            }
        }
        if converted.is_cut {
            (self.truncated_by, self.cut_by_bytes) = (Some(TruncatedBy::MaxBytes), true);
        }
        Ok(())
    }

    pub(super) fn conversion(&self) -> Option<&ServerJson> {
        self.shape.conversion.as_ref()
    }

    /// Whether there was room for it.
    fn keep(&mut self, body: &DataRowBody) -> Result<bool, Error> {
        match &self.shape.conversion {
            _ if self.changed.is_some() => self.raw.push(raw_row(body)?),
            None => return self.rendered.take(body, &self.shape.columns),
            Some(conversion) => self.drafts.push(conversion.draft(body, &self.shape.columns)?),
        }
        Ok(true)
    }

    pub(super) fn finish(mut self, columns: Vec<Column>) -> Result<ResultSet, Error> {
        for row in std::mem::take(&mut self.raw) {
            if !self.rendered.take_texts(&row, &columns)? {
                self.truncated_by = Some(TruncatedBy::MaxBytes);
                break;
            }
        }
        Ok(self.rendered.finish(columns, self.truncated_by))
    }
}
