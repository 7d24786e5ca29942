//! The log while PostgreSQL is away: one line when it goes, and one a minute. Servers ask the ledger every second.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pg::Error;

/// The pause between two lines about the same outage.
const EVERY: Duration = Duration::from_secs(60);

/// The outage of this process's database.
static OUTAGE: Outage = Outage { logged: Mutex::new(None) };

/// When the outage was logged last; `None` while PostgreSQL answers.
#[derive(Debug)]
struct Outage {
    logged: Mutex<Option<Instant>>,
}

impl Outage {
    fn is_due(&self, now: Instant) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = logged.is_none_or(|last| now.duration_since(last) >= EVERY);
        if is_due {
            *logged = Some(now);
        }
        is_due
    }

    fn end(&self) -> bool {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }
}

/// Whether an error goes to the log: everything but an outage that is there already.
fn is_news(error: &Error) -> bool {
    !is_outage(error) || OUTAGE.is_due(Instant::now())
}

/// Warns of what will be tried again, unless the log has the outage already.
pub(crate) fn warn(error: &Error, what: &str) {
    if is_news(error) {
        tracing::warn!(%error, "{what}");
    }
}

/// Logs that the ledger cannot be used, unless the log has it already.
pub fn log(error: &Error, what: &str) {
    if is_news(error) {
        tracing::error!(%error, "{what}");
    }
}

/// PostgreSQL has answered: the next outage is logged at once.
pub(crate) fn end() {
    if OUTAGE.end() {
        tracing::info!("the database answers again");
    }
}

/// Whether it is PostgreSQL that does not answer, and not a statement that it refuses.
fn is_outage(error: &Error) -> bool {
    match error {
        Error::Connect(_) | Error::Lost(_) | Error::Deadline => true,
        // It is stopping, has crashed, or is starting.
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
