//! Delivers the rows of a statement as JSON, in batches, as fast as the receiver accepts them.

use std::time::Duration;

use postgres_protocol::message::backend::DataRowBody;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use types::{Column, RowFormat};

use super::events::{QueryEvent, QuerySummary, RowDelivery};
use crate::client::error::{Error, ServerError};
use crate::query::row_writer::RowWriter;

/// The largest row, in bytes as PostgreSQL sends it, if rows are delivered as they arrive.
const MAX_ROW_BYTES: usize = 16 << 20;

/// The largest capacity that a new batch inherits from the previous one, in bytes.
const MAX_IDLE_BYTES: usize = 1 << 20;

/// How long a row waits for others to fill its batch.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// Delivers the rows of a statement to their receiver. While the receiver is busy, nothing is read from the server.
#[derive(Debug)]
pub struct RowSink {
    out: mpsc::Sender<QueryEvent>,
    delivery: RowDelivery,
    /// The writer of the rows, once the columns are known.
    rows: Option<RowWriter>,
    /// Whether the columns have been sent.
    is_begun: bool,
    /// A JSON array without its closing bracket; empty if the batch has no row.
    batch: Vec<u8>,
    in_batch: u64,
    /// When the batch must be delivered even if it is not full.
    due: Option<Instant>,
    /// The time spent waiting for the receiver.
    blocked: Duration,
    row_count: u64,
    bytes: u64,
    /// PostgreSQL's command tag, once the statement has ended.
    tag: Option<String>,
    /// The last number of the command tag.
    affected: u64,
    /// The limit that was exceeded, if any. No more rows are accepted then.
    overflow: Option<String>,
    /// The correlation id of the record that is being written.
    correlation_id: Option<String>,
}

impl RowSink {
    /// A sink that sends to this receiver.
    #[must_use]
    pub fn new(out: mpsc::Sender<QueryEvent>, delivery: RowDelivery) -> Self {
        Self {
            out,
            delivery,
            rows: None,
            is_begun: false,
            batch: Vec::new(),
            in_batch: 0,
            due: None,
            blocked: Duration::ZERO,
            row_count: 0,
            bytes: 0,
            tag: None,
            affected: 0,
            overflow: None,
            correlation_id: None,
        }
    }

    /// Sets the correlation id of the statement's record.
    pub fn set_correlation_id(&mut self, correlation_id: String) {
        self.correlation_id = Some(correlation_id);
    }

    /// The result of the statement.
    #[must_use]
    pub fn into_summary(self) -> QuerySummary {
        QuerySummary {
            tag: self.tag,
            returns_rows: self.rows.is_some(),
            row_count: if self.rows.is_some() { self.row_count } else { self.affected },
            payload_bytes: self.bytes,
            correlation_id: None,
        }
    }

    /// PostgreSQL's command tag, once the statement has ended.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The limit that was exceeded, if any.
    #[must_use]
    pub fn overflow(&self) -> Option<&str> {
        self.overflow.as_deref()
    }

    /// The number of rows so far, and the bytes of their JSON.
    pub(crate) fn taken(&self) -> (u64, u64) {
        (self.row_count, self.bytes)
    }

    /// The largest message to receive from the server. The JSON of a row is never shorter than its text, except for
    /// white space in json.
    pub(crate) fn max_message_bytes(&self) -> usize {
        match self.delivery {
            RowDelivery::Inline { max_bytes, .. } => {
                max_bytes.saturating_mul(4).clamp(64 << 10, MAX_ROW_BYTES.max(max_bytes))
            }
            RowDelivery::Batches { .. } => MAX_ROW_BYTES,
        }
    }

    /// The number of rows to request; `None` means all.
    pub(crate) fn row_limit(&self) -> Option<usize> {
        match self.delivery {
            RowDelivery::Inline { max_rows, .. } => Some(max_rows.saturating_add(1)),
            RowDelivery::Batches { .. } => None,
        }
    }

    pub(crate) fn set_columns(&mut self, columns: &[Column]) {
        self.rows = Some(RowWriter::new(columns.to_vec(), RowFormat::Object));
    }

