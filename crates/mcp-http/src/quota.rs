//! Quotas of accounts, so that no account occupies the whole server.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use mcp::ReadLimiter;
use mcp::message::MAX_IN_FLIGHT_BYTES;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use types::AccountId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuotaError {
    #[error("the account sends more requests than {per_second} a second: wait {retry_after_s} s, then send it again")]
    Rate { per_second: u32, retry_after_s: u64 },
    #[error(
        "the unanswered requests of this account take too much memory with this one: wait for an answer, then send it again"
    )]
    InFlightBytes,
    #[error("the account has {most} open event streams, which is its limit: close one, then try again")]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountQuotas {
    /// Average requests per second; `None` for no limit.
    pub requests_per_s: Option<NonZeroU32>,
    pub burst: NonZeroU32,
    pub streams: u32,
    /// Sessions in the memory of the server; the longest idle one is closed for a new one.
    pub sessions: u32,
    /// How long a session may be idle before it is closed.
    pub session_idle: Duration,
    /// Concurrent reads if several accounts share the server: fewer than there are database sessions for reads.
    pub reads: usize,
    /// How long a read may take in all if it waits for other reads of its account.
    pub read_time: Duration,
}

const BYTES_PER_PERMIT: usize = 1 << 10;

/// The most bytes of the requests of all accounts together.
const MAX_TOTAL_IN_FLIGHT_BYTES: usize = 8 * MAX_IN_FLIGHT_BYTES;

/// The number of accounts above which idle ones are removed.
const MAX_TRACKED_ACCOUNTS: usize = 1000;

#[derive(Debug)]
pub(crate) struct Accounts {
    quotas: AccountQuotas,
    total_in_flight_bytes: Arc<Semaphore>,
    /// Whether several accounts share the server.
    is_shared: Arc<AtomicBool>,
    by_id: Mutex<HashMap<AccountId, Arc<AccountUsage>>>,
}

#[derive(Debug)]
pub(crate) struct AccountUsage {
    quotas: AccountQuotas,
    rate: Option<DefaultDirectRateLimiter>,
    in_flight_bytes: Arc<Semaphore>,
    total_in_flight_bytes: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    pub(crate) reads: Arc<ReadLimiter>,
}

impl Accounts {
    pub(crate) fn new(quotas: AccountQuotas) -> Self {
        let total_in_flight_bytes = Arc::new(Semaphore::new(MAX_TOTAL_IN_FLIGHT_BYTES / BYTES_PER_PERMIT));
        Self { quotas, total_in_flight_bytes, is_shared: Arc::default(), by_id: Mutex::default() }
    }

    /// Sets whether several accounts share the server. A single account has no read limit.
    pub(crate) fn set_shared(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Ordering::Relaxed);
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
            reads: Arc::new(ReadLimiter::new(quotas.reads, quotas.read_time, Arc::clone(&all.is_shared))),
        }
    }

    /// Whether removing the account would give it extra quota: it is in use, or its rate is not replenished.
    fn is_busy(&self, account: &Arc<Self>) -> bool {
        let is_idle = Arc::strong_count(account) == 1
            && Arc::strong_count(&self.reads) == 1
            && self.in_flight_bytes.available_permits() == MAX_IN_FLIGHT_BYTES / BYTES_PER_PERMIT
            && self.streams.available_permits() == self.quotas.streams as usize;
        // Checked last, because it consumes the burst if it is complete. The account is removed then.
        let is_replenished =
            || self.rate.as_ref().is_none_or(|rate| rate.check_n(self.quotas.burst).is_ok_and(|rested| rested.is_ok()));
        !(is_idle && is_replenished())
    }

    /// Counts a request against the rate.
    pub(crate) fn check_rate(&self) -> Result<(), QuotaError> {
        let (Some(rate), Some(per_second)) = (&self.rate, self.quotas.requests_per_s) else { return Ok(()) };
        rate.check().map_err(|not_until| {
            let wait = not_until.wait_time_from(DefaultClock::default().now());
            QuotaError::Rate { per_second: per_second.get(), retry_after_s: wait.as_secs() + 1 }
        })
    }

    /// Reserves memory for a request of this many bytes, until the result is dropped.
    pub(crate) fn reserve_bytes(&self, bytes: usize) -> Result<InFlightBytes, QuotaError> {
        let units = u32::try_from(bytes.div_ceil(BYTES_PER_PERMIT)).map_err(|_| QuotaError::InFlightBytes)?;
        let take = |from: &Arc<Semaphore>| {
            Arc::clone(from).try_acquire_many_owned(units).map_err(|_| QuotaError::InFlightBytes)
        };
        Ok(InFlightBytes { _own: take(&self.in_flight_bytes)?, _total: take(&self.total_in_flight_bytes)? })
    }

    /// Counts an event stream, until the result is dropped.
    pub(crate) fn acquire_stream(&self) -> Result<OwnedSemaphorePermit, QuotaError> {
        let most = self.quotas.streams;
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| QuotaError::Streams { most })
    }
}

#[derive(Debug)]
pub(crate) struct InFlightBytes {
    _own: OwnedSemaphorePermit,
    _total: OwnedSemaphorePermit,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More requests than can be replenished while the test runs.
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
