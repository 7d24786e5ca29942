//! Which requests have no terminal event yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::error::CliError;
use crate::writer::ReservedSlot;
use types::quoted;

/// The most queries in flight.
pub(crate) const MAX_IN_FLIGHT: usize = 64;

/// The requests in flight, by id.
#[derive(Clone, Default)]
pub(crate) struct InFlight {
    table: Arc<Mutex<Table>>,
    /// Told whenever a request has ended.
    ended: Arc<Notify>,
}

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
    /// Counts against [`MAX_IN_FLIGHT`], and can be cancelled.
    Query,
    /// The end of a transaction: always taken, so that one never stays open for want of room; not cancelled, since nobody
    /// would know what became of it.
    TransactionEnd,
}

impl InFlight {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request in; the token that stops it. `all` stops every one.
    pub(crate) fn accept(&self, id: &str, kind: Kind, all: &CancellationToken) -> Result<CancellationToken, CliError> {
        let mut table = self.table();
        if table.requests.contains_key(id) {
            return Err(CliError::invalid(format!("the id {} is in flight", quoted(id)))
                .hint("it can be used again after its terminal event"));
        }
        let cancel = all.child_token();
        table.total += 1;
        table.requests.insert(id.to_owned(), Entry { cancel: cancel.clone(), kind });
        Ok(cancel)
    }

    /// Whether one more query may be taken in.
    pub(crate) fn has_room(&self) -> bool {
        let queries = self.table().requests.values().filter(|entry| entry.kind == Kind::Query).count();
        queries < MAX_IN_FLIGHT
    }

    /// Comes when one more query may be taken in.
    pub(crate) async fn room(&self) {
        loop {
            // Before anybody looks: it has every end from here on.
            let ended = self.ended.notified();
            if self.has_room() {
                return;
            }
            ended.await;
        }
    }

    /// Whether it has no terminal event yet.
    pub(crate) fn is_there(&self, id: &str) -> bool {
        self.table().requests.contains_key(id)
    }

    /// Tells a request to stop.
    pub(crate) fn cancel(&self, id: &str) -> Result<(), CliError> {
        let table = self.table();
        match table.requests.get(id) {
            Some(Entry { cancel, kind: Kind::Query }) => {
                cancel.cancel();
                Ok(())
            }
            Some(_) => {
                Err(CliError::invalid(format!("{} is a commit or a rollback, which is not stopped", quoted(id))))
            }
            None => Err(CliError::invalid(format!("there is no {} in flight: it has ended, or never was", quoted(id)))),
        }
    }

    /// Lets a request go, together with its terminal event: nobody sees the one without the other.
    pub(crate) fn finish(&self, id: &str, terminal: Option<ReservedSlot<'_>>) {
        let mut table = self.table();
        table.requests.remove(id);
        if let Some(terminal) = terminal {
            terminal.send();
        }
        self.ended.notify_waiters();
    }

    /// How many there are, and how many there have been.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let table = self.table();
        (table.requests.len() as u64, table.total)
    }
}
