//! Limits the server's log while PostgreSQL does not answer: one message at the beginning of an outage, then one a
//! minute. Without the limit there would be one a second, since servers query the ledger every second.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::client::error::Error;

/// The time between two messages about the same outage.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The outage of the database of this process.
static OUTAGE: Outage = Outage { logged: Mutex::new(None) };

/// When a message about the outage was last logged; `None` while PostgreSQL answers.
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

    fn end(&self) -> bool {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
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

/// Notes that PostgreSQL has answered, so that the next outage is logged at once.
pub fn end() {
    if OUTAGE.end() {
        tracing::info!("the database answers again");
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
        assert!(outage.end() && !outage.end());
        assert_eq!([121, 122].map(due), [true, false], "another outage");
    }
}
