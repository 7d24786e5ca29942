//! Limits connections, in total and per client. Unauthenticated connections are evicted first.
//!
//! ```text
//! lanes      general: any request        reserve: health checks, and any request from loopback
//! counted    by the network of the peer, except loopback and trusted proxies
//! evictable  between requests and while one arrives, if none has been authenticated; the oldest first. Loopback and
//!            trusted proxies are evicted only in favour of loopback and trusted proxies
//! ```

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::trusted_proxies::{ClientNetwork, TrustedProxies};

/// How long a client may take from connecting to the end of the head of its first request, TLS included.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections beyond the operator's limit, for health checks and loopback.
const RESERVED_CONNECTIONS: usize = 32;

/// Consecutive rejected requests after which a connection is closed.
const MAX_CONSECUTIVE_REFUSALS: u32 = 8;

#[derive(Debug)]
pub struct ConnectionLimits {
    table: Mutex<Table>,
    per_network: usize,
    proxies: TrustedProxies,
}

#[derive(Debug)]
struct Table {
    next_id: u64,
    general: Lane,
    reserve: Lane,
    by_network: HashMap<ClientNetwork, usize>,
}

#[derive(Debug)]
struct Lane {
    open: usize,
    capacity: usize,
    /// The connections that may be evicted, by age.
    evictable: BTreeMap<u64, Evictable>,
}

#[derive(Debug)]
struct Evictable {
    network: ClientNetwork,
    /// Whether the limit per network applies to it.
    is_bounded: bool,
    token: CancellationToken,
}

/// Which connections may be evicted.
#[derive(Debug, Clone, Copy)]
enum Candidates {
    /// Those of this network.
    Of(ClientNetwork),
    /// Those to which the limit per network applies.
    Bounded,
    /// Those of loopback and of trusted proxies.
    Unbounded,
}

impl Lane {
    fn new(capacity: usize) -> Self {
        Self { open: 0, capacity, evictable: BTreeMap::new() }
    }

    /// Closes the oldest of these connections. Returns whether there was one.
    fn evict(&mut self, candidates: Candidates) -> bool {
        let is_meant = |one: &Evictable| match candidates {
            Candidates::Of(network) => one.network == network,
            Candidates::Bounded => one.is_bounded,
            Candidates::Unbounded => !one.is_bounded,
        };
        let found = self.evictable.iter().find(|(_, one)| is_meant(one)).map(|(id, _)| *id);
        let evicted = found.and_then(|id| self.evictable.remove(&id));
        evicted.map(|evicted| evicted.token.cancel()).is_some()
    }

    /// Whether one more connection fits, possibly after an eviction. With `instead_of`, only a connection of this
    /// network may be evicted, and must be.
    fn make_room(&mut self, instead_of: Option<ClientNetwork>, is_bounded: bool) -> bool {
        if let Some(network) = instead_of {
            return self.evict(Candidates::Of(network));
        }
        self.open < self.capacity || self.evict(Candidates::Bounded) || !is_bounded && self.evict(Candidates::Unbounded)
    }
}

/// Why a connection is closed immediately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionLimitError {
    /// The address has too many connections.
    #[error("the address has reached its limit of connections (connections_per_address)")]
    PerAddress,
    /// All addresses together have too many connections.
    #[error("the server has reached its limit of connections (connections), reserved ones included")]
    Total,
}

