//! Ends attempts that a killed server left pending, seals final records, and signs the log.
//!
//! ```text
//! server 1   admit ............ claim | killed
//! server 2                                      sweep: the row is not locked, so no server executes it: failure
//! ```
//! The sweep only ends attempts that are older than any call may take. So it does not end an attempt that is about to
//! be claimed, or a reported write that is still running.

use std::time::Duration;

use pg::outage;
use tokio::time::{Instant, MissedTickBehavior};
use types::CorrelationId;

use crate::Ledger;
use crate::audit::{Audit, Contradiction, SealingPause, SignError, Signed, Uncosigned};
use crate::write::obstacle::LedgerObstacle;

/// The age beyond the deadline of its call at which an attempt counts as abandoned. It includes the grace period of
/// its statements and the time to resolve it.
pub(crate) const BEYOND_DEADLINE: Duration = Duration::from_secs(30);
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum duration of sealing in one turn. What remains is sealed in the next turn, after a checkpoint of what
/// was sealed.
const SEAL_FOR: Duration = Duration::from_secs(45);
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of attempts that one sweep ends. The next sweep continues.
const MAX_ENDED: u32 = 1000;

const KEY_SQL: &str = "select countersign.note_fingerprint_key($1)";
const SWEEP_SQL: &str = "select countersign.sweep(make_interval(secs => $1::double precision), $2::integer)::text";

impl Ledger {
    /// Ends abandoned attempts, and returns their ids. Several servers may sweep at the same time.
    ///
    /// # Errors
    /// The query failed. The next sweep will end the attempts.
    pub async fn sweep(&self) -> Result<Vec<CorrelationId>, pg::Error> {
        let deadline = Instant::now() + TIMEOUT;
        let params =
            [Some((self.settings.call_deadline + BEYOND_DEADLINE).as_secs().to_string()), Some(MAX_ENDED.to_string())];
        let ended = self.writer.run_one(SWEEP_SQL, &params, deadline).await?.rows.into_iter().flatten().flatten();
        Ok(ended.filter_map(|id| CorrelationId::parse(&id)).collect())
    }

    /// Stops writes while there is an obstacle, and resumes them when it is gone. Returns whether they go on.
    async fn stop_or_resume(&self) -> bool {
        match self.compare_history().await {
            Ok(obstacle) => {
                let goes_on = obstacle.is_none();
                self.gate.stop.set(obstacle);
                goes_on
            }
            Err(error) => {
                outage::warn(&error, "the log will be sealed later");
                false
            }
        }
    }

    /// Seals final records, and signs a checkpoint if a key of the log is available here.
    async fn seal_and_sign(&self, pause: &mut SealingPause) {
        let audit = self.audit();
        match audit.seal_beside_writes(pause, Instant::now() + SEAL_FOR).await {
            Err(error) => outage::warn(&error, "final records will be sealed later"),
            Ok(()) => match audit.sign(&self.settings.signing).await {
                Ok(Signed::Note(_)) => {
                    // From now on this server knows what was signed.
                    self.stop_or_resume().await;
                    self.cosign(&audit).await;
                }
                Ok(Signed::NoKey { .. }) => {}
                Err(SignError::Database(error)) => outage::warn(&error, "the log will be signed later"),
                Err(SignError::Contradiction(contradiction)) => self.stop_writes(contradiction).await,
                Err(error) => tracing::error!(%error, "the log is not signed"),
            },
        }
    }

    /// Stops the writes of this server, and of the others by the ledger.
    async fn stop_writes(&self, contradiction: Contradiction) {
        let signed = contradiction.signed();
        self.gate.stop.set(Some(LedgerObstacle::Contradicted { database: self.database(), contradiction }));
        if let Err(error) = self.gate.obstacle(Some(signed)).await {
            outage::warn(&error, "the other servers are not told that writes are stopped");
        }
    }

    /// Requests the missing cosignatures of the newest checkpoint.
    async fn cosign(&self, audit: &Audit) {
        match audit.cosign(&self.settings.signing).await {
            Ok((_, uncosigned)) => {
                for Uncosigned { witness, error } in uncosigned {
                    tracing::warn!(witness = witness.key.name(), url = witness.url.as_str(), %error, "a checkpoint is not cosigned");
                }
            }
            Err(error) => outage::warn(&error, "the witnesses will be asked later"),
        }
    }

    /// Sweeps and seals immediately, then every minute, as long as the future is polled.
    pub async fn run_sweeper(self) {
        let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pause = SealingPause::default();
        loop {
            ticks.tick().await;
            match self.sweep().await {
                Ok(ended) => {
                    for correlation_id in ended {
                        tracing::warn!(%correlation_id, "an abandoned write was ended: nothing of it was written");
                    }
                }
                Err(error) => outage::warn(&error, "the sweep will be tried again"),
            }
            if self.stop_or_resume().await {
                self.seal_and_sign(&mut pause).await;
            }
            // Reports the fingerprint key of this server; `doctor` compares the keys of all servers.
            let key_id = [Some(self.settings.fingerprints.key_id())];
            if let Err(error) = self.writer.run_one(KEY_SQL, &key_id, Instant::now() + TIMEOUT).await {
                tracing::debug!(%error, "the id of the fingerprint key was not recorded");
            }
        }
    }
}
