//! How many rows of a portal to ask for at once.
//!
//! PostgreSQL keeps what it sends until 8 KiB of it are there or the client asks for more. So few rows are asked for as long as
//! they come slowly, and the more the faster they come.

use std::time::{Duration, Instant};

/// A portion that took less is followed by a larger one.
const SHORT: Duration = Duration::from_millis(20);

/// How long a portion should take at the most.
const LONG: Duration = Duration::from_millis(100);

/// How much larger the next portion may be.
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
}

impl Portions {
    /// The first is one row.
    pub(super) fn up_to(max_rows: usize) -> Self {
        Self { rows: 1, max_rows, began: Instant::now() }
    }

    /// For Execute.
    pub(super) fn rows(&self) -> i32 {
        i32::try_from(self.rows).unwrap_or(i32::MAX)
    }

    /// How long all of them have taken so far, with the time that their reader took.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// A portion has arrived, for which the server was waited for so long. `largest_row` is in bytes, and 0 where rows are not
    /// kept.
    pub(super) fn arrived(&mut self, waited: Duration, largest_row: usize) {
        if waited < SHORT {
            self.rows = self.rows.saturating_mul(GROWTH);
        } else if waited > LONG {
            self.rows = (self.rows as f64 * LONG.as_secs_f64() / waited.as_secs_f64()) as usize;
        }
        let max_rows = self.max_rows.min(MAX_KEPT_BYTES.checked_div(largest_row).unwrap_or(usize::MAX));
        self.rows = self.rows.min(max_rows).max(1);
    }
}
