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

use crate::in_flight::MAX_WEIGHT;

/// What is refused for now, and after how many seconds to come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Exhausted {
    #[error("the account sends more requests than {per_second} a second: wait {retry_after_s} s, then send it again")]
    Rate { per_second: u32, retry_after_s: u64 },
    #[error(
        "the requests of this account that are under way would be too much with this one: wait for an answer, then send it again"
    )]
    Weight,
    #[error("the account has {most} event streams open, and may have no more: close one, then open it again")]
    Streams { most: u32 },
}

impl Exhausted {
    pub(crate) const fn retry_after_s(self) -> u64 {
        match self {
            Self::Rate { retry_after_s, .. } => retry_after_s,
            Self::Weight | Self::Streams { .. } => 1,
        }
    }
}

/// What each account may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowances {
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
const UNIT: usize = 1 << 10;

/// What the requests of all accounts together may weigh, in bytes.
const MAX_TOTAL_WEIGHT: usize = 8 * MAX_WEIGHT;

/// Accounts that have asked for nothing lately are forgotten when there are more than this.
const REMEMBERED: usize = 1000;

/// The allowances of all accounts.
#[derive(Debug)]
pub(crate) struct Accounts {
    each: Allowances,
    total: Arc<Semaphore>,
    /// Whether there may be more than one.
    are_several: Arc<AtomicBool>,
    by_id: Mutex<HashMap<AccountId, Arc<Account>>>,
}

/// What is left of one account's.
#[derive(Debug)]
pub(crate) struct Account {
    each: Allowances,
    rate: Option<DefaultDirectRateLimiter>,
    weight: Arc<Semaphore>,
    total: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    has_company: Arc<AtomicBool>,
}

impl Accounts {
    pub(crate) fn new(each: Allowances) -> Self {
        let total = Arc::new(Semaphore::new(MAX_TOTAL_WEIGHT / UNIT));
        Self { each, total, are_several: Arc::default(), by_id: Mutex::default() }
    }

    /// Whether more than one account may call from now on. One alone need not leave anything to others.
    pub(crate) fn are_several(&self, are_several: bool) {
        self.are_several.store(are_several, Ordering::Relaxed);
    }

    pub(crate) fn of(&self, id: &AccountId) -> Arc<Account> {
        let mut by_id = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        if by_id.len() >= REMEMBERED {
            by_id.retain(|_, account| account.is_busy(account));
        }
        let account = by_id.entry(id.clone()).or_insert_with(|| Arc::new(Account::new(self)));
        Arc::clone(account)
    }
}

impl Account {
    fn new(all: &Accounts) -> Self {
        let each = all.each;
        let quota = each.requests_per_s.map(|rate| Quota::per_second(rate).allow_burst(each.burst));
        Self {
            each,
            rate: quota.map(RateLimiter::direct),
            weight: Arc::new(Semaphore::new(MAX_WEIGHT / UNIT)),
            total: Arc::clone(&all.total),
            streams: Arc::new(Semaphore::new(each.streams as usize)),
            reads: Arc::new(Semaphore::new(each.reads)),
            has_company: Arc::clone(&all.are_several),
        }
    }

    /// Whether forgetting it would give it more than it has: something is under way, or its rate is not what it was.
    fn is_busy(&self, account: &Arc<Self>) -> bool {
        let is_idle = Arc::strong_count(account) == 1
            && self.weight.available_permits() == MAX_WEIGHT / UNIT
            && self.streams.available_permits() == self.each.streams as usize;
        // Asked last: the answer takes the burst, if all of it is there, and then the account is forgotten.
        let is_rested =
            || self.rate.as_ref().is_none_or(|rate| rate.check_n(self.each.burst).is_ok_and(|rested| rested.is_ok()));
        !(is_idle && is_rested())
    }

    /// One more request.
    pub(crate) fn request(&self) -> Result<(), Exhausted> {
        let (Some(rate), Some(per_second)) = (&self.rate, self.each.requests_per_s) else { return Ok(()) };
        rate.check().map_err(|not_yet| {
            let wait = not_yet.wait_time_from(DefaultClock::default().now());
            Exhausted::Rate { per_second: per_second.get(), retry_after_s: wait.as_secs() + 1 }
        })
    }

