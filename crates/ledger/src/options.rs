//! Settings of the write path.

use std::time::Duration;

use crate::audit::Signing;
use crate::fingerprint::Fingerprints;
use crate::reads::read_log::ReadLogDetail;

/// Settings of the write path. All servers of one ledger should have the same ones; the key of the fingerprints must be the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerOptions {
    /// Decides which calls are the same call.
    pub fingerprints: Fingerprints,
    /// Time in which an identical call is answered from memory; zero turns this off.
    pub duplicate_memory: Duration,
    /// Whether the commit of an intent waits for the disk. Otherwise it becomes durable with its write, and a crash
    /// before that loses both.
    pub durable_admission: bool,
    /// Time limit of a call. A pending record that is much older, and that no backend works on, was abandoned.
    pub call_deadline: Duration,
    /// Time after which a proposal without a decision expires.
    pub proposal_lifetime: Duration,
    /// Maximum number of concurrent writes. Others wait, within their deadlines. Writes that commit together share a
    /// wait for the disk.
    pub sessions: usize,
    /// The extent of the log of reads.
    pub read_log: ReadLogDetail,
    /// What signs the checkpoints of the ledger's log.
    pub signing: Signing,
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
            read_log: ReadLogDetail::Off,
            signing: Signing::default(),
        }
    }
}
