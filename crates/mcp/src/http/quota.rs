//! What one account may take of the server at once, so that none keeps the others from it.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use types::AccountId;

use crate::in_flight::MAX_IN_FLIGHT_BYTES;

/// What is refused for now, and after how many seconds to come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuotaError {
    #[error("the account sends more requests than {per_second} a second: wait {retry_after_s} s, then send it again")]
    Rate { per_second: u32, retry_after_s: u64 },
    #[error(
        "the requests of this account that are under way would be too much with this one: wait for an answer, then send it again"
    )]
    InFlightBytes,
    #[error("the account has {most} event streams open, and may have no more: close one, then open it again")]
    Streams { most: u32 },
}

impl QuotaError {
    pub(crate) const fn retry_after_s(self) -> u64 {
        match self {
            Self::Rate { retry_after_s, .. } => retry_after_s,
            Self::InFlightBytes | Self::Streams { .. } => 1,
        }
    }
}

/// What each account may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountQuotas {
    /// Requests a second, on average; `None`: no limit.
    pub requests_per_s: Option<NonZeroU32>,
    /// Requests at once after a pause.
    pub burst: NonZeroU32,
    /// Event streams that are open.
    pub streams: u32,
    /// Sessions.
    pub sessions: u32,
    /// How long a session may lie idle before the server gives it up.
    pub session_idle: Duration,
    /// Reads at work at once, where several accounts share the server: fewer than there are sessions that read.
    pub reads: usize,
    /// How long a read may take in all, if it waits for the others of its account.
    pub read_time: Duration,
}

/// A unit of weight, in bytes.
const BYTES_PER_PERMIT: usize = 1 << 10;

/// What the requests of all accounts together may weigh, in bytes.
const MAX_TOTAL_IN_FLIGHT_BYTES: usize = 8 * MAX_IN_FLIGHT_BYTES;

/// Accounts that have asked for nothing lately are forgotten when there are more than this.
const MAX_TRACKED_ACCOUNTS: usize = 1000;

/// The allowances of all accounts.
#[derive(Debug)]
pub(crate) struct Accounts {
    quotas: AccountQuotas,
    total_in_flight_bytes: Arc<Semaphore>,
    /// Whether there may be more than one.
    multiple_accounts: Arc<AtomicBool>,
    by_id: Mutex<HashMap<AccountId, Arc<AccountUsage>>>,
}

/// What is left of one account's.
#[derive(Debug)]
pub(crate) struct AccountUsage {
    quotas: AccountQuotas,
    rate: Option<DefaultDirectRateLimiter>,
    in_flight_bytes: Arc<Semaphore>,
    total_in_flight_bytes: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    multiple_accounts: Arc<AtomicBool>,
}

impl Accounts {
    pub(crate) fn new(quotas: AccountQuotas) -> Self {
        let total_in_flight_bytes = Arc::new(Semaphore::new(MAX_TOTAL_IN_FLIGHT_BYTES / BYTES_PER_PERMIT));
        Self { quotas, total_in_flight_bytes, multiple_accounts: Arc::default(), by_id: Mutex::default() }
    }

    /// Whether more than one account may call from now on. One alone need not leave anything to others.
    pub(crate) fn set_multiple_accounts(&self, multiple_accounts: bool) {
        self.multiple_accounts.store(multiple_accounts, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, id: &AccountId) -> Arc<AccountUsage> {
        let mut by_id = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        if by_id.len() >= MAX_TRACKED_ACCOUNTS {
            by_id.retain(|_, account| account.is_busy(account));
        }
        let account = by_id.entry(id.clone()).or_insert_with(|| Arc::new(AccountUsage::new(self)));
        Arc::clone(account)
    }
}

impl AccountUsage {
    fn new(all: &Accounts) -> Self {
        let quotas = all.quotas;
        let quota = quotas.requests_per_s.map(|rate| Quota::per_second(rate).allow_burst(quotas.burst));
        Self {
            quotas,
            rate: quota.map(RateLimiter::direct),
            in_flight_bytes: Arc::new(Semaphore::new(MAX_IN_FLIGHT_BYTES / BYTES_PER_PERMIT)),
            total_in_flight_bytes: Arc::clone(&all.total_in_flight_bytes),
            streams: Arc::new(Semaphore::new(quotas.streams as usize)),
            reads: Arc::new(Semaphore::new(quotas.reads)),
            multiple_accounts: Arc::clone(&all.multiple_accounts),
        }
    }

    /// Whether forgetting it would give it more than it has: something is under way, or its rate is not what it was.
    fn is_busy(&self, account: &Arc<Self>) -> bool {
        let is_idle = Arc::strong_count(account) == 1
            && self.in_flight_bytes.available_permits() == MAX_IN_FLIGHT_BYTES / BYTES_PER_PERMIT
            && self.streams.available_permits() == self.quotas.streams as usize;
        // Asked last: the answer takes the burst, if all of it is there, and then the account is forgotten.
        let is_replenished =
            || self.rate.as_ref().is_none_or(|rate| rate.check_n(self.quotas.burst).is_ok_and(|rested| rested.is_ok()));
        !(is_idle && is_replenished())
    }

