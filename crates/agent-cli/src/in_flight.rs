//! Requests that have no terminal event yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::error::CliError;
use crate::writer::ReservedSlot;
use types::quoted;

pub(crate) const MAX_IN_FLIGHT: usize = 64;

#[derive(Clone, Default)]
pub(crate) struct InFlight {
    table: Arc<Mutex<Table>>,
    /// Notified whenever a request ends.
    ended: Arc<Notify>,
}

#[derive(Default)]
struct Table {
    /// The token that cancels a request, and its kind, by id.
    requests: HashMap<String, (CancellationToken, Kind)>,
    total: u64,
}

/// The kind of a request: whether it is limited, and whether it can be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A query: limited by [`MAX_IN_FLIGHT`], and can be cancelled.
    Query,
    /// A commit or rollback: always accepted, so that the limit never keeps a transaction open. It cannot be cancelled,
    /// since its outcome would be unknown.
    TransactionEnd,
}

impl InFlight {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request and returns the token that cancels it; `all` cancels every request.
    pub(crate) fn accept(&self, id: &str, kind: Kind, all: &CancellationToken) -> Result<CancellationToken, CliError> {
        let mut table = self.table();
        if table.requests.contains_key(id) {
            return Err(CliError::invalid(format!("the id {} is in flight", quoted(id)))
                .hint("it can be used again after its terminal event"));
        }
        let cancel = all.child_token();
        table.total += 1;
        table.requests.insert(id.to_owned(), (cancel.clone(), kind));
        Ok(cancel)
    }

    pub(crate) fn has_room(&self) -> bool {
        let queries = self.table().requests.values().filter(|(_, kind)| *kind == Kind::Query).count();
        queries < MAX_IN_FLIGHT
    }

    /// Waits until another query can be accepted.
    pub(crate) async fn room(&self) {
        loop {
            // Registered before the check, so that no later end is missed.
            let ended = self.ended.notified();
            if self.has_room() {
                return;
            }
            ended.await;
        }
    }

    /// Returns whether the request has no terminal event yet.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.table().requests.contains_key(id)
    }

    pub(crate) fn cancel(&self, id: &str) -> Result<(), CliError> {
        let table = self.table();
        match table.requests.get(id) {
            Some((cancel, Kind::Query)) => {
                cancel.cancel();
                Ok(())
            }
            Some(_) => {
                Err(CliError::invalid(format!("{} is a commit or a rollback, which is not stopped", quoted(id))))
            }
            None => Err(CliError::invalid(format!("there is no {} in flight: it has ended, or never was", quoted(id)))),
        }
    }

    /// Removes a request and sends its terminal event in one step.
    pub(crate) fn finish(&self, id: &str, terminal: Option<ReservedSlot<'_>>) {
        let mut table = self.table();
        table.requests.remove(id);
        if let Some(terminal) = terminal {
            terminal.send();
        }
        self.ended.notify_waiters();
    }

    /// Returns the number of requests in flight, and of all requests so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let table = self.table();
        (table.requests.len() as u64, table.total)
    }
}
