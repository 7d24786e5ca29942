//! The operator's options for the write path.

use std::time::Duration;

use crate::fingerprint::Fingerprints;

/// Options of the write path. All servers of one ledger should agree, and must agree on the key of fingerprints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerOptions {
    /// Which calls are the same call.
    pub fingerprints: Fingerprints,
    /// For how long an identical call is answered from memory; zero disables it.
    pub duplicate_memory: Duration,
    /// Whether the commit of an intent waits for the disk by itself. Without, it becomes durable with its write, and a
    /// crash in between takes both.
    pub durable_admission: bool,
    /// The time limit of a call. A much older record without a running attempt counts as abandoned.
    pub call_deadline: Duration,
    /// How long a proposal waits for an approval.
    pub proposal_lifetime: Duration,
    /// The most writes at once; more wait, within their deadlines. Writes that commit together share a wait for the disk.
    pub sessions: usize,
}

impl Default for LedgerOptions {
    fn default() -> Self {
        Self {
            fingerprints: Fingerprints::default(),
            duplicate_memory: Duration::from_secs(30),
            durable_admission: false,
            call_deadline: Duration::from_secs(30),
            proposal_lifetime: Duration::from_secs(30 * 60),
            sessions: 16,
        }
    }
}
