//! Sealing appends final records and events to the log, as its leaves.

use tokio::time::Instant;

use super::{Audit, number, one_row};

/// The maximum number of leaves in one call. It takes about a second, so that other servers that wait to seal do not
/// wait long.
const BATCH: i64 = 5000;
/// The maximum number of leaves in one call while this server writes. It takes some hundredths of a second.
const SMALL_BATCH: i64 = 250;
const SEAL_SQL: &str = "select countersign.seal($1::integer)::text";
/// A range with two ends, as in `gauges.sql`.
const UNSEALED_SQL: &str = "select count(*)::text from countersign.record r \
    where r.id > (select coalesce(max(l.record_id), 0) from countersign.leaf l) \
      and r.id <= (select max(n.id) from countersign.record n)";

/// The pause after a small batch, as a multiple of the duration of the batch. It is long, so that sealing does not
/// slow down writes, and becomes shorter when sealing falls behind.
#[derive(Debug)]
pub(crate) struct SealingPause(u32);

impl SealingPause {
    const LONGEST: u32 = 15;
    const SHORTEST: u32 = 3;

    /// Adapts the pause after a turn; `is_done` means that everything was sealed.
    fn adapt(&mut self, is_done: bool) {
        self.0 = if is_done { Self::LONGEST } else { (self.0 / 2).max(Self::SHORTEST) };
    }
}

impl Default for SealingPause {
    fn default() -> Self {
        Self(Self::LONGEST)
    }
}

impl Audit {
    /// Seals every final record and every event, and returns their number. A record is not sealed while a transaction
    /// may still commit an older one. Several processes may seal at the same time.
    ///
    /// # Errors
    /// The query failed, for example with SQLSTATE 55000 in a copied database. What was sealed before stays sealed.
    pub async fn seal(&self) -> Result<i64, pg::Error> {
        let mut total = 0;
        loop {
            let sealed = self.seal_batch(BATCH).await?;
            total += sealed;
            if sealed < BATCH {
                return Ok(total);
            }
        }
    }

    /// The number of final records that are not sealed.
    pub async fn unsealed(&self) -> Result<i64, pg::Error> {
        let [count] = one_row(self.ask(UNSEALED_SQL, &[]).await?)?;
        number(count.as_ref())
    }

    /// Like [`Audit::seal`], but stops at `until`, and pauses while this server writes.
    pub(crate) async fn seal_beside_writes(&self, pause: &mut SealingPause, until: Instant) -> Result<(), pg::Error> {
        loop {
            let started = Instant::now();
            let is_done = self.seal_batch(SMALL_BATCH).await? < SMALL_BATCH;
            if is_done || Instant::now() >= until {
                pause.adapt(is_done);
                return Ok(());
            }
            if self.writer.status().in_use > 0 {
                tokio::time::sleep(started.elapsed() * pause.0).await;
            }
        }
    }

    async fn seal_batch(&self, most: i64) -> Result<i64, pg::Error> {
        let rows = self.ask(SEAL_SQL, &[Some(most.to_string())]).await?;
        let [sealed] = one_row(rows)?;
        number(sealed.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealing_that_falls_behind_pauses_less_and_one_that_is_done_pauses_longest() {
        // P-2
        let mut pause = SealingPause::default();
        let pauses: Vec<u32> = [false, false, false, true, false]
            .map(|is_done| {
                pause.adapt(is_done);
                pause.0
            })
            .into();
        assert_eq!(pauses, [7, 3, 3, 15, 7]);
    }
}