    /// Room for a request of so many bytes, until what is returned is dropped.
    pub(crate) fn weight(&self, bytes: usize) -> Result<Weight, Exhausted> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).map_err(|_| Exhausted::Weight)?;
        let take =
            |from: &Arc<Semaphore>| Arc::clone(from).try_acquire_many_owned(units).map_err(|_| Exhausted::Weight);
        Ok(Weight { _own: take(&self.weight)?, _total: take(&self.total)? })
    }

    /// One more stream, until what is returned is dropped.
    pub(crate) fn stream(&self) -> Result<OwnedSemaphorePermit, Exhausted> {
        let most = self.each.streams;
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| Exhausted::Streams { most })
    }

    /// A place for a read, in turn; none is needed by an account that has the server for itself.
    pub(crate) async fn read(&self) -> Result<Option<ReadPlace>, TooManyReads> {
        if !self.has_company.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if let Ok(permit) = Arc::clone(&self.reads).try_acquire_owned() {
            return Ok(Some(ReadPlace { _permit: permit, until: None }));
        }
        let until = Instant::now() + self.each.read_time;
        match tokio::time::timeout_at(until, Arc::clone(&self.reads).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Some(ReadPlace { _permit: permit, until: Some(until) })),
            _ => Err(TooManyReads(self.each.reads)),
        }
    }
}

/// Among the reads of an account that are at work.
#[derive(Debug)]
pub(crate) struct ReadPlace {
    _permit: OwnedSemaphorePermit,
    /// When the time of a read is over that has waited for its place.
    pub(crate) until: Option<Instant>,
}

/// No read of the account ended in time: so many were at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyReads(pub(crate) usize);

/// Of a request that is under way.
#[derive(Debug)]
pub(crate) struct Weight {
    _own: OwnedSemaphorePermit,
    _total: OwnedSemaphorePermit,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many that none of them comes back while the test runs, but for a few.
    const BURST: u32 = 1000;

    fn allowances(burst: NonZeroU32) -> Allowances {
        Allowances {
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
        let accounts = Accounts::new(allowances(NonZeroU32::MIN));
        let of = |name: &str| accounts.of(&name.parse().unwrap());
        let alone = of("ana");
        for _ in 0..10 {
            assert!(alone.read().await.unwrap().is_none(), "nobody else is there");
        }
        accounts.are_several(true);
        let (first, second) = (alone.read().await.unwrap().unwrap(), of("ana").read().await.unwrap());
        assert_eq!(first.until, None);
        let began = Instant::now();
        assert_eq!(alone.read().await.unwrap_err(), TooManyReads(2));
        assert_eq!(began.elapsed(), Duration::from_secs(30));
        assert!(of("bob").read().await.unwrap().is_some(), "another account waits");
        // In turn, with what is left of its time.
        let waiting = tokio::spawn(async move { alone.read().await });
        tokio::time::sleep(Duration::from_secs(20)).await;
        drop(first);
        let until = waiting.await.unwrap().unwrap().unwrap().until.unwrap();
        assert_eq!(until - Instant::now(), Duration::from_secs(10));
        drop(second);
    }

    #[test]
    fn looking_for_accounts_to_forget_takes_nothing_from_those_that_stay() {
        let burst = NonZeroU32::new(BURST).unwrap();
        let accounts = Accounts::new(allowances(burst));
        let of = |name: &str| accounts.of(&name.parse().unwrap());
        let in_use = of("in use");
        let _stream = of("streaming").stream().unwrap();
        let tired = Arc::downgrade(&of("tired"));
        of("tired").request().unwrap();
        let rested = Arc::downgrade(&of("rested"));
        let remembered = accounts.by_id.lock().unwrap().len();
        for number in remembered..REMEMBERED {
            of(&format!("account {number}"));
        }
        assert!(rested.upgrade().is_some(), "forgotten too early");

        of("one too many");
        assert!(rested.upgrade().is_none(), "nothing was forgotten");
        assert!(tired.upgrade().is_some(), "forgotten, and with that given a new burst");
        for account in [&in_use, &of("streaming")] {
            assert_eq!((0..BURST).find_map(|_| account.request().err()), None, "a burst was taken");
        }
    }
}
