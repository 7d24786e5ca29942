//! Whether a database is used. Of several databases, one that is not used costs no connection, but for a moment each
//! minute.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ledger::Ledger;
use ledger::read::Reader;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How often the tasks of a database that is used look for work.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often the tasks of a database that is not used look for work, and how long it counts as used after a call.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);

/// How long a connection of a database that is not used stays open.
const UNUSED: Duration = Duration::from_secs(5);

/// The activity of one database.
#[derive(Debug, Clone, Default)]
pub struct Activity {
    /// `None` if the database always counts as used.
    shared: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    last: Mutex<Instant>,
    used: Notify,
    /// When the tasks of the database begin their turns, so that those of many databases do not connect at once.
    begin: Instant,
}

impl Activity {
    /// The activity of one of several databases, which counts as used for a minute after each call. `place` is that of
    /// the database among `count`, from 0; the minutes of the databases begin one after the other.
    #[must_use]
    pub fn measured(place: u32, count: u32) -> Self {
        let begin = Instant::now() + IDLE_INTERVAL * place / count.max(1);
        Self { shared: Some(Arc::new(Shared { last: Mutex::new(begin), used: Notify::new(), begin })) }
    }

    /// Runs a task that has a turn each minute, in the minutes of the database.
    pub async fn in_turn<T>(self, task: impl Future<Output = T>) -> T {
        if let Some(shared) = &self.shared {
            tokio::time::sleep_until(shared.begin).await;
        }
        task.await
    }

    /// Notes that the database is used.
    pub(crate) fn note(&self) {
        if let Some(shared) = &self.shared {
            *shared.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            shared.used.notify_waiters();
        }
    }

    fn is_idle(&self) -> bool {
        let last = self.shared.as_ref().map(|shared| *shared.last.lock().unwrap_or_else(PoisonError::into_inner));
        last.is_some_and(|last| last.elapsed() >= IDLE_INTERVAL)
    }

    /// Waits until a task looks for work again.
    pub async fn turn(&self) {
        match &self.shared {
            Some(shared) if self.is_idle() => {
                let _ = tokio::time::timeout(IDLE_INTERVAL, shared.used.notified()).await;
            }
            _ => tokio::time::sleep(INTERVAL).await,
        }
    }

    /// Closes connections that were not used for a minute; all of them soon, if their database is not used. Never returns.
    pub async fn close_unused(self, ledger: Ledger, reader: Option<Reader>) {
        let unused = if self.shared.is_some() { UNUSED } else { IDLE_INTERVAL };
        loop {
            tokio::time::sleep(unused).await;
            if self.shared.is_none() || self.is_idle() {
                ledger.close_unused(unused).await;
                if let Some(reader) = &reader {
                    reader.close_unused(unused).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tasks_look_for_work_each_second_while_a_database_is_used_and_each_minute_otherwise() {
        let (always, measured) = (Activity::default(), Activity::measured(0, 2));
        tokio::time::advance(IDLE_INTERVAL).await;
        let took = async |activity: &Activity| {
            let begun = Instant::now();
            activity.turn().await;
            begun.elapsed()
        };
        assert_eq!((took(&always).await, took(&measured).await), (INTERVAL, IDLE_INTERVAL));
        let waiting = tokio::spawn({
            let measured = measured.clone();
            async move { measured.turn().await }
        });
        tokio::task::yield_now().await;
        let begun = Instant::now();
        measured.note();
        waiting.await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO, "a call wakes the tasks");
        assert_eq!(took(&measured).await, INTERVAL);
        assert!(!measured.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn the_minutes_of_databases_that_start_together_begin_one_after_the_other() {
        let begun = Instant::now();
        let mut begins = Vec::new();
        for place in 0..4 {
            Activity::measured(place, 4).in_turn(async { begins.push(begun.elapsed().as_secs()) }).await;
        }
        // Each one waits from when it was made.
        assert_eq!(begins, [0, 15, 45, 90]);
        let last = Activity::measured(3, 4);
        tokio::time::advance(IDLE_INTERVAL).await;
        assert!(!last.is_idle());
        tokio::time::advance(IDLE_INTERVAL * 3 / 4).await;
        assert!(last.is_idle());
    }
}
