//! The queue of entries that are not in the table yet. It is bounded: when it is full, entries are counted as lost.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::ReadLogStatus;
use super::entry::Entry;

/// The maximum number of entries, including those of the batch that is being written.
const MAX_ENTRIES: usize = 20_000;

const MAX_BYTES: usize = 8 << 20;

pub(super) const BATCH_ENTRIES: usize = 1000;
const BATCH_BYTES: usize = 1 << 20;

/// The maximum time that an entry waits for others of its batch.
const INTERVAL: Duration = Duration::from_secs(1);

/// The number of lost entries, and when the first and the last of them began, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) entries: u64,
    pub(super) first_at: i64,
    pub(super) last_at: i64,
}

impl Loss {
    fn of(entry: &Entry) -> Self {
        Self { entries: 1, first_at: entry.read_at, last_at: entry.read_at }
    }

    fn and(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        Self {
            entries: self.entries + other.entries,
            first_at: self.first_at.min(other.first_at),
            last_at: self.last_at.max(other.last_at),
        }
    }
}

/// Entries that are written together, and the loss before them.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) entries: Vec<Entry>,
    pub(super) loss: Option<Loss>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<Entry>,
    /// The number of entries in the batch that is being written.
    in_flight: usize,
    /// The size of all entries in bytes, including those of the batch.
    bytes: usize,
    /// The loss that is not recorded in the table yet.
    loss: Option<Loss>,
    is_closed: bool,
    written: u64,
    lost: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry, or counts it as lost. Never waits for the database.
    pub(super) fn push(&self, entry: Entry) {
        let bytes = entry.bytes();
        let mut state = self.state();
        let count = state.entries.len() + state.in_flight;
        if state.is_closed || count >= MAX_ENTRIES || state.bytes + bytes > MAX_BYTES {
            state.lose(Loss::of(&entry));
            return;
        }
        state.bytes += bytes;
        state.entries.push_back(entry);
        if matches!(state.entries.len(), 1 | BATCH_ENTRIES) {
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Waits until a batch is due: it is full, its first entry has waited long enough, or the queue is closed.
    /// Returns whether the queue is closed.
    pub(super) async fn due(&self) -> bool {
        let mut deadline = None;
        loop {
            let (is_closed, is_full, is_empty) = {
                let state = self.state();
                let is_empty = state.entries.is_empty() && state.loss.is_none();
                (state.is_closed, state.entries.len() >= BATCH_ENTRIES, is_empty)
            };
            if is_closed || is_full {
                return is_closed;
            }
            if is_empty {
                self.changed.notified().await;
                continue;
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + INTERVAL);
            if tokio::time::timeout_at(deadline, self.changed.notified()).await.is_err() {
                return false;
            }
        }
    }

    /// Takes the next batch; `None` if there is nothing to write.
    pub(super) fn take(&self) -> Option<Batch> {
        let mut state = self.state();
        let loss = state.loss.take();
        let mut batch = Batch { entries: Vec::new(), loss, bytes: 0 };
        while batch.entries.len() < BATCH_ENTRIES && batch.bytes < BATCH_BYTES {
            let Some(entry) = state.entries.pop_front() else { break };
            batch.bytes += entry.bytes();
            batch.entries.push(entry);
        }
        state.in_flight = batch.entries.len();
        (batch.loss.is_some() || !batch.entries.is_empty()).then_some(batch)
    }

    /// Ends a batch that was written.
    pub(super) fn written(&self, batch: &Batch) {
        let mut state = self.state();
        state.end(batch);
        state.written += batch.entries.len() as u64;
    }

    /// Ends a batch that PostgreSQL refused.
    pub(super) fn refused(&self, batch: &Batch) {
        let mut state = self.state();
        state.end(batch);
        // The loss of the batch was counted already.
        state.loss = batch.loss.map(|loss| loss.and(state.loss)).or(state.loss);
        batch.entries.iter().for_each(|entry| state.lose(Loss::of(entry)));
    }

    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_one();
    }

    /// Waits for a new entry or for the end of the queue.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    pub(super) fn status(&self) -> ReadLogStatus {
        let state = self.state();
        let queued = (state.entries.len() + state.in_flight) as u64;
        ReadLogStatus { written: state.written, lost: state.lost, queued }
    }
}

impl State {
    fn lose(&mut self, loss: Loss) {
        self.lost += loss.entries;
        self.loss = Some(loss.and(self.loss));
    }

    fn end(&mut self, batch: &Batch) {
        self.in_flight = 0;
        self.bytes = self.bytes.saturating_sub(batch.bytes);
    }
}

#[cfg(test)]
mod tests {
    use pg::ReadFacts;
    use types::Principal;

    use super::*;

    fn entry(read_at: i64) -> Entry {
        Entry::new(Principal::default(), "t".to_owned(), (read_at, 0), "ok", ReadFacts::default())
    }

    #[test]
    fn a_full_queue_counts_what_it_does_not_take_and_the_next_batch_has_the_loss() {
        let queue = Queue::default();
        let total = i64::try_from(MAX_ENTRIES).unwrap() + 7;
        (0..total).for_each(|at| queue.push(entry(at)));
        let status = queue.status();
        let queued = status.queued;
        assert!(queued <= MAX_ENTRIES as u64 && queued + status.lost == total as u64, "{status:?}");
        assert!(queue.state().bytes <= MAX_BYTES);
        let batch = queue.take().unwrap();
        let loss = batch.loss.unwrap();
        assert_eq!((loss.entries, loss.last_at), (status.lost, total - 1));
        assert_eq!(batch.entries.len(), BATCH_ENTRIES);
        // The batch counts as queued until its end.
        queue.push(entry(total));
        assert_eq!(queue.status().lost, status.lost + 1);
        queue.written(&batch);
        queue.push(entry(total));
        assert_eq!(queue.status().written, BATCH_ENTRIES as u64);
        let next = queue.take().unwrap();
        assert_eq!(next.loss, Some(Loss { entries: 1, first_at: total, last_at: total }));
        // A refused batch is lost, and a loss from before it is reported only once.
        queue.refused(&next);
        let all = Loss { entries: 1 + BATCH_ENTRIES as u64, first_at: BATCH_ENTRIES as i64, last_at: total };
        assert_eq!(queue.take().unwrap().loss, Some(all));
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_due_when_it_is_full_or_after_a_second_or_at_the_end() {
        let queue = Queue::default();
        queue.push(entry(0));
        let began = Instant::now();
        assert!(!queue.due().await);
        assert_eq!(began.elapsed(), INTERVAL);
        (1..1000).for_each(|at| queue.push(entry(at)));
        assert!(!queue.due().await);
        assert_eq!(began.elapsed(), INTERVAL);
        queue.take();
        queue.close();
        assert!(queue.due().await);
        queue.push(entry(2));
        assert_eq!(queue.status().lost, 1);
    }
}
