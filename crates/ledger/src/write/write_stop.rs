//! Stops the writes of a server whose log contradicts a signed checkpoint, as after a restore of the database from a
//! backup.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use types::{ErrorCode, Failure};

use crate::write::failures::WriteError;

/// Whether writes are stopped. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteStop(Arc<AtomicBool>);

impl WriteStop {
    pub(crate) fn set(&self, is_stopped: bool) {
        self.0.store(is_stopped, Ordering::Relaxed);
    }

    /// Fails while writes are stopped.
    pub(crate) fn check(&self) -> Result<(), WriteError> {
        if !self.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        let message = "the log of the ledger contradicts what was signed, so nothing was written: the database was restored from a \
            backup, or its ledger was altered";
        let failure = Failure::new(ErrorCode::DbError, message)
            .hint("The operator finds the cause with `countersign doctor`, and ends this with `countersign audit fork --restored`.");
        Err(WriteError { correlation_id: None, failure: failure.into() })
    }
}