impl ConnectionLimits {
    /// At most `capacity` connections in total and `per_network` of each network.
    pub fn new(capacity: usize, per_network: usize, proxies: TrustedProxies) -> Arc<Self> {
        let (general, reserve) = (Lane::new(capacity), Lane::new(RESERVED_CONNECTIONS));
        let table = Mutex::new(Table { next_id: 0, general, reserve, by_network: HashMap::new() });
        Arc::new(Self { table, per_network, proxies })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn admit(
        self: &Arc<Self>,
        peer: SocketAddr,
    ) -> Result<(Arc<HttpConnection>, ConnectionSlot), ConnectionLimitError> {
        let address = peer.ip().to_canonical();
        let network = ClientNetwork::of(address);
        let is_bounded = !address.is_loopback() && !self.proxies.contains(address);
        let mut table = self.table();
        let Table { general, reserve, by_network, .. } = &mut *table;
        let has_its_most = is_bounded && by_network.get(&network).is_some_and(|open| *open >= self.per_network);
        let instead_of = has_its_most.then_some(network);
        let is_reserve = !general.make_room(instead_of, is_bounded);
        if is_reserve && !reserve.make_room(instead_of, is_bounded) {
            return Err(if has_its_most { ConnectionLimitError::PerAddress } else { ConnectionLimitError::Total });
        }
        let lane = if is_reserve { reserve } else { general };
        lane.open += 1;
        *by_network.entry(network).or_default() += 1;
        table.next_id += 1;
        let connection = Arc::new(HttpConnection {
            id: table.next_id,
            address,
            network,
            is_bounded,
            is_reserve,
            has_request: AtomicBool::new(false),
            is_authenticated: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
            evicted: CancellationToken::new(),
            all: Arc::clone(self),
        });
        connection.mark_evictable(&mut table);
        Ok((Arc::clone(&connection), ConnectionSlot(connection)))
    }
}

/// A connection, as seen by its requests.
#[derive(Debug)]
pub struct HttpConnection {
    id: u64,
    address: IpAddr,
    network: ClientNetwork,
    /// Whether the limit per network applies: not for loopback and trusted proxies.
    is_bounded: bool,
    is_reserve: bool,
    /// Whether the head of its first request has arrived.
    has_request: AtomicBool,
    /// Whether one of its requests was authenticated.
    is_authenticated: AtomicBool,
    /// Consecutive rejected requests.
    refusals: AtomicU32,
    evicted: CancellationToken,
    all: Arc<ConnectionLimits>,
}

impl HttpConnection {
    pub fn peer(&self) -> IpAddr {
        self.address
    }

    /// Whether the connection is reserved for health checks, so that other requests are rejected.
    pub fn is_for_health_checks(&self) -> bool {
        self.is_reserve && self.is_bounded
    }

    pub(crate) fn begin_head(&self) {
        self.has_request.store(true, Ordering::Relaxed);
    }

    /// Notes that a request is being answered. The connection cannot be evicted until it has been.
    pub fn begin_request(&self) {
        self.begin_head();
        let mut table = self.all.table();
        self.lane(&mut table).evictable.remove(&self.id);
    }

    /// Notes the answer of a request. Returns whether the connection must be closed after it.
    pub fn end_request(&self, is_refused: bool) -> bool {
        self.mark_evictable(&mut self.all.table());
        if !is_refused {
            self.refusals.store(0, Ordering::Relaxed);
        }
        self.is_reserve || is_refused && self.refusals.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_CONSECUTIVE_REFUSALS
    }

    /// Notes an authenticated request. The connection cannot be evicted any more.
    pub fn mark_authenticated(&self) {
        self.is_authenticated.store(true, Ordering::Relaxed);
    }

    fn mark_evictable(&self, table: &mut Table) {
        if !self.is_authenticated.load(Ordering::Relaxed) && !self.evicted.is_cancelled() {
            let (network, is_bounded, token) = (self.network, self.is_bounded, self.evicted.clone());
            self.lane(table).evictable.insert(self.id, Evictable { network, is_bounded, token });
        }
    }

    fn lane<'t>(&self, table: &'t mut Table) -> &'t mut Lane {
        if self.is_reserve { &mut table.reserve } else { &mut table.general }
    }

    /// Returns when the connection must end, with the reason: it was evicted, or its first request did not arrive in
    /// time after `since`.
    pub(crate) async fn wait_until_evicted(&self, since: Instant) -> &'static str {
        tokio::select! {
            () = self.evicted.cancelled() => return EVICTED,
            () = tokio::time::sleep_until(since + FIRST_REQUEST_TIMEOUT) => {}
        }
        if !self.has_request.load(Ordering::Relaxed) {
            return "no request in time";
        }
        self.evicted.cancelled().await;
        EVICTED
    }
}

