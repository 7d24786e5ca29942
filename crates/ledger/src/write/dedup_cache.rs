//! An in-memory cache of the identical calls of the last half minute on this server.
//!
//! ```text
//! caller A   enter -> First   | the protocol ............... | Done
//! caller B        enter -> Running, waits for A ............. | still stands? -> duplicate of A
//! caller C                                                          enter -> Done, still stands? -> duplicate of A
//! ```
//! The cache is an optimization and never the authority: it only knows which record to check. A call that is answered
//! from it has no record. A call that the ledger does not confirm takes the usual path.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use types::{AccountId, CorrelationId};

use crate::fingerprint::Fingerprint;

/// The identity of a call. The fingerprint covers the tool and its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    pub(crate) account: AccountId,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) idempotency_key: Option<String>,
}

/// The recent calls. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct DedupCache {
    window: Duration,
    calls: Arc<Mutex<CallTable>>,
}

#[derive(Debug, Default)]
struct CallTable {
    known: HashMap<CallKey, KnownCall>,
    /// The finished calls, oldest first, in the order in which they expire.
    finished: VecDeque<(Instant, CallKey, CorrelationId)>,
}

#[derive(Debug)]
enum KnownCall {
    /// The channel closes when the guard of the running call is dropped.
    Running(watch::Receiver<()>),
    Done(CorrelationId),
}

/// The maximum number of finished calls in the cache.
const MAX_FINISHED: usize = 10_000;

pub(crate) enum Lookup {
    /// The call is new. The caller runs it, and holds the guard until it ends.
    First(InFlightGuard),
    /// An identical call is running. The receiver returns an error as soon as that call has ended, with success or
    /// not.
    Running(watch::Receiver<()>),
    /// An identical call succeeded, with this record.
    Done(CorrelationId),
}

impl DedupCache {
    /// Caches successes for `window`; zero disables the cache.
    pub(crate) fn new(window: Duration) -> Self {
        Self { window, calls: Arc::default() }
    }

    /// Looks a call up. A new call is marked as running.
    pub(crate) fn enter(&self, call: &CallKey) -> Lookup {
        if self.window.is_zero() {
            return Lookup::First(InFlightGuard { running: None });
        }
        let mut calls = lock(&self.calls);
        calls.forget_older_than(self.window);
        match calls.known.get(call) {
            Some(KnownCall::Running(ended)) => Lookup::Running(ended.clone()),
            Some(KnownCall::Done(original)) => Lookup::Done(*original),
            None => {
                let (ends, ended) = watch::channel(());
                calls.known.insert(call.clone(), KnownCall::Running(ended));
                Lookup::First(InFlightGuard { running: Some((self.clone(), call.clone(), ends)) })
            }
        }
    }

    /// Removes a call that the ledger does not confirm.
    pub(crate) fn forget(&self, call: &CallKey, original: CorrelationId) {
        lock(&self.calls).forget(call, original);
    }

    /// Clears the cache. After a lost connection the next server may lack the newest records.
    pub(crate) fn forget_all(&self) {
        let mut calls = lock(&self.calls);
        calls.finished.clear();
        calls.known.retain(|_, known| matches!(known, KnownCall::Running(_)));
    }
}

fn lock(calls: &Mutex<CallTable>) -> MutexGuard<'_, CallTable> {
    // Each change is complete before the lock is released, so the data are consistent even after a panic.
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CallTable {
    fn forget_older_than(&mut self, window: Duration) {
        while let Some((since, call, original)) = self.finished.front() {
            if since.elapsed() < window && self.finished.len() <= MAX_FINISHED {
                break;
            }
            let (call, original) = (call.clone(), *original);
            self.finished.pop_front();
            self.forget(&call, original);
        }
    }

    fn forget(&mut self, call: &CallKey, original: CorrelationId) {
        if matches!(self.known.get(call), Some(KnownCall::Done(known)) if *known == original) {
            self.known.remove(call);
        }
    }
}

/// Held by the running call. If it is dropped without [`InFlightGuard::succeeded`], the cache forgets the call.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    running: Option<(DedupCache, CallKey, watch::Sender<()>)>,
}

impl InFlightGuard {
    /// Notes that the call has succeeded with this record, or is a duplicate of it.
    pub(crate) fn succeeded(mut self, original: CorrelationId) {
        if let Some((cache, call, _ends)) = self.running.take() {
            let mut calls = lock(&cache.calls);
            calls.finished.push_back((Instant::now(), call.clone(), original));
            calls.known.insert(call, KnownCall::Done(original));
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if let Some((cache, call, _ends)) = self.running.take() {
            lock(&cache.calls).known.remove(&call);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::CallerContext;

    use crate::fingerprint::Fingerprints;

    fn call(fingerprint: &str) -> CallKey {
        let fingerprint = Fingerprints::default().of(fingerprint, &serde_json::Map::new(), &CallerContext::default());
        CallKey { account: AccountId::default(), fingerprint, idempotency_key: None }
    }

    fn cache() -> DedupCache {
        DedupCache::new(Duration::from_secs(30))
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_first_then_running_then_done_and_forgotten_after_the_window() {
        let (cache, original) = (cache(), CorrelationId::new());
        let Lookup::First(guard) = cache.enter(&call("a")) else { panic!("first") };
        let Lookup::Running(mut ended) = cache.enter(&call("a")) else { panic!("running") };
        assert!(matches!(cache.enter(&call("b")), Lookup::First(_)), "another call is another call");
        guard.succeeded(original);
        assert!(ended.changed().await.is_err(), "whoever waits is woken");
        tokio::time::advance(Duration::from_millis(29_999)).await;
        assert!(matches!(cache.enter(&call("a")), Lookup::Done(done) if done == original));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(matches!(cache.enter(&call("a")), Lookup::First(_)));
    }

    #[tokio::test]
    async fn a_failure_an_unconfirmed_success_and_a_lost_connection_are_forgotten() {
        let cache = cache();
        drop(cache.enter(&call("a")));
        let Lookup::First(guard) = cache.enter(&call("a")) else { panic!("a failure is forgotten at once") };
        let (original, other) = (CorrelationId::new(), CorrelationId::new());
        guard.succeeded(original);
        cache.forget(&call("a"), other);
        assert!(matches!(cache.enter(&call("a")), Lookup::Done(_)), "only the one that was asked about");
        cache.forget(&call("a"), original);
        let Lookup::First(guard) = cache.enter(&call("a")) else { panic!("forgotten") };
        guard.succeeded(original);
        let running = cache.enter(&call("b"));
        cache.forget_all();
        assert!(matches!(cache.enter(&call("b")), Lookup::Running(_)), "what runs here is known for certain");
        drop(running);
        assert!(matches!(cache.enter(&call("a")), Lookup::First(_)));
    }

    #[tokio::test]
    async fn it_is_bounded_and_can_be_switched_off() {
        let cache = cache();
        for number in 0..MAX_FINISHED + 5 {
            let Lookup::First(guard) = cache.enter(&call(&number.to_string())) else { panic!("first") };
            guard.succeeded(CorrelationId::new());
        }
        drop(cache.enter(&call("more")));
        assert_eq!(lock(&cache.calls).known.len(), MAX_FINISHED);
        let off = DedupCache::new(Duration::ZERO);
        let (_one, two) = (off.enter(&call("a")), off.enter(&call("a")));
        assert!(matches!(two, Lookup::First(_)));
    }
}
