//! Settings of the write path.

use std::time::Duration;

use pg::SearchPath;

use crate::audit::Signing;
use crate::fingerprint::Fingerprints;
use crate::reads::read_log::ReadLogDetail;

/// Settings of the write path. All servers of one ledger should have the same settings, and must have the same
/// fingerprint key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerOptions {
    /// Decides which calls are identical.
    pub fingerprints: Fingerprints,
    /// How long an identical call is answered from memory; zero disables this.
    pub duplicate_memory: Duration,
    /// Whether the commit of an attempt waits until it is on disk. Otherwise the attempt becomes durable together
    /// with its write, and a crash before that loses both.
    pub durable_admission: bool,
    /// The time limit of a call. A pending attempt that is much older, and that no backend is executing, is
    /// abandoned.
    pub call_deadline: Duration,
    /// Time after which a proposal without a decision expires.
    pub proposal_lifetime: Duration,
    /// The maximum number of concurrent writes. Further writes wait until their deadline. Writes that commit at the
    /// same time share one flush of the WAL.
    pub sessions: usize,
    /// Where statements of writes, and what their triggers call, look up names without a schema.
    pub search_path: SearchPath,
    /// Which reads are logged, and in what detail.
    pub read_log: ReadLogDetail,
    /// Who signs the checkpoints of the ledger's log.
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
            search_path: SearchPath::default(),
            read_log: ReadLogDetail::Off,
            signing: Signing::default(),
        }
    }
}
