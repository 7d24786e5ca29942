//! Receives the answer to a statement and passes its rows to their output.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use postgres_protocol::message::backend::DataRowBody;
use serde_json::Value;
use tokio::time::Instant;

use super::function_policy::names_of;
use super::server_json::{PartialRow, ServerJson, too_many_drafts};
use super::statement_metadata::StatementMetadata;
use crate::client::error::{Error, ServerError};
use crate::client::wire::{Event, EventConsumer, FieldDescription, StatementId, owned_row};

/// Receives the rows of a statement.
pub(crate) trait RowOutput: Send {
    /// Whether the columns of arriving rows may differ from the described ones.
    const MAY_CHANGE: bool;

    /// The number of rows in the first portion of rows that need a conversion.
    const FIRST_PORTION: usize;

    /// The statement is about to be sent. Rows of an earlier attempt must be dropped.
    fn begin(&mut self, metadata: &StatementMetadata);

    /// The number of rows to request; `None` for all.
    fn row_limit(&self) -> Option<usize>;

    /// The largest message to receive, in bytes.
    fn max_message_bytes(&self) -> usize;

    /// Whether a row of `bytes` may be kept until its conversion, in a portion that has `portion_bytes` so far. False
    /// if the remaining rows are not needed.
    ///
    /// # Errors
    /// The rows that are kept take too much memory.
    fn accept_draft(&mut self, _bytes: usize, portion_bytes: usize) -> Result<bool, Error> {
        let limit = MAX_LARGEST_DRAFTS * self.max_message_bytes();
        if portion_bytes > limit { Err(too_many_drafts(limit)) } else { Ok(true) }
    }

    /// Whether rows are passed on before the last one has arrived.
    fn is_streamed(&self) -> bool {
        false
    }

    /// The time spent waiting for the receiver of the rows.
    fn blocked(&self) -> Duration {
        Duration::ZERO
    }

    /// The rows have these columns, which differ from the described ones.
    fn describe(&mut self, _columns: Vec<FieldDescription>) {}

    /// Takes a row as it arrived. False if the remaining rows are not needed.
    fn take(&mut self, body: &DataRowBody) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Takes a row of JSON values. False if the remaining rows are not needed.
    fn take_values(&mut self, row: Vec<Value>) -> impl Future<Output = Result<bool, Error>> + Send;

    /// A further row does not fit.
    ///
    /// # Errors
    /// `error`, unless the output accepts the rows so far as the answer.
    fn cut(&mut self, error: Error) -> Result<(), Error> {
        Err(error)
    }

    /// Takes a notice that the statement raised.
    fn notice(&mut self, _notice: Box<ServerError>) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }

    /// The statement has ended with this command tag.
    fn complete(&mut self, _tag: &str) {}

    /// The time at which [`RowOutput::flush`] must be called even if no row has arrived.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Passes on the rows that the output has buffered.
    fn flush(&mut self) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }
}

/// Takes the events of one statement among those of its pipeline.
#[derive(Debug)]
pub(crate) struct Answer<'a, O> {
    statement: StatementId,
    metadata: &'a StatementMetadata,
    pub(super) output: &'a mut O,
    /// Whether rows that the output no longer takes are still received: a write must run to its end before it can be
    /// rolled back cleanly.
    run_to_end: bool,
    /// The check of the row types, if one was sent before the statement.
    row_types_check: Option<StatementId>,
    /// The check of the functions that the statement calls, if one was sent before the statement.
    guard: Option<StatementId>,
    /// The names of these functions that also exist in schemas other than `pg_catalog`.
    pub(super) elsewhere: BTreeSet<String>,
    /// Whether a row type has changed since the statement was described.
    pub(super) is_stale: bool,
    pub(crate) was_bound: bool,
    /// Whether the portal has more rows.
    pub(super) is_suspended: bool,
    /// Whether the output took no more rows and the remaining ones were not received.
    pub(super) is_cut: bool,
    /// Whether the statement copies from or to the client.
    pub(crate) copies: bool,
    /// Whether the text has no statement.
    pub(crate) is_empty: bool,
    /// Whether the output takes no more rows that need a conversion.
    is_full: bool,
    /// Rows that wait for a conversion.
    drafts: Vec<PartialRow>,
    draft_bytes: usize,
}

