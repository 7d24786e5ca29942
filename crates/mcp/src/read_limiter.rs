//! Limits the concurrent reads of an account, where several accounts share a server: no account occupies all database
//! sessions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use types::{ErrorCode, Failure};

#[derive(Debug)]
pub struct ReadLimiter {
    /// The permits of each database, by its name; the name is empty if the server has one without a name.
    permits: Mutex<HashMap<String, Arc<Semaphore>>>,
    max_reads: usize,
    /// How long a read that had to wait may take in all.
    read_time: Duration,
    /// Whether other accounts share the server. The limit applies only then.
    is_shared: Arc<AtomicBool>,
}

impl ReadLimiter {
    /// A limit of `max_reads` concurrent reads of each database. `read_time` is the longest time that a read may take if it had to
    /// wait, in all; the limit applies while `is_shared` is set.
    #[must_use]
    pub fn new(max_reads: usize, read_time: Duration, is_shared: Arc<AtomicBool>) -> Self {
        Self { permits: Mutex::default(), max_reads, read_time, is_shared }
    }

    /// Waits for a permit, in order of arrival. `None` if the account has the server for itself.
    async fn acquire(&self, database: Option<&str>) -> Result<Option<ReadPermit>, Failure> {
        if !self.is_shared.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let permits = self.permits_of(database.unwrap_or_default());
        if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
            return Ok(Some(ReadPermit { _permit: permit, deadline: None }));
        }
        let deadline = Instant::now() + self.read_time;
        match tokio::time::timeout_at(deadline, permits.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Some(ReadPermit { _permit: permit, deadline: Some(deadline) })),
            _ => Err(self.no_permit()),
        }
    }

    fn permits_of(&self, database: &str) -> Arc<Semaphore> {
        let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = permits.get(database) {
            return Arc::clone(own);
        }
        let own = Arc::new(Semaphore::new(self.max_reads));
        permits.insert(database.to_owned(), Arc::clone(&own));
        own
    }

    fn no_permit(&self) -> Failure {
        let message = format!(
            "Database query failed: this account already runs {} reads, which is its limit, and none ended in time",
            self.max_reads
        );
        Failure::new(ErrorCode::DatabaseUnavailable, message).hint(
            "The query was not started: repeat it when fewer are running. The operator can raise http.reads, read_sessions or \
             query_timeout_ms.",
        )
    }
}

#[derive(Debug)]
pub(crate) struct ReadPermit {
    _permit: OwnedSemaphorePermit,
    /// When a read that had to wait for its permit must end.
    deadline: Option<Instant>,
}

/// Runs a read of a database within the limit of its account, if there is one. The permit that comes with the output is held until
/// the rows have been written.
///
/// # Errors
/// A [`Failure`] if no permit became free in time, or if the read took too long after it had waited. Dropping the
/// read frees its database session.
pub(crate) async fn run<T>(
    limiter: Option<&ReadLimiter>,
    database: Option<&str>,
    read: impl Future<Output = T>,
) -> Result<(T, Option<ReadPermit>), Failure> {
    let permit = match limiter {
        Some(limiter) => limiter.acquire(database).await?,
        None => None,
    };
    let output = match permit.as_ref().and_then(|permit| permit.deadline) {
        Some(deadline) => tokio::time::timeout_at(deadline, read).await.map_err(|_| timed_out())?,
        None => read.await,
    };
    Ok((output, permit))
}

fn timed_out() -> Failure {
    let message = "Database query failed: Query timed out after it had waited for other reads of this account";
    Failure::new(ErrorCode::Timeout, message).hint("Repeat it when fewer are running.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reads_of_an_account_wait_for_each_other_within_their_time_if_the_server_is_shared() {
        let is_shared = Arc::new(AtomicBool::new(false));
        let limiter = || Arc::new(ReadLimiter::new(2, Duration::from_secs(30), Arc::clone(&is_shared)));
        let (ana, bob) = (limiter(), limiter());
        for _ in 0..10 {
            assert!(ana.acquire(None).await.unwrap().is_none(), "the account is alone");
        }
        is_shared.store(true, Ordering::Relaxed);
        let (first, second) = (ana.acquire(None).await.unwrap().unwrap(), ana.acquire(None).await.unwrap());
        assert_eq!(first.deadline, None);
        let began = Instant::now();
        assert_eq!(ana.acquire(None).await.unwrap_err().code, ErrorCode::DatabaseUnavailable);
        assert_eq!(began.elapsed(), Duration::from_secs(30));
        assert!(bob.acquire(None).await.unwrap().is_some(), "another account waits");
        // In order of arrival, with the rest of its time.
        let waiting = tokio::spawn(async move { run(Some(&ana), None, std::future::pending::<()>()).await });
        tokio::time::sleep(Duration::from_secs(20)).await;
        drop(first);
        assert_eq!(waiting.await.unwrap().unwrap_err().code, ErrorCode::Timeout);
        assert_eq!(began.elapsed(), Duration::from_secs(60));
        drop(second);
    }
}
