//! One at a time, for each session: whoever waits for a turn waits for those of the same session only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::transport::streamable_http_server::session::SessionId;
use tokio::sync::OwnedMutexGuard;

/// Of each session that somebody has a turn of, or waits for one.
#[derive(Clone, Default)]
pub(crate) struct KeyedMutex {
    entries: Arc<Mutex<HashMap<SessionId, Entry>>>,
}

#[derive(Default)]
struct Entry {
    mutex: Arc<tokio::sync::Mutex<()>>,
    /// Who has the turn, and who waits for it.
    users: usize,
}

/// The others wait until it is dropped. Its fields are dropped in this order.
pub(crate) struct KeyedGuard {
    _guard: OwnedMutexGuard<()>,
    _place: EntryRef,
}

/// In a queue, which goes with the last one.
struct EntryRef {
    id: SessionId,
    mutex: KeyedMutex,
}

impl KeyedMutex {
    /// Waits for a turn of this session.
    pub(crate) async fn lock(&self, id: &str) -> KeyedGuard {
        let (entry_ref, mutex) = self.enter(id.into());
        KeyedGuard { _guard: mutex.lock_owned().await, _place: entry_ref }
    }

    fn enter(&self, id: SessionId) -> (EntryRef, Arc<tokio::sync::Mutex<()>>) {
        let mut entries = self.entries();
        let entry = entries.entry(id.clone()).or_default();
        entry.users += 1;
        let mutex = Arc::clone(&entry.mutex);
        (EntryRef { id, mutex: self.clone() }, mutex)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<SessionId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for EntryRef {
    fn drop(&mut self) {
        let mut entries = self.mutex.entries();
        if let Some(entry) = entries.get_mut(&self.id) {
            entry.users -= 1;
            if entry.users == 0 {
                entries.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_turn_keeps_out_its_own_session_only_and_nothing_is_left_of_it() {
        let mutex = KeyedMutex::default();
        let first = mutex.lock("a").await;
        let mut next = Box::pin(mutex.lock("a"));
        let mut gives_up = Box::pin(mutex.lock("a"));
        assert!(next.as_mut().now_or_never().is_none(), "two at once");
        assert!(gives_up.as_mut().now_or_never().is_none(), "three at once");
        let other = mutex.lock("b").now_or_never();
        assert!(other.is_some(), "another session waits");
        drop(other);
        drop(first);
        let second = next.now_or_never();
        assert!(second.is_some(), "the turn was not handed on");
        drop(second);
        // One who goes away although it is its turn.
        drop(gives_up);
        assert!(mutex.entries().is_empty(), "queues stay");
    }
}
