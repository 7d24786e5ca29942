//! Limits the server's log while PostgreSQL does not answer: one message at the beginning of an outage, then one a
//! minute. Without the limit there would be one a second, since servers query the ledger every second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::client::error::Error;

/// The time between two messages about the same outage.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The outage of the databases of this process.
static OUTAGE: Outage = Outage { logged: Mutex::new(None) };

/// When a message about the outage was last logged; `None` if none was since a database answers again.
#[derive(Debug)]
struct Outage {
    logged: Mutex<Option<Instant>>,
}

impl Outage {
    fn is_due(&self, now: Instant) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = logged.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL);
        if is_due {
            *logged = Some(now);
        }
        is_due
    }

    fn end(&self) {
        *self.logged.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Whether an error is logged: all errors are, except those of an outage that was logged less than a minute ago.
fn is_news(error: &Error) -> bool {
    !is_outage(error) || OUTAGE.is_due(Instant::now())
}

/// Warns of an operation that will be retried, unless the outage is in the log already.
pub fn warn(error: &Error, what: &str) {
    if is_news(error) {
        tracing::warn!(%error, "{what}");
    }
}

/// Logs an error of the ledger, unless the outage is in the log already.
pub fn log(error: &Error, what: &str) {
    if is_news(error) {
        tracing::error!(%error, "{what}");
    }
}

/// Whether one database is away. One that answers does not end the outage of another.
#[derive(Debug, Clone, Default)]
pub struct Absence(Arc<AtomicBool>);

impl Absence {
    /// Notes what the database of this name has answered. After its outage, the next one is logged at once.
    pub fn note<T>(&self, database: &str, answer: &Result<T, Error>) {
        match answer {
            Ok(_) if self.0.swap(false, Ordering::Relaxed) => {
                OUTAGE.end();
                tracing::info!(database, "the database answers again");
            }
            Err(error) if is_outage(error) => self.0.store(true, Ordering::Relaxed),
            _ => {}
        }
    }
}

/// Whether PostgreSQL does not answer at all, rather than refuse a statement.
fn is_outage(error: &Error) -> bool {
    match error {
        Error::Connect(_) | Error::Lost(_) | Error::Deadline => true,
        // PostgreSQL is stopping, has crashed, or is starting.
        Error::Server(error) => error.sqlstate.starts_with("57P"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_when_it_begins_and_every_minute() {
        // N-32
        let (outage, start) = (Outage { logged: Mutex::new(None) }, Instant::now());
        let due = |seconds| outage.is_due(start + Duration::from_secs(seconds));
        assert_eq!([0, 1, 59, 60, 61, 119, 120].map(due), [true, false, false, true, false, false, true]);
        outage.end();
        assert_eq!([121, 122].map(due), [true, false], "another outage");
    }
}