/// The maximum number of rows of the largest size that wait for a conversion at once.
const MAX_LARGEST_DRAFTS: usize = 4;

impl<'a, O: RowOutput> Answer<'a, O> {
    pub(crate) fn new(statement: StatementId, metadata: &'a StatementMetadata, output: &'a mut O) -> Self {
        Self {
            statement,
            metadata,
            output,
            run_to_end: false,
            row_types_check: None,
            guard: None,
            elsewhere: BTreeSet::new(),
            is_stale: false,
            was_bound: false,
            is_suspended: false,
            is_cut: false,
            copies: false,
            is_empty: false,
            is_full: false,
            drafts: Vec::new(),
            draft_bytes: 0,
        }
    }

    /// Expects the rows of these checks before the rows of the statement.
    pub(super) fn with_checks(self, row_types_check: Option<StatementId>, guard: Option<StatementId>) -> Self {
        Self { row_types_check, guard, ..self }
    }

    /// Receives all rows, even if the output takes no more.
    pub(crate) fn run_to_end(self) -> Self {
        Self { run_to_end: true, ..self }
    }

    pub(super) fn metadata(&self) -> &'a StatementMetadata {
        self.metadata
    }

    pub(super) fn conversion(&self) -> Option<&ServerJson> {
        self.metadata.conversion.as_ref()
    }

    /// Expects the next portion of the rows.
    pub(super) fn resume(&mut self, statement: StatementId) {
        (self.statement, self.is_suspended) = (statement, false);
    }

    /// The rows that wait for a conversion, and the size of the largest one.
    pub(super) fn take_drafts(&mut self) -> (Vec<PartialRow>, usize) {
        self.draft_bytes = 0;
        let drafts = std::mem::take(&mut self.drafts);
        let largest = drafts.iter().map(|draft| draft.bytes).max().unwrap_or_default();
        (drafts, largest)
    }

    async fn take_row(&mut self, body: &DataRowBody) -> Result<ControlFlow<()>, Error> {
        if let Some(conversion) = &self.metadata.conversion {
            let draft = conversion.draft(body, &self.metadata.columns)?;
            self.draft_bytes += draft.bytes;
            self.is_full = self.is_full || !self.output.accept_draft(draft.bytes, self.draft_bytes)?;
            if !self.is_full {
                self.drafts.push(draft);
            }
        } else if !self.output.take(body).await? && !self.run_to_end {
            self.is_cut = true;
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl<O: RowOutput> EventConsumer for Answer<'_, O> {
    async fn take(&mut self, event: Event) -> Result<ControlFlow<()>, Error> {
        match event {
            Event::Row(id, body) if id == self.statement => return self.take_row(&body).await,
            Event::Row(id, body) if Some(id) == self.row_types_check => {
                let row = owned_row(&body)?;
                self.is_stale = self.metadata.row_types.as_ref().is_some_and(|row_types| !row_types.are(&row));
            }
            Event::Row(id, body) if Some(id) == self.guard => self.elsewhere = names_of(&body)?,
            Event::Bound(id) if id == self.statement => self.was_bound = true,
            Event::Columns(id, Some(columns)) if id == self.statement => {
                let oids = columns.iter().map(|column| column.type_oid);
                if self.is_stale || !oids.eq(self.metadata.column_oids.iter().copied()) {
                    self.output.describe(columns);
                }
            }
            Event::Notice(Some(id), notice) if id == self.statement => self.output.notice(notice).await?,
            Event::Suspended(id) if id == self.statement => self.is_suspended = !self.is_full,
            Event::Completed(id, tag) if id == self.statement => self.output.complete(&tag),
            Event::Empty(id) if id == self.statement => self.is_empty = true,
            Event::CopyIn => self.copies = true,
            Event::CopyOut => {
                self.copies = true;
                return Ok(ControlFlow::Break(()));
            }
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    fn due(&self) -> Option<Instant> {
        self.output.due()
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.output.flush().await
    }
}
