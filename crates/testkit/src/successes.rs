//! Counts what succeeded, and measures for how long nothing did.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::poll;

/// Successes of any number of tasks.
#[derive(Debug, Default)]
pub struct Successes(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    count: usize,
    last: Option<Instant>,
    longest_gap: Duration,
}

impl Successes {
    pub fn add(&self) {
        let (mut counted, now) = (self.counted(), Instant::now());
        counted.count += 1;
        if let Some(last) = counted.last.replace(now) {
            counted.longest_gap = counted.longest_gap.max(now - last);
        }
    }

    /// Waits for so many more.
    pub async fn more(&self, deadline: Duration, what: &str, count: usize) {
        let enough = self.counted().count + count;
        let is_enough = async || self.counted().count >= enough;
        poll::until_within(deadline, &format!("{count} more {what}"), is_enough).await;
    }

    /// The longest time between two successes since the last call of this, in seconds.
    pub fn take_longest_gap_s(&self) -> f64 {
        std::mem::take(&mut self.counted().longest_gap).as_secs_f64()
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
