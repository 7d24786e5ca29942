//! The memory layer: identical calls within half a minute, on this server.
//!
//! ```text
//! caller A   enter -> First   | the protocol ............... | Done
//! caller B        enter -> Running, waits for A ............. | still stands? -> duplicate of A
//! caller C                                                          enter -> Done, still stands? -> duplicate of A
//! ```
//! This is an optimisation and never the authority: the cache only knows which record to ask. It makes no record, and
//! a call that the ledger does not confirm takes the usual path.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use types::{AccountId, CorrelationId};

/// The identity of a call. The fingerprint covers the tool and its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    pub(crate) account: AccountId,
    pub(crate) fingerprint: String,
    pub(crate) idempotency_key: Option<String>,
}

/// The calls of the last seconds. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct DedupCache {
    window: Duration,
    calls: Arc<Mutex<CallTable>>,
}

#[derive(Debug, Default)]
struct CallTable {
    known: HashMap<CallKey, KnownCall>,
    /// The finished ones, oldest first: what to forget next.
    finished: VecDeque<(Instant, CallKey, CorrelationId)>,
}

#[derive(Debug)]
enum KnownCall {
    /// Ends when its ticket is dropped.
    Running(watch::Receiver<()>),
    Done(CorrelationId),
}

/// The most finished calls that are remembered.
const MAX_FINISHED: usize = 10_000;

/// The result of a lookup.
pub(crate) enum Lookup {
    /// The call is new: the caller runs it and holds the guard meanwhile.
    First(InFlightGuard),
    /// It runs; the receiver reports an error once it has ended, whichever way.
    Running(watch::Receiver<()>),
    /// It had succeeded, as this record.
    Done(CorrelationId),
}

impl DedupCache {
    /// Remembers successes for `window`; zero switches the layer off.
    pub(crate) fn new(window: Duration) -> Self {
        Self { window, calls: Arc::default() }
    }

    /// Looks a call up. If it is new, it counts as running from now on.
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

    /// The ledger does not confirm this one.
    pub(crate) fn forget(&self, call: &CallKey, original: CorrelationId) {
        lock(&self.calls).forget(call, original);
    }

    /// Forgets everything. After a lost connection another server may answer, which may not have the newest records.
    pub(crate) fn forget_all(&self) {
        let mut calls = lock(&self.calls);
        calls.finished.clear();
        calls.known.retain(|_, known| matches!(known, KnownCall::Running(_)));
    }
}

fn lock(calls: &Mutex<CallTable>) -> MutexGuard<'_, CallTable> {
    // Every change is whole before the next one begins, so a panic elsewhere leaves nothing half done.
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

/// Held by the call that runs. Dropped without [`InFlightGuard::succeeded`], nothing of the call is remembered.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    running: Option<(DedupCache, CallKey, watch::Sender<()>)>,
}

impl InFlightGuard {
    /// The call has succeeded, or had before, as this record.
    pub(crate) fn succeeded(mut self, original: CorrelationId) {
        if let Some((memory, call, _ends)) = self.running.take() {
            let mut calls = lock(&memory.calls);
            calls.finished.push_back((Instant::now(), call.clone(), original));
            calls.known.insert(call, KnownCall::Done(original));
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if let Some((memory, call, _ends)) = self.running.take() {
            lock(&memory.calls).known.remove(&call);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(fingerprint: &str) -> CallKey {
        CallKey { account: AccountId::default(), fingerprint: fingerprint.to_owned(), idempotency_key: None }
    }

    fn memory() -> DedupCache {
        DedupCache::new(Duration::from_secs(30))
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_first_then_running_then_done_and_forgotten_after_the_window() {
        let (memory, original) = (memory(), CorrelationId::new());
        let Lookup::First(ticket) = memory.enter(&call("a")) else { panic!("first") };
        let Lookup::Running(mut ended) = memory.enter(&call("a")) else { panic!("running") };
        assert!(matches!(memory.enter(&call("b")), Lookup::First(_)), "another call is another call");
        ticket.succeeded(original);
        assert!(ended.changed().await.is_err(), "whoever waits is woken");
        tokio::time::advance(Duration::from_millis(29_999)).await;
        assert!(matches!(memory.enter(&call("a")), Lookup::Done(done) if done == original));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(matches!(memory.enter(&call("a")), Lookup::First(_)));
    }

    #[tokio::test]
    async fn a_failure_an_unconfirmed_success_and_a_lost_connection_are_forgotten() {
        let memory = memory();
        drop(memory.enter(&call("a")));
        let Lookup::First(ticket) = memory.enter(&call("a")) else { panic!("a failure is forgotten at once") };
        let (original, other) = (CorrelationId::new(), CorrelationId::new());
        ticket.succeeded(original);
        memory.forget(&call("a"), other);
        assert!(matches!(memory.enter(&call("a")), Lookup::Done(_)), "only the one that was asked about");
        memory.forget(&call("a"), original);
        let Lookup::First(ticket) = memory.enter(&call("a")) else { panic!("forgotten") };
        ticket.succeeded(original);
        let running = memory.enter(&call("b"));
        memory.forget_all();
        assert!(matches!(memory.enter(&call("b")), Lookup::Running(_)), "what runs here is known for certain");
        drop(running);
        assert!(matches!(memory.enter(&call("a")), Lookup::First(_)));
    }

    #[tokio::test]
    async fn it_is_bounded_and_can_be_switched_off() {
        let memory = memory();
        for number in 0..MAX_FINISHED + 5 {
            let Lookup::First(ticket) = memory.enter(&call(&number.to_string())) else { panic!("first") };
            ticket.succeeded(CorrelationId::new());
        }
        drop(memory.enter(&call("more")));
        assert_eq!(lock(&memory.calls).known.len(), MAX_FINISHED);
        let off = DedupCache::new(Duration::ZERO);
        let (_one, two) = (off.enter(&call("a")), off.enter(&call("a")));
        assert!(matches!(two, Lookup::First(_)));
    }
}
