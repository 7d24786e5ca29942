//! The log of reads: who has read what, when and with which result.
//!
//! ```text
//! call        begin ........ ended: an entry of the queue, or a lost one if the queue is full
//! background                 due every second, or when a batch is full: one statement for each batch
//! ```
//! A read never waits for the log: `queue` is bounded in entries and bytes, and counts what it cannot take. `writer`
//! sends batches; the first batch after a loss says how many reads are missing (`migrations/baseline/75_reads.sql`).
//! `entry` is one read, `columns` encodes rows, and `roots` maps partitions to their partitioned tables.

mod columns;
mod entry;
mod queue;
mod roots;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use pg::{ConnectOptions, ReadTrace, SearchPath, WriterPool};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use types::Principal;

use self::entry::{Entry, micros_now};
use self::writer::Writer;

/// The time limit for the last batches when the process ends. Clients kill a server some seconds after they have
/// closed its input.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The outcome of a read that its client cancelled, or whose client disconnected.
const CANCELLED: &str = "cancelled";

const OK: &str = "ok";

/// What the log of reads contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReadLogDetail {
    /// Nothing; reads are not logged.
    #[default]
    Off,
    /// Everything except the texts of statements.
    Metadata,
    /// Also the texts of statements, up to 8 KiB each.
    Text,
}

/// The numbers of reads since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadLogStatus {
    /// Reads that are in the table.
    pub written: u64,
    /// Reads that will not be in the table.
    pub lost: u64,
    /// Reads that are not in the table yet.
    pub queued: u64,
}

/// The log of reads of one process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ReadLog {
    /// `None` if reads are not logged.
    writer: Option<Arc<Writer>>,
}

impl ReadLog {
    /// A log in this database, with a session of its own. This opens no connection.
    pub(crate) fn new(target: ConnectOptions, detail: ReadLogDetail) -> Self {
        let writer = |keeps_text| Arc::new(Writer::new(WriterPool::new(target, &SearchPath::default(), 1), keeps_text));
        let writer = match detail {
            ReadLogDetail::Off => None,
            ReadLogDetail::Metadata => Some(writer(false)),
            ReadLogDetail::Text => Some(writer(true)),
        };
        Self { writer }
    }

    /// Begins the entry of a read; `None` if reads are not logged.
    #[must_use]
    pub fn begin(&self, principal: &Principal, tool: &str) -> Option<ReadEntry> {
        let log = Arc::clone(self.writer.as_ref()?);
        Some(ReadEntry {
            log,
            principal: principal.clone(),
            tool: tool.to_owned(),
            read_at: micros_now(),
            started: Instant::now(),
            trace: Arc::default(),
            outcome: CANCELLED,
        })
    }

    /// Whether reads are logged.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.writer.is_some()
    }

    /// The current numbers of reads.
    #[must_use]
    pub fn status(&self) -> ReadLogStatus {
        self.writer.as_ref().map(|writer| writer.queue.status()).unwrap_or_default()
    }

    /// Writes the entries in the background until [`ReadLog::finish`].
    #[must_use]
    pub fn start(&self) -> JoinHandle<()> {
        let writer = self.writer.clone();
        tokio::spawn(async move {
            if let Some(writer) = writer {
                writer.run().await;
            }
        })
    }

    pub(crate) async fn close_unused(&self, time: Duration) {
        if let Some(writer) = &self.writer {
            writer.close_unused(time).await;
        }
    }

    /// Stops accepting entries, and writes the remaining ones for at most 2 seconds.
    pub async fn finish(&self, mut task: JoinHandle<()>) {
        let Some(writer) = &self.writer else { return };
        writer.queue.close();
        let flushed = tokio::time::timeout(FLUSH_TIMEOUT, &mut task).await;
        if flushed.is_err() {
            // Dropping the task cancels its statement. The task is dropped once this await returns.
            task.abort();
            let _cancelled = task.await;
        }
        let ReadLogStatus { lost, queued, .. } = self.status();
        if flushed.is_err() || queued > 0 {
            tracing::warn!(
                reads = queued,
                lost_before = lost,
                "the last reads were not logged: the database did not take them"
            );
        }
        writer.drain().await;
    }
}

/// A read that has begun. If it is dropped before its end, it is logged as cancelled.
#[derive(Debug)]
pub struct ReadEntry {
    log: Arc<Writer>,
    principal: Principal,
    tool: String,
    read_at: i64,
    started: Instant,
    trace: Arc<ReadTrace>,
    outcome: &'static str,
}

impl ReadEntry {
    /// The trace that collects facts about the read.
    #[must_use]
    pub fn trace(&self) -> Arc<ReadTrace> {
        Arc::clone(&self.trace)
    }

    /// Ends the read. `error` is its error code, or `None` after a success.
    pub fn ended(mut self, error: Option<&'static str>) {
        self.outcome = error.unwrap_or(OK);
    }
}

impl Drop for ReadEntry {
    fn drop(&mut self) {
        let principal = std::mem::take(&mut self.principal);
        let tool = std::mem::take(&mut self.tool);
        let duration_us = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        let entry = Entry::new(principal, tool, (self.read_at, duration_us), self.outcome, self.trace.take());
        let entry = if self.log.keeps_text { entry } else { entry.without_text() };
        self.log.queue.push(entry);
    }
}
