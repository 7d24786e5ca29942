//! Pruning removes old records. The log gets an event that says which records were removed, when and by whom.

use types::Age;

use super::{Audit, number, one_row};

/// The numbers of old records, by what keeps them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrunePlan {
    /// Records that are sealed and no longer answer identical calls, so they can be removed.
    pub prunable: i64,
    /// Records that still answer identical calls, or reserve an idempotency key.
    pub needed: i64,
    /// Writes that are still running.
    pub pending: i64,
    /// Records that are not sealed yet.
    pub unsealed: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pruned {
    pub removed: i64,
    /// The number of removed decisions in the policy log.
    pub removed_decisions: i64,
    /// The cutoff: all removed records were made before this time (RFC 3339).
    pub made_before: String,
    /// The old records that remain.
    pub left: PrunePlan,
}

/// The maximum number of records that one transaction removes.
const BATCH: u32 = 1000;

const CUTOFF_SQL: &str = "select to_char((clock_timestamp() - make_interval(secs => $1::double precision)) at time zone 'UTC', \
     'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
const PRUNE_SQL: &str = "select scanned_up_to::text, removed_records::text \
     from countersign.prune_records($1::timestamptz, $2::text, $3::bigint, $4::integer)";
const PRUNE_POLICY_LOG_SQL: &str = "select countersign.prune_policy_log($1::timestamptz, $2::text)::text";
const SURVEY_SQL: &str = "\
    select count(*)::text, \
        (select count(*) from countersign.record r where r.completed_at < $1::timestamptz \
           and r.id <= (select countersign.sealed_up_to()) and r.holds_until >= clock_timestamp())::text, \
        (select count(*) from countersign.mutation a where a.admitted_at < $1::timestamptz and a.status = 'pending')::text, \
        (select count(*) from countersign.record r where r.completed_at < $1::timestamptz \
           and r.id > (select countersign.sealed_up_to()))::text \
    from countersign.prunable_records($1::timestamptz, 0, 2147483647) p";

impl Audit {
    /// The records that [`Audit::prune`] would remove, and the time before which a record counts as old. This removes
    /// nothing.
    pub async fn survey(&self, older_than: Age) -> Result<(PrunePlan, String), pg::Error> {
        let made_before = self.cutoff(older_than).await?;
        Ok((self.survey_before(&made_before).await?, made_before))
    }

    /// Removes records that are older than `older_than`, are sealed, and are no longer needed to answer calls, with
    /// their effects and reversals. It works in batches; each batch is a transaction with its own event in the log,
    /// which names `who`. Then it removes old decisions of the policy log. Seal before pruning, since unsealed
    /// records stay.
    ///
    /// # Errors
    /// The query failed, for example because the age is less than a day. Earlier batches stay removed.
    pub async fn prune(&self, older_than: Age, who: &str) -> Result<Pruned, pg::Error> {
        let made_before = self.cutoff(older_than).await?;
        let removed = self.prune_batches(&made_before, who).await?;
        let params = [Some(made_before.clone()), Some(who.to_owned())];
        let [decisions] = one_row(self.ask(PRUNE_POLICY_LOG_SQL, &params).await?)?;
        let removed_decisions = number(decisions.as_ref())?;
        let left = self.survey_before(&made_before).await?;
        Ok(Pruned { removed, removed_decisions, made_before, left })
    }

    async fn prune_batches(&self, made_before: &str, who: &str) -> Result<i64, pg::Error> {
        let mut removed = 0;
        let mut after = "0".to_owned();
        loop {
            let params = [made_before, who, &after].map(|text| Some(text.to_owned()));
            let params = [params.as_slice(), &[Some(BATCH.to_string())]].concat();
            let [scanned_up_to, batch] = one_row(self.ask(PRUNE_SQL, &params).await?)?;
            removed += number(batch.as_ref())?;
            let Some(scanned_up_to) = scanned_up_to else { return Ok(removed) };
            after = scanned_up_to;
        }
    }

    async fn cutoff(&self, older_than: Age) -> Result<String, pg::Error> {
        let [cutoff] = one_row(self.ask(CUTOFF_SQL, &[Some(older_than.as_secs().to_string())]).await?)?;
        Ok(cutoff.unwrap_or_default())
    }

    async fn survey_before(&self, made_before: &str) -> Result<PrunePlan, pg::Error> {
        let rows = self.ask(SURVEY_SQL, &[Some(made_before.to_owned())]).await?;
        let [prunable, needed, pending, unsealed] = one_row(rows)?;
        Ok(PrunePlan {
            prunable: number(prunable.as_ref())?,
            needed: number(needed.as_ref())?,
            pending: number(pending.as_ref())?,
            unsealed: number(unsealed.as_ref())?,
        })
    }
}