const EVICTED: &str = "it was closed in favour of another one";

/// The slot of a connection, released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionSlot(Arc<HttpConnection>);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let Self(connection) = self;
        let mut table = connection.all.table();
        let lane = connection.lane(&mut table);
        lane.open -= 1;
        lane.evictable.remove(&connection.id);
        // A request may outlive its connection. The cancelled token keeps it out of the evictable connections.
        connection.evicted.cancel();
        if let Some(open) = table.by_network.get_mut(&connection.network) {
            *open -= 1;
            if *open == 0 {
                table.by_network.remove(&connection.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct OpenConnection(Arc<HttpConnection>, Option<ConnectionSlot>);

    fn admit(all: &Arc<ConnectionLimits>, peer: &str) -> Result<OpenConnection, ConnectionLimitError> {
        let peer = SocketAddr::new(peer.parse().unwrap(), 4711);
        all.admit(peer).map(|(connection, slot)| OpenConnection(connection, Some(slot)))
    }

    impl OpenConnection {
        fn has_given_way(&self) -> bool {
            self.0.evicted.is_cancelled()
        }

        fn answers(self) -> Self {
            self.0.begin_request();
            self.0.mark_authenticated();
            self.0.end_request(false);
            self
        }
    }

    fn limits(capacity: usize, per_network: usize) -> Arc<ConnectionLimits> {
        ConnectionLimits::new(capacity, per_network, TrustedProxies::new(&["10.0.0.1".to_owned()]))
    }

    #[test]
    fn silent_connections_give_way_and_authenticated_ones_do_not() {
        let all = limits(3, 3);
        let kept = admit(&all, "192.0.2.1").unwrap().answers();
        let mut silent: Vec<OpenConnection> = (0..2).map(|_| admit(&all, "192.0.2.1").unwrap()).collect();
        let other = admit(&all, "192.0.2.2").unwrap();
        assert!(silent[0].has_given_way() && !silent[1].has_given_way(), "the oldest one first");
        assert!(!other.0.is_reserve && !kept.has_given_way());
        silent.remove(0);
        // Not evictable while a request runs; evictable again after a request without authentication.
        silent[0].0.begin_request();
        other.0.begin_request();
        let probe = admit(&all, "192.0.2.3").unwrap();
        assert!(probe.0.is_for_health_checks() && !silent[0].has_given_way() && !other.has_given_way());
        assert!(!silent[0].0.end_request(true));
        let next = admit(&all, "192.0.2.4").unwrap();
        assert!(silent[0].has_given_way() && !next.0.is_reserve);
    }

    #[test]
    fn an_address_has_its_share_and_loopback_and_proxies_are_not_counted() {
        let all = limits(100, 2);
        let _two: Vec<OpenConnection> = (0..2).map(|_| admit(&all, "2001:db8::1").unwrap().answers()).collect();
        assert_eq!(admit(&all, "2001:db8::2").err(), Some(ConnectionLimitError::PerAddress), "the same network");
        assert!(admit(&all, "2001:db8:0:1::1").is_ok());
        for unbounded in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1"] {
            let open: Vec<OpenConnection> = (0..5).map(|_| admit(&all, unbounded).unwrap()).collect();
            assert!(open.iter().all(|one| !one.has_given_way()), "{unbounded}");
        }
        // A network at its limit replaces its own silent connections, not those of others.
        let other = admit(&all, "192.0.2.1").unwrap();
        let own: Vec<OpenConnection> = (0..3).map(|_| admit(&all, "192.0.2.2").unwrap()).collect();
        assert!(own[0].has_given_way() && !own[1].has_given_way() && !other.has_given_way());
    }

    #[test]
    fn when_all_connections_are_in_use_probes_and_loopback_are_still_taken() {
        let all = limits(2, 100);
        let _in_use: Vec<OpenConnection> = (0..2).map(|_| admit(&all, "192.0.2.1").unwrap().answers()).collect();
        let local = admit(&all, "127.0.0.1").unwrap();
        assert!(local.0.is_reserve && !local.0.is_for_health_checks());
        let probe = admit(&all, "192.0.2.2").unwrap();
        assert!(probe.0.is_for_health_checks());
        // The newest connection gets a slot, however many silent ones follow.
        let flood: Vec<OpenConnection> =
            (0..10 * RESERVED_CONNECTIONS).map(|_| admit(&all, "192.0.2.3").unwrap()).collect();
        assert!(probe.has_given_way() && !flood.last().unwrap().has_given_way() && !local.has_given_way());
        drop(flood);
        let probe = admit(&all, "192.0.2.2").unwrap();
        probe.0.begin_request();
        assert!(probe.0.end_request(false), "it is closed with its answer");
        let busy: Vec<OpenConnection> = std::iter::from_fn(|| admit(&all, "192.0.2.4").ok())
            .take(10 * RESERVED_CONNECTIONS)
            .inspect(|one| one.0.begin_request())
            .collect();
        assert!(busy.len() < RESERVED_CONNECTIONS);
        assert_eq!(admit(&all, "192.0.2.5").err(), Some(ConnectionLimitError::Total));
    }

    #[test]
    fn nothing_is_left_of_connections_that_have_ended() {
        let all = limits(2, 2);
        for _ in 0..10 {
            let mut open: Vec<OpenConnection> = (0..5).filter_map(|_| admit(&all, "192.0.2.1").ok()).collect();
            // A request that outlives its connection.
            let last = open.last_mut().unwrap();
            last.0.begin_request();
            drop(last.1.take());
            last.0.end_request(false);
        }
        let table = all.table();
        assert!(
            table.by_network.is_empty() && table.general.evictable.is_empty() && table.reserve.evictable.is_empty()
        );
        assert_eq!((table.general.open, table.reserve.open), (0, 0));
    }

    /// S-14: connections of this machine, and of a proxy, give way to their like.
    #[test]
    fn silent_connections_of_loopback_give_way_to_loopback_only() {
        let all = limits(2, 2);
        let silent: Vec<OpenConnection> = (0..40).map(|_| admit(&all, "127.0.0.1").unwrap()).collect();
        let given_way = |open: &[OpenConnection]| open.iter().filter(|one| one.has_given_way()).count();
        assert_eq!(given_way(&silent), 38, "the two that are open");
        let other = admit(&all, "192.0.2.1").unwrap();
        assert!(other.0.is_for_health_checks() && given_way(&silent) == 38);
    }

    #[test]
    fn a_connection_is_closed_after_some_refusals_in_a_row() {
        let all = limits(2, 2);
        let open = admit(&all, "127.0.0.1").unwrap();
        let refused = || open.0.end_request(true);
        assert!((1..MAX_CONSECUTIVE_REFUSALS).all(|_| !refused()));
        assert!(!open.0.end_request(false));
        assert!((1..MAX_CONSECUTIVE_REFUSALS).all(|_| !refused()));
        assert!(refused());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_without_a_first_request_in_time_and_goes_on_with_one() {
        let all = limits(2, 2);
        let since = Instant::now();
        let silent = admit(&all, "127.0.0.1").unwrap();
        assert_eq!(silent.0.wait_until_evicted(since).await, "no request in time");
        assert_eq!(since.elapsed(), FIRST_REQUEST_TIMEOUT);
        let talking = admit(&all, "127.0.0.1").unwrap();
        talking.0.begin_request();
        let an_hour = Duration::from_secs(60 * 60);
        assert!(tokio::time::timeout(an_hour, talking.0.wait_until_evicted(Instant::now())).await.is_err());
    }
}
