//! What an operator decides about the write path.

use std::time::Duration;

use crate::fingerprint::Fingerprints;

/// How writes are carried out. All servers of one ledger should agree, and must agree on the fingerprints' key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerOptions {
    /// Which calls are the same call.
    pub fingerprints: Fingerprints,
    /// For how long an identical call is answered from memory; zero switches that off.
    pub duplicate_memory: Duration,
    /// Whether the commit of an intent waits for the disk by itself. Without, it becomes durable with its write, and a
    /// crash in between takes both.
    pub durable_admission: bool,
    /// How long a call may take: a record that is much older, and that nobody works on, was abandoned.
    pub call_deadline: Duration,
    /// How long a proposal waits for somebody to agree.
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
