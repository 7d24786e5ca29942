//! Keeps rows until the last one has arrived.
//!
//! Rows become one JSON text that nothing parses again: as a tree, 210,000 cells of one digit take 50 MB. Columns whose
//! text does not determine their JSON (an anonymous `record`, `hstore`) are requested in binary and return as
//! parameters of `to_json`, so nothing is wrapped around the query of an agent and nothing of it runs twice. Clients
//! built on rmcp silently drop a line over 16 MiB.

use postgres_protocol::message::backend::DataRowBody;
use serde_json::Value;
use types::{Column, RowFormat};

use super::answer::RowOutput;
use super::statement_metadata::StatementMetadata;
use super::{ReadLimits, ReadRequest, ReadTrace, ResultSet, TruncatedBy};
use crate::client::error::Error;
use crate::client::wire::{FieldDescription, owned_row};
use crate::query::json_rows::JsonRowsBuilder;
use crate::query::row_writer::RowWriter;

/// The rows of one read, up to its limits.
#[derive(Debug)]
pub(super) struct RowBuffer<'a> {
    limits: &'a ReadLimits,
    enough_bytes: usize,
    /// The row limit that the caller gave.
    asked: Option<u32>,
    trace: Option<&'a ReadTrace>,
    format: RowFormat,
    row_limit: usize,
    rows: JsonRowsBuilder,
    /// The actual columns, if they differ from the described ones. Rows are then kept as text.
    changed: Option<Vec<FieldDescription>>,
    raw: Vec<Vec<Option<String>>>,
    arrived: usize,
    bytes: usize,
    truncated_by: Option<TruncatedBy>,
}

impl<'a> RowBuffer<'a> {
    pub(super) fn new(limits: &'a ReadLimits, request: &ReadRequest<'a>) -> Self {
        Self {
            limits,
            asked: request.row_limit,
            trace: request.trace,
            format: request.format,
            row_limit: 0,
            enough_bytes: request.enough_bytes.unwrap_or(limits.max_bytes),
            rows: JsonRowsBuilder::new(RowWriter::new(Vec::new(), request.format), limits.max_bytes),
            changed: None,
            raw: Vec::new(),
            arrived: 0,
            bytes: 0,
            truncated_by: None,
        }
    }

    /// The actual columns, if they differ from the described ones.
    pub(super) fn changed(&mut self) -> Option<Vec<FieldDescription>> {
        self.changed.take()
    }

    /// The result, with `changed` columns if they differ from the described ones.
    ///
    /// # Errors
    /// [`Error::MessageTooLarge`] or [`Error::TooManyValues`] if the first row exceeds the limits.
    pub(super) fn finish(mut self, changed: Option<Vec<Column>>) -> Result<ResultSet, Error> {
        let mut rows = self.rows;
        if let Some(columns) = changed {
            // Nothing was written for the described columns.
            let (_, masks) = rows.finish().1.into_columns();
            let writer = RowWriter::new(columns, self.format).with_masks(masks);
            rows = JsonRowsBuilder::new(writer, self.limits.max_bytes).with_enough(self.enough_bytes);
        }
        for row in &self.raw {
            if !rows.take_texts(row)? {
                self.truncated_by = Some(TruncatedBy::MaxBytes);
                break;
            }
        }
        Ok(ResultSet::new(rows, self.truncated_by))
    }

    /// Whether another row is wanted.
    fn wants_row(&mut self) -> bool {
        let wants = self.arrived < self.row_limit;
        if wants {
            self.arrived += 1;
        } else {
            self.truncated_by = Some(TruncatedBy::RowLimit);
        }
        wants
    }
}

impl RowOutput for RowBuffer<'_> {
    const MAY_CHANGE: bool = true;
    const FIRST_PORTION: usize = 64;

    fn begin(&mut self, metadata: &StatementMetadata) {
        if let Some(trace) = self.trace {
            trace.set_tables(metadata.tables.clone());
        }
        self.row_limit = self.limits.rows(self.asked, metadata.has_limit);
        let writer = RowWriter::new(metadata.columns.clone(), self.format).with_masks(metadata.masks.clone());
        self.rows = JsonRowsBuilder::new(writer, self.limits.max_bytes).with_enough(self.enough_bytes);
        (self.changed, self.arrived, self.bytes, self.truncated_by) = (None, 0, 0, None);
        self.raw.clear();
    }

    /// One row more than wanted, to see whether there are more.
    fn row_limit(&self) -> Option<usize> {
        Some((self.row_limit + 1).saturating_sub(self.arrived))
    }

    fn max_message_bytes(&self) -> usize {
        self.limits.max_bytes
    }

    fn accept_draft(&mut self, bytes: usize, _portion_bytes: usize) -> Result<bool, Error> {
        self.bytes += bytes;
        let fits = self.bytes <= self.limits.max_bytes;
        if !fits {
            self.truncated_by = Some(TruncatedBy::MaxBytes);
        }
        Ok(fits)
    }

    fn describe(&mut self, columns: Vec<FieldDescription>) {
        self.changed = Some(columns);
    }

    async fn take(&mut self, body: &DataRowBody) -> Result<bool, Error> {
        self.bytes += body.buffer().len();
        if !self.wants_row() {
            return Ok(true);
        }
        let fits = self.bytes <= self.limits.max_bytes
            && match &self.changed {
                Some(_) => {
                    self.raw.push(owned_row(body)?);
                    true
                }
                None => self.rows.take(body)?,
            };
        if !fits {
            self.truncated_by = Some(TruncatedBy::MaxBytes);
        }
        Ok(fits)
    }

    async fn take_values(&mut self, row: Vec<Value>) -> Result<bool, Error> {
        if !self.wants_row() {
            return Ok(false);
        }
        let fits = self.rows.take_values(&row)?;
        if !fits {
            self.truncated_by = Some(TruncatedBy::MaxBytes);
        }
        Ok(fits)
    }

    fn cut(&mut self, error: Error) -> Result<(), Error> {
        if self.arrived == 0 {
            return Err(error);
        }
        self.truncated_by = Some(TruncatedBy::MaxBytes);
        Ok(())
    }
}
