//! Writes batches of entries in the background.

use std::time::Duration;

use pg::WriterPool;
use tokio::time::Instant;
use uuid::Uuid;

use super::columns::ColumnArrays;
use super::entry::{Entry, Row, micros_now};
use super::queue::{Batch, Queue};
use super::roots::PartitionRoots;

const TIMEOUT: Duration = Duration::from_secs(10);

/// The pauses after batches that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The shortest time between two warnings about lost entries.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

const LOG_SQL: &str = "select countersign.log_reads($1::uuid, $2::bigint, $3::bigint, $4::bigint, $5::text[])";

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) queue: Queue,
    /// Whether entries keep the texts of statements.
    pub(super) keeps_text: bool,
    pool: WriterPool,
    /// Identifies this process in the ledger.
    sender: Uuid,
}

/// Warnings for the operator, each at most once a minute.
#[derive(Default)]
struct Warnings {
    is_failing: bool,
    lost: u64,
    warned_at: Option<Instant>,
}

impl Writer {
    pub(super) async fn close_unused(&self, time: Duration) {
        self.pool.close_unused(time).await;
    }

    pub(super) fn new(pool: WriterPool, keeps_text: bool) -> Self {
        Self { queue: Queue::default(), keeps_text, pool, sender: Uuid::new_v4() }
    }

    /// Writes batches until the queue is closed and empty.
    pub(super) async fn run(&self) {
        let (mut warnings, mut roots) = (Warnings::default(), PartitionRoots::default());
        let mut number = 0;
        loop {
            let is_closed = self.queue.due().await;
            let Some(batch) = self.queue.take() else {
                if is_closed {
                    return;
                }
                continue;
            };
            number += 1;
            self.deliver((number, &batch), &mut roots, &mut warnings).await;
            warnings.of_loss(self.queue.status().lost);
        }
    }

    /// Writes a batch, with pauses between the attempts. A batch that cannot be written is counted as lost. All
    /// attempts use the same number, so that a batch is not written twice.
    async fn deliver(&self, (number, batch): (i64, &Batch), roots: &mut PartitionRoots, warnings: &mut Warnings) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.send(number, batch, roots).await {
                Ok(()) => {
                    warnings.of_success();
                    return self.queue.written(batch);
                }
                Err(error) if is_about_content(&error) => {
                    tracing::error!(%error, reads = batch.entries.len(), "the ledger does not take a batch of reads");
                    return self.queue.refused(batch);
                }
                Err(error) => warnings.of_failure(&error),
            }
            warnings.of_loss(self.queue.status().lost);
            let was_closed = self.queue.is_closed();
            let until = Instant::now() + pause;
            // When the process ends, try again without a pause.
            while tokio::time::timeout_at(until, self.queue.changed()).await.is_ok() {
                if !was_closed && self.queue.is_closed() {
                    break;
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn send(&self, number: i64, batch: &Batch, roots: &mut PartitionRoots) -> Result<(), pg::Error> {
        let deadline = Instant::now() + TIMEOUT;
        let sent = async {
            roots.look_up(&self.pool, batch.entries.iter().filter_map(Entry::tables), deadline).await?;
            let now = micros_now();
            let (oldest_at, rows) = rows(batch, roots, now);
            let [number, sent_at, oldest_at] = [number, now, oldest_at].map(|number| Some(number.to_string()));
            let params = [Some(self.sender.to_string()), number, sent_at, oldest_at, Some(rows)];
            self.pool.run_one(LOG_SQL, &params, deadline).await
        };
        let sent = sent.await;
        if let Err(pg::Error::Lost(_)) = &sent {
            self.pool.retire_all();
        }
        sent.map(drop)
    }

    /// Waits until PostgreSQL has received a pending cancel request.
    pub(super) async fn drain(&self) {
        self.pool.drain().await;
    }
}

/// The rows of a batch as an array for each column, and the time of its oldest row.
fn rows(batch: &Batch, roots: &PartitionRoots, now: i64) -> (i64, String) {
    let mut oldest_at = now;
    let mut columns = ColumnArrays::default();
    let rows = batch.entries.iter().map(|entry| entry.row(entry.tables().map(|tables| roots.of(tables))));
    let loss = batch.loss.map(|loss| Row::of_loss(now, loss.entries, (loss.first_at, loss.last_at)));
    for row in rows.chain(loss) {
        oldest_at = oldest_at.min(row.read_at);
        columns.push(&row);
    }
    (oldest_at, columns.into_array())
}

impl Warnings {
    fn of_success(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            tracing::info!("reads are logged again");
        }
    }

    fn of_failure(&mut self, error: &pg::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(%error, "reads cannot be logged; trying again");
        }
    }

    /// Warns of entries that were lost since the last warning.
    fn of_loss(&mut self, lost: u64) {
        let is_early = self.warned_at.is_some_and(|at| at.elapsed() < WARNING_INTERVAL);
        if lost > self.lost && !is_early {
            tracing::warn!(reads = lost - self.lost, "reads were not logged: the database does not keep up");
            (self.lost, self.warned_at) = (lost, Some(Instant::now()));
        }
    }
}

/// Whether the error is about the batch itself: invalid data, a violated constraint, or a program limit. Then a retry
/// cannot succeed.
fn is_about_content(error: &pg::Error) -> bool {
    let class = error.server_error().and_then(|error| error.sqlstate.get(..2));
    matches!(class, Some("22" | "23" | "54"))
}