    /// One more request.
    pub(crate) fn check_rate(&self) -> Result<(), QuotaError> {
        let (Some(rate), Some(per_second)) = (&self.rate, self.quotas.requests_per_s) else { return Ok(()) };
        rate.check().map_err(|set_starting| {
            let wait = set_starting.wait_time_from(DefaultClock::default().now());
            QuotaError::Rate { per_second: per_second.get(), retry_after_s: wait.as_secs() + 1 }
        })
    }

    /// Room for a request of so many bytes, until what is returned is dropped.
    pub(crate) fn reserve_bytes(&self, bytes: usize) -> Result<InFlightBytes, QuotaError> {
        let units = u32::try_from(bytes.div_ceil(BYTES_PER_PERMIT)).map_err(|_| QuotaError::InFlightBytes)?;
        let take = |from: &Arc<Semaphore>| {
            Arc::clone(from).try_acquire_many_owned(units).map_err(|_| QuotaError::InFlightBytes)
        };
        Ok(InFlightBytes { _own: take(&self.in_flight_bytes)?, _total: take(&self.total_in_flight_bytes)? })
    }

    /// One more stream, until what is returned is dropped.
    pub(crate) fn acquire_stream(&self) -> Result<OwnedSemaphorePermit, QuotaError> {
        let most = self.quotas.streams;
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| QuotaError::Streams { most })
    }

    /// A place for a read, in turn; none is needed by an account that has the server for itself.
    pub(crate) async fn acquire_read(&self) -> Result<Option<ReadPermit>, ReadLimitError> {
        if !self.multiple_accounts.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if let Ok(permit) = Arc::clone(&self.reads).try_acquire_owned() {
            return Ok(Some(ReadPermit { _permit: permit, deadline: None }));
        }
        let deadline = Instant::now() + self.quotas.read_time;
        match tokio::time::timeout_at(deadline, Arc::clone(&self.reads).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Some(ReadPermit { _permit: permit, deadline: Some(deadline) })),
            _ => Err(ReadLimitError(self.quotas.reads)),
        }
    }
}

/// Among the reads of an account that are at work.
#[derive(Debug)]
pub(crate) struct ReadPermit {
    _permit: OwnedSemaphorePermit,
    /// When the time of a read is over that has waited for its place.
    pub(crate) deadline: Option<Instant>,
}

/// No read of the account ended in time: so many were at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadLimitError(pub(crate) usize);

/// Of a request that is under way.
#[derive(Debug)]
pub(crate) struct InFlightBytes {
    _own: OwnedSemaphorePermit,
    _total: OwnedSemaphorePermit,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many that none of them comes back while the test runs, but for a few.
    const BURST: u32 = 1000;

    fn test_quotas(burst: NonZeroU32) -> AccountQuotas {
        AccountQuotas {
            requests_per_s: Some(NonZeroU32::MIN),
            burst,
            streams: 1,
            sessions: 1,
            session_idle: Duration::from_secs(1),
            reads: 2,
            read_time: Duration::from_secs(30),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reads_of_an_account_wait_for_each_other_within_their_time_and_for_nobody_elses() {
        let accounts = Accounts::new(test_quotas(NonZeroU32::MIN));
        let of = |name: &str| accounts.get(&name.parse().unwrap());
        let alone = of("ana");
        for _ in 0..10 {
            assert!(alone.acquire_read().await.unwrap().is_none(), "nobody else is there");
        }
        accounts.set_multiple_accounts(true);
        let (first, second) = (alone.acquire_read().await.unwrap().unwrap(), of("ana").acquire_read().await.unwrap());
        assert_eq!(first.deadline, None);
        let began = Instant::now();
        assert_eq!(alone.acquire_read().await.unwrap_err(), ReadLimitError(2));
        assert_eq!(began.elapsed(), Duration::from_secs(30));
        assert!(of("bob").acquire_read().await.unwrap().is_some(), "another account waits");
        // In turn, with what is left of its time.
        let waiting = tokio::spawn(async move { alone.acquire_read().await });
        tokio::time::sleep(Duration::from_secs(20)).await;
        drop(first);
        let deadline = waiting.await.unwrap().unwrap().unwrap().deadline.unwrap();
        assert_eq!(deadline - Instant::now(), Duration::from_secs(10));
        drop(second);
    }

    #[test]
    fn looking_for_accounts_to_forget_takes_nothing_from_those_that_stay() {
        let burst = NonZeroU32::new(BURST).unwrap();
        let accounts = Accounts::new(test_quotas(burst));
        let of = |name: &str| accounts.get(&name.parse().unwrap());
        let in_use = of("in use");
        let _stream = of("streaming").acquire_stream().unwrap();
        let tired = Arc::downgrade(&of("tired"));
        of("tired").check_rate().unwrap();
        let rested = Arc::downgrade(&of("rested"));
        let remembered = accounts.by_id.lock().unwrap().len();
        for number in remembered..MAX_TRACKED_ACCOUNTS {
            of(&format!("account {number}"));
        }
        assert!(rested.upgrade().is_some(), "forgotten too early");

        of("one too many");
        assert!(rested.upgrade().is_none(), "nothing was forgotten");
        assert!(tired.upgrade().is_some(), "forgotten, and with that given a new burst");
        for account in [&in_use, &of("streaming")] {
            assert_eq!((0..BURST).find_map(|_| account.check_rate().err()), None, "a burst was taken");
        }
    }
}
