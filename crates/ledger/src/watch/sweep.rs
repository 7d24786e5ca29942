//! Ends the records that a killed server left pending, seals final records, and signs the log.
//!
//! ```text
//! server 1   admit ............ claim | killed
//! server 2                                      sweep: the row is not locked, so nobody carries it out: failure
//! ```
//! An attempt is old enough when it is older than any call may take, so that one that is about to be claimed, or a write that was
//! reported, is not ended.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use types::CorrelationId;

use crate::audit::{Audit, SealingPause, SignError, Signed, Uncosigned};
use crate::{Ledger, outage};

/// The age of a record beyond the deadline of its call: the grace of its statements and the time for its resolution.
pub(crate) const BEYOND_DEADLINE: Duration = Duration::from_secs(30);
const EVERY: Duration = Duration::from_secs(60);
/// How long one turn seals. What is left then comes with the next one, after a checkpoint of what was sealed.
const SEAL_FOR: Duration = Duration::from_secs(45);
const DEADLINE: Duration = Duration::from_secs(30);
/// The number of records in one sweep; the next sweep continues.
const MOST: u32 = 1000;

const KEY_SQL: &str = "select countersign.note_fingerprint_key($1)";
const SWEEP_SQL: &str = "select countersign.sweep(make_interval(secs => $1::double precision), $2::integer)::text";

impl Ledger {
    /// Ends what was abandoned; the records that it ended. Several servers may sweep at once.
    ///
    /// # Errors
    /// Whatever the database says; the next sweep will find them.
    pub async fn sweep(&self) -> Result<Vec<CorrelationId>, pg::Error> {
        let deadline = Instant::now() + DEADLINE;
        let params =
            [Some((self.settings.call_deadline + BEYOND_DEADLINE).as_secs().to_string()), Some(MOST.to_string())];
        let ended = self.writer.run_one(SWEEP_SQL, &params, deadline).await?.rows.into_iter().flatten().flatten();
        Ok(ended.filter_map(|id| CorrelationId::parse(&id)).collect())
    }

    /// Seals what is final, and signs a checkpoint of it if a key of the log is here. Writes stop while the log contradicts
    /// what was signed.
    async fn seal_and_sign(&self, pause: &mut SealingPause) {
        let audit = self.audit();
        match audit.seal_beside_writes(pause, Instant::now() + SEAL_FOR).await {
            Err(error) => outage::warn(&error, "final records will be sealed later"),
            Ok(()) => {
                let signed = audit.sign(&self.settings.signing).await;
                self.stop_writes(&signed);
                match signed {
                    Ok(Signed::Note(_)) => self.cosign(&audit).await,
                    Ok(Signed::NoKey { .. }) => {}
                    Err(SignError::Database(error)) => outage::warn(&error, "the log will be signed later"),
                    Err(error) => tracing::error!(%error, "the log is not signed"),
                }
            }
        }
    }

    fn stop_writes(&self, signed: &Result<Signed, SignError>) {
        match signed {
            Ok(_) => self.gate.stop.set(false),
            Err(error) if error.is_contradiction() => self.gate.stop.set(true),
            // It says nothing about the log.
            Err(_) => {}
        }
    }

    /// Asks the witnesses that have not cosigned the newest checkpoint.
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

    /// Sweeps and seals now and then every minute, for as long as the future is polled.
    pub async fn run_sweeper(self) {
        let mut ticks = tokio::time::interval(EVERY);
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
            self.seal_and_sign(&mut pause).await;
            // `doctor` compares the keys of all servers.
            let key_id = [Some(self.settings.fingerprints.key_id())];
            if let Err(error) = self.writer.run_one(KEY_SQL, &key_id, Instant::now() + DEADLINE).await {
                tracing::debug!(%error, "the id of the fingerprint key was not recorded");
            }
        }
    }
}
