//! The number of rows to request from a portal at once.
//!
//! PostgreSQL sends rows when it has 8 KiB of them or when the portion ends. So few rows are requested while they
//! arrive slowly, and more when they arrive fast.

use std::time::{Duration, Instant};

/// A portion that took less time is followed by a larger one.
const SHORT: Duration = Duration::from_millis(20);

/// The intended maximum duration of a portion.
const LONG: Duration = Duration::from_millis(100);

/// The maximum growth from one portion to the next.
const GROWTH: usize = 8;

/// The maximum number of rows in a portion. With so many rows, the round trip no longer matters.
pub(super) const MAX_ROWS: usize = 32_768;

/// The target size of a portion that is kept in memory until its end, estimated from the rows before it.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// The sizes of the portions of one portal.
#[derive(Debug)]
pub(super) struct Portions {
    rows: usize,
    max_rows: usize,
    began: Instant,
    /// When the last portion was requested, and how long the receiver had blocked by then.
    asked: (Instant, Duration),
}

impl Portions {
    /// Portions whose first one has `first` rows.
    pub(super) fn new(first: usize, max_rows: usize) -> Self {
        let now = Instant::now();
        Self { rows: first, max_rows, began: now, asked: (now, Duration::ZERO) }
    }

    /// Notes that the next portion is requested. `blocked` is the time spent waiting for the receiver so far.
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

    /// Notes that the portion has arrived. `blocked` is as for [`Portions::ask`]: a slow receiver does not reduce the
    /// portions. `largest_row` is in bytes, 0 if rows are not kept.
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
