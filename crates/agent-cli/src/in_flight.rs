//! Which requests have no terminal event yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::problem::Problem;
use crate::writer::Placed;
use contract::quoted;

/// The most queries in flight.
pub(crate) const MAX_IN_FLIGHT: usize = 64;

/// The requests in flight, by id.
#[derive(Clone, Default)]
pub(crate) struct InFlight(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    requests: HashMap<String, Entry>,
    total: u64,
}

struct Entry {
    cancel: CancellationToken,
    kind: Kind,
}

/// What a request may be treated as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Counts, and can be cancelled.
    Query,
    /// The end of a transaction: always taken, so that one never stays open for want of room; not cancelled, since nobody
    /// would know what became of it.
    End,
}

impl InFlight {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request in; the token that stops it. `all` stops every one.
    pub(crate) fn accept(&self, id: &str, kind: Kind, all: &CancellationToken) -> Result<CancellationToken, Problem> {
        let mut table = self.table();
        if table.requests.contains_key(id) {
            return Err(Problem::invalid(format!("the id {} is in flight", quoted(id)))
                .hint("it can be used again after its terminal event"));
        }
        let queries = table.requests.values().filter(|entry| entry.kind == Kind::Query).count();
        if kind == Kind::Query && queries >= MAX_IN_FLIGHT {
            return Err(Problem::invalid(format!("{MAX_IN_FLIGHT} queries are in flight"))
                .hint("wait for a terminal event, then send it again")
                .retryable(true));
        }
        let cancel = all.child_token();
        table.total += 1;
        table.requests.insert(id.to_owned(), Entry { cancel: cancel.clone(), kind });
        Ok(cancel)
    }

    /// Whether it has no terminal event yet.
    pub(crate) fn is_there(&self, id: &str) -> bool {
        self.table().requests.contains_key(id)
    }

    /// Tells a request to stop.
    pub(crate) fn cancel(&self, id: &str) -> Result<(), Problem> {
        let table = self.table();
        match table.requests.get(id) {
            Some(Entry { cancel, kind: Kind::Query }) => {
                cancel.cancel();
                Ok(())
            }
            Some(_) => Err(Problem::invalid(format!("{} is a commit or a rollback, which is not stopped", quoted(id)))),
            None => Err(Problem::invalid(format!("there is no {} in flight: it has ended, or never was", quoted(id)))),
        }
    }

    /// Lets a request go, together with its terminal event: nobody sees the one without the other.
    pub(crate) fn finish(&self, id: &str, terminal: Option<Placed<'_>>) {
        let mut table = self.table();
        table.requests.remove(id);
        if let Some(terminal) = terminal {
            terminal.send();
        }
    }

    /// How many there are, and how many there have been.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let table = self.table();
        (table.requests.len() as u64, table.total)
    }
}