    /// Takes a row as it arrives. False if a limit is exceeded and the remaining rows are not needed.
    pub(crate) async fn push_row(&mut self, body: &DataRowBody) -> Result<bool, Error> {
        let max_bytes = self.max_message_bytes();
        self.push(|rows, batch| rows.write(batch, body, max_bytes)).await
    }

    pub(crate) async fn push_values(&mut self, row: &[Value]) -> Result<bool, Error> {
        self.push(|rows, batch| rows.write_values(batch, row)).await
    }

    async fn push(&mut self, write: impl FnOnce(&RowWriter, &mut Vec<u8>) -> Result<(), Error>) -> Result<bool, Error> {
        let Some(rows) = self.rows.as_ref().filter(|_| self.overflow.is_none()) else { return Ok(false) };
        self.batch.push(if self.in_batch == 0 { b'[' } else { b',' });
        let start = self.batch.len();
        write(rows, &mut self.batch)?;
        self.bytes += (self.batch.len() - start) as u64;
        self.row_count += 1;
        self.in_batch += 1;
        if self.in_batch == 1 && self.is_streamed() {
            self.due = Some(Instant::now() + MAX_WAIT);
        }
        match self.delivery {
            RowDelivery::Inline { max_rows, .. } if self.row_count > max_rows as u64 => {
                self.refuse(format!("the result has more than {max_rows} rows"));
            }
            RowDelivery::Inline { max_bytes, .. } if self.bytes > max_bytes as u64 => {
                self.refuse(format!("the result is larger than {max_bytes} bytes of JSON"));
            }
            RowDelivery::Batches { rows, bytes } if self.in_batch >= rows as u64 || self.batch.len() > bytes => {
                self.flush_batch().await?;
            }
            _ => {}
        }
        Ok(self.overflow.is_none())
    }

    fn refuse(&mut self, what: String) {
        (self.batch, self.in_batch) = (Vec::new(), 0);
        self.overflow = Some(what);
    }

    /// The latest time for [`RowSink::flush_batch`].
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The time spent waiting for the receiver so far.
    pub(crate) fn blocked(&self) -> Duration {
        self.blocked
    }

    /// Whether rows are delivered before all of them have arrived.
    pub(crate) fn is_streamed(&self) -> bool {
        matches!(self.delivery, RowDelivery::Batches { .. })
    }

    /// Delivers the current batch, even if it is not full.
    pub(crate) async fn flush_batch(&mut self) -> Result<(), Error> {
        self.due = None;
        if let Some(rows) = self.rows.as_ref().filter(|_| !self.is_begun) {
            let columns = rows.columns().to_vec();
            self.is_begun = true;
            self.send(QueryEvent::Columns(columns)).await?;
        }
        if self.in_batch == 0 {
            return Ok(());
        }
        self.batch.push(b']');
        let room = self.batch.capacity().min(MAX_IDLE_BYTES);
        let json = std::mem::replace(&mut self.batch, Vec::with_capacity(room));
        let json = String::from_utf8(json).map_err(std::io::Error::other)?;
        let count = std::mem::take(&mut self.in_batch);
        self.send(QueryEvent::Rows { json, count }).await
    }

    /// Delivers a notice. It overtakes rows of the current batch.
    pub(crate) async fn push_notice(&mut self, notice: Box<ServerError>) -> Result<(), Error> {
        self.send(QueryEvent::Notice(notice)).await
    }

    pub(crate) fn set_tag(&mut self, tag: &str) {
        self.affected = tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or_default();
        self.tag = Some(tag.to_owned());
    }

    /// Delivers the remaining rows, and waits until the receiver has acknowledged everything.
    pub async fn finish(&mut self) -> Result<(), Error> {
        if self.overflow.is_some() {
            return Ok(());
        }
        self.flush_batch().await?;
        let (taken, is_taken) = oneshot::channel();
        self.send(QueryEvent::AwaitAck { taken, correlation_id: self.correlation_id.clone() }).await?;
        is_taken.await.map_err(|_| Error::ReceiverDropped)
    }

    async fn send(&mut self, chunk: QueryEvent) -> Result<(), Error> {
        let since = Instant::now();
        let sent = self.out.send(chunk).await;
        self.blocked += since.elapsed();
        sent.map_err(|_| Error::ReceiverDropped)
    }
}
