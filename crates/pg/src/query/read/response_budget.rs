//! Limits the number of answers in memory.
//!
//! An answer takes memory until its client has received it. A client that sends requests and does not read answers
//! would fill the memory of the server. So the number of answers is bounded, and the next read waits for a permit
//! before it leases a session, within its deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::ResultSet;
use crate::client::error::Error;

/// Answers up to this length in bytes keep no permit: even a thousand of them take little memory.
const SMALL_BYTES: usize = 16 << 10;

/// The number of answers that may wait for their clients, in addition to one per session.
const WAITING: usize = 4;

/// The permit of one answer.
#[derive(Debug)]
pub struct ResponsePermit {
    _place: OwnedSemaphorePermit,
}

#[derive(Debug, Clone)]
pub(super) struct ResponseBudget {
    places: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

/// Counts one waiting read until it is dropped.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ResponseBudget {
    /// One permit for each session that reads, and some for answers that wait for their clients.
    pub(super) fn new(sessions: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(sessions + WAITING)), waiting: Arc::default() }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits for a permit, until `deadline`.
    pub(super) async fn one(&self, deadline: Instant) -> Result<ResponsePermit, Error> {
        let _waits = Waits::new(&self.waiting);
        let place = tokio::time::timeout_at(deadline, Arc::clone(&self.places).acquire_owned()).await;
        match place {
            Ok(Ok(place)) => Ok(ResponsePermit { _place: place }),
            // The semaphore is never closed.
            _ => Err(Error::Deadline),
        }
    }
}

impl ResultSet {
    /// Attaches the permit, which the answer holds while it is in memory.
    pub(super) fn with_permit(mut self, permit: ResponsePermit) -> Self {
        self.permit = (self.rows.bytes() > SMALL_BYTES).then_some(permit);
        self
    }
}
