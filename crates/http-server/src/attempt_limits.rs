//! Limits attempts per client: failed authentications, and sign-ins that were begun. After too many, further attempts
//! are refused without being checked.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::time::Instant;

use crate::trusted_proxies::ClientNetwork;

/// Average attempts per second of one client: more than people and programs with an expired token cause.
const ATTEMPTS_PER_S: NonZeroU32 = NonZeroU32::new(10).unwrap();

/// Attempts in one burst of one client: an office behind one address whose tokens have just been revoked.
const BURST: NonZeroU32 = NonZeroU32::new(100).unwrap();

/// The most clients in the table, of some 120 bytes each. When it is full, all other clients share one counter.
const MAX_CLIENTS: usize = 10_000;

/// Attempts per second, and per burst, of all clients that share the counter.
const OTHERS_PER_S: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

/// How long a client is blocked.
const BLOCK_TIME: Duration = Duration::from_secs(1);

/// The shortest interval between two sweeps of the table.
const SWEEP: Duration = Duration::from_secs(1);

/// Too many attempts from one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many attempts from this address: wait {} s, then send it again", BLOCK_TIME.as_secs())]
pub struct AttemptLimitError;

impl AttemptLimitError {
    /// The seconds to wait.
    #[must_use]
    pub const fn retry_after_s() -> u64 {
        BLOCK_TIME.as_secs()
    }
}

#[derive(Debug)]
pub struct AttemptLimits(Mutex<Table>);

#[derive(Debug)]
struct Table {
    by_client: HashMap<ClientNetwork, Attempts>,
    others: Attempts,
    swept: Option<Instant>,
}

#[derive(Debug)]
struct Attempts {
    rate: DefaultDirectRateLimiter,
    blocked_until: Option<Instant>,
}

impl Attempts {
    fn new(quota: Quota) -> Self {
        Self { rate: RateLimiter::direct(quota), blocked_until: None }
    }

    fn of_one_client() -> Self {
        Self::new(Quota::per_second(ATTEMPTS_PER_S).allow_burst(BURST))
    }

    fn is_blocked(&self) -> bool {
        self.blocked_until.is_some_and(|until| Instant::now() < until)
    }

    fn count(&mut self) {
        if self.rate.check().is_err() {
            self.blocked_until = Some(Instant::now() + BLOCK_TIME);
        }
    }

    /// Whether removing the entry gives its client no extra attempts. The check consumes the burst if it is complete.
    fn is_replenished(&self) -> bool {
        !self.is_blocked() && self.rate.check_n(BURST).is_ok_and(|rested| rested.is_ok())
    }
}

impl Default for AttemptLimits {
    fn default() -> Self {
        let others = Attempts::new(Quota::per_second(OTHERS_PER_S));
        Self(Mutex::new(Table { by_client: HashMap::new(), others, swept: None }))
    }
}

impl AttemptLimits {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an attempt of this client may be checked now.
    pub fn check(&self, client: ClientNetwork) -> Result<(), AttemptLimitError> {
        let table = self.table();
        let is_blocked = match table.by_client.get(&client) {
            Some(attempts) => attempts.is_blocked(),
            None => table.by_client.len() >= MAX_CLIENTS && table.others.is_blocked(),
        };
        if is_blocked { Err(AttemptLimitError) } else { Ok(()) }
    }

    pub fn count(&self, client: ClientNetwork) {
        let mut table = self.table();
        if let Some(attempts) = table.by_client.get_mut(&client) {
            return attempts.count();
        }
        if table.by_client.len() >= MAX_CLIENTS && table.swept.is_none_or(|swept| swept.elapsed() >= SWEEP) {
            table.swept = Some(Instant::now());
            table.by_client.retain(|_, attempts| !attempts.is_replenished());
        }
        if table.by_client.len() >= MAX_CLIENTS {
            return table.others.count();
        }
        table.by_client.entry(client).or_insert_with(Attempts::of_one_client).count();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    fn client(number: u32) -> ClientNetwork {
        ClientNetwork::of(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    fn fail(limits: &AttemptLimits, client: ClientNetwork, times: u32) {
        (0..times).for_each(|_| limits.count(client));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_keeps_failing_pauses_and_no_other_does() {
        let limits = AttemptLimits::default();
        fail(&limits, client(1), BURST.get());
        assert_eq!(limits.check(client(1)), Ok(()));
        // A few more than have been replenished meanwhile.
        fail(&limits, client(1), BURST.get());
        assert_eq!(limits.check(client(1)), Err(AttemptLimitError));
        assert_eq!(limits.check(client(2)), Ok(()));
        tokio::time::advance(BLOCK_TIME).await;
        assert_eq!(limits.check(client(1)), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_of_one_ipv6_network_share_their_attempts() {
        let limits = AttemptLimits::default();
        let address = |host: u32| ClientNetwork::of(IpAddr::V6(Ipv6Addr::from_bits(0x2001 << 112 | u128::from(host))));
        (0..2 * BURST.get()).for_each(|host| limits.count(address(host)));
        assert_eq!(limits.check(address(u32::MAX)), Err(AttemptLimitError));
    }

    #[tokio::test(start_paused = true)]
    async fn any_number_of_addresses_takes_bounded_memory_and_is_bounded_in_all() {
        let limits = AttemptLimits::default();
        fail(&limits, client(0), 2 * BURST.get());
        for number in 0..3 * MAX_CLIENTS as u32 {
            // More than one each, so that none is replenished.
            fail(&limits, client(number), 20);
        }
        assert_eq!(limits.table().by_client.len(), MAX_CLIENTS);
        assert_eq!(limits.check(client(u32::MAX)), Err(AttemptLimitError), "those beyond are counted together");
        assert_eq!(limits.check(client(1)), Ok(()), "and not with those in the table");
        assert_eq!(limits.check(client(0)), Err(AttemptLimitError), "forgotten, and with that given a new burst");
        tokio::time::advance(SWEEP).await;
        assert_eq!(limits.check(client(u32::MAX)), Ok(()));
    }
}
