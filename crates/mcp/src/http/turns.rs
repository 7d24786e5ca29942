//! One at a time, for each session: whoever waits for a turn waits for those of the same session only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::transport::streamable_http_server::session::SessionId;
use tokio::sync::OwnedMutexGuard;

/// Of each session that somebody has a turn of, or waits for one.
#[derive(Clone, Default)]
pub(crate) struct Turns {
    queues: Arc<Mutex<HashMap<SessionId, Queue>>>,
}

#[derive(Default)]
struct Queue {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Who has the turn, and who waits for it.
    members: usize,
}

/// The others wait until it is dropped. Its fields are dropped in this order.
pub(crate) struct Turn {
    _mine: OwnedMutexGuard<()>,
    _place: Place,
}

/// In a queue, which goes with the last one.
struct Place {
    id: SessionId,
    turns: Turns,
}

impl Turns {
    /// Waits for a turn of this session.
    pub(crate) async fn wait(&self, id: &str) -> Turn {
        let (place, turn) = self.join(id.into());
        Turn { _mine: turn.lock_owned().await, _place: place }
    }

    fn join(&self, id: SessionId) -> (Place, Arc<tokio::sync::Mutex<()>>) {
        let mut queues = self.queues();
        let queue = queues.entry(id.clone()).or_default();
        queue.members += 1;
        let turn = Arc::clone(&queue.turn);
        (Place { id, turns: self.clone() }, turn)
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<SessionId, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queues = self.turns.queues();
        if let Some(queue) = queues.get_mut(&self.id) {
            queue.members -= 1;
            if queue.members == 0 {
                queues.remove(&self.id);
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
        let turns = Turns::default();
        let first = turns.wait("a").await;
        let mut next = Box::pin(turns.wait("a"));
        let mut gives_up = Box::pin(turns.wait("a"));
        assert!(next.as_mut().now_or_never().is_none(), "two at once");
        assert!(gives_up.as_mut().now_or_never().is_none(), "three at once");
        let other = turns.wait("b").now_or_never();
        assert!(other.is_some(), "another session waits");
        drop(other);
        drop(first);
        let second = next.now_or_never();
        assert!(second.is_some(), "the turn was not handed on");
        drop(second);
        // One who goes away although it is its turn.
        drop(gives_up);
        assert!(turns.queues().is_empty(), "queues stay");
    }
}
