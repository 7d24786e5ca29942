//! The number of rows to request from a portal at once.
//!
//! PostgreSQL sends rows when 8 KiB are full or the client requests more. So few rows are requested as long as they
//! arrive slowly, and more when they arrive fast.

use std::time::{Duration, Instant};

/// A portion that took less is followed by a larger one.
const SHORT: Duration = Duration::from_millis(20);

/// The intended maximum duration of a portion.
const LONG: Duration = Duration::from_millis(100);

/// The maximum growth from one portion to the next.
const GROWTH: usize = 8;

/// The most rows of a portion: one round trip for so many costs nothing.
pub(super) const MAX_ROWS: usize = 32_768;

/// The most bytes of a portion that has to be kept until its end, as far as its rows are like those before.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// The sizes of the portions of one portal.
#[derive(Debug)]
pub(super) struct Portions {
    rows: usize,
    max_rows: usize,
    began: Instant,
    /// When the last one was asked for, and how long its reader had been waited for by then.
    asked: (Instant, Duration),
}

impl Portions {
    /// The first one has `first` rows.
    pub(super) fn new(first: usize, max_rows: usize) -> Self {
        let now = Instant::now();
        Self { rows: first, max_rows, began: now, asked: (now, Duration::ZERO) }
    }

    /// The next one is asked for. `blocked` is how long the reader has been waited for so far.
    pub(super) fn ask(&mut self, blocked: Duration) {
        self.asked = (Instant::now(), blocked);
    }

    /// The row count for Execute.
    pub(super) fn rows(&self) -> i32 {
        i32::try_from(self.rows).unwrap_or(i32::MAX)
    }

    /// The duration of all portions so far, including the time of their receiver.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// It has arrived. `blocked` is as for [`Portions::ask`]: a slow reader makes no portion smaller. `largest_row` is in bytes,
    /// and 0 where rows are not kept.
    pub(super) fn arrived(&mut self, blocked: Duration, largest_row: usize) {
        let (asked_at, blocked_before) = self.asked;
        let took = asked_at.elapsed().saturating_sub(blocked.saturating_sub(blocked_before));
        if took < SHORT {
            self.rows = self.rows.saturating_mul(GROWTH);
        } else if took > LONG {
            self.rows = (self.rows as f64 * LONG.as_secs_f64() / took.as_secs_f64()) as usize;
        }
        let max_rows = self.max_rows.min(MAX_KEPT_BYTES.checked_div(largest_row).unwrap_or(usize::MAX));
        self.rows = self.rows.min(max_rows).max(1);
    }
}
