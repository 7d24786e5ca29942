//! The rows that the undo of writes restores: the first ones with their values, and the numbers of all by table and column.

use pg::value::text_array;
use tokio::time::Instant;
use types::{CorrelationId, Principal};

use super::{PlanReport, PlanRows, PlanSummary, Plans};
use crate::evidence::effects::{self, Current, RecordedEffects};
use crate::evidence::values::array;
use crate::undo::NotRestored;

/// `effects::parse_effects` parses these columns.
const ROWS_SQL: &str = "\
select t.name, case when w.before is null then 'D' when w.after is null then 'I' else 'U' end, w.key, \
    case when not w.is_cut then w.after end, case when not w.is_cut then w.before end, w.is_cut, \
    w.secret_before is distinct from w.secret_after, '[]', array_to_json(t.columns), array_to_json(t.sensitive), \
    array_to_json(t.types), false, w.count, null, t.shape, \
    case when exists (select from pg_class r where r.oid = t.relation) then row_security_active(t.relation) end, '[]' \
from (select n.*, count(*) over () as count, \
          $2::bigint is not null and sum(coalesce(octet_length(n.before), 0) + coalesce(octet_length(n.after), 0)) \
              over (order by n.last_position, n.key) > 1048576 as is_cut \
      from countersign.net_changes($1::uuid[]) n where $3::text[] = '{}' or countersign.table_name(n.relation) <> all ($3::text[]) \
      order by n.last_position, n.key limit $2::bigint) w \
join countersign.shapes_of_net_changes($1::uuid[]) t on t.shape = w.shape order by w.last_position, w.key";

const SUMMARY_SQL: &str = "\
with net as materialized ( \
    select t.name, t.columns, t.sensitive, w.before, w.after, \
        case when w.before is null then 'delete' when w.after is null then 'insert' else 'update' end as change \
    from countersign.net_changes($1::uuid[]) w join countersign.shapes_of_net_changes($1::uuid[]) t on t.shape = w.shape \
    where $2::text[] = '{}' or countersign.table_name(w.relation) <> all ($2::text[]) \
), columns as ( \
    select n.name, c.name as column_name, count(*) as rows from net n \
    cross join lateral unnest(n.columns, countersign.fields(n.before), countersign.fields(n.after)) c (name, before, after) \
    where n.change = 'update' and c.before is distinct from c.after and c.name <> all (n.sensitive) group by n.name, c.name \
) \
select json_build_object('table', n.name, 'change', n.change, 'rows', count(*), 'changed', case when n.change = 'update' then \
    (select coalesce(json_object_agg(c.column_name, c.rows), '{}') from columns c where c.name = n.name) else '{}' end) \
from net n group by n.name, n.change order by n.name, n.change desc";

impl Plans {
    /// The rows that the undo of these writes restores, without those of tables whose rows stay: the first `most` of them
    /// (all of them if `None`), and the numbers of all by table and column.
    pub(crate) async fn rows(
        &self,
        writes: &[CorrelationId],
        not_restored: &[NotRestored],
        most: Option<u32>,
        deadline: Instant,
    ) -> Result<PlanRows, pg::Error> {
        let (rows, summary) = self.found(writes, not_restored, most, deadline).await?;
        Ok(PlanRows { effects: effects::parse_effects(rows), summary })
    }

    /// The rows of a plan for the caller: those that it cannot read now are only counted.
    pub async fn rows_for(
        &self,
        caller: &Principal,
        report: &PlanReport,
        most: u32,
        deadline: Instant,
    ) -> Result<PlanRows, pg::Error> {
        let (rows, summary) = self.found(&report.writes, &report.not_restored, Some(most), deadline).await?;
        let effects = match RecordedEffects::parse(rows, &caller.context) {
            Some(recorded) => Some(recorded.seen(&self.writer, caller, deadline, Current::Before).await?),
            None => None,
        };
        Ok(PlanRows { effects, summary })
    }

    async fn found(
        &self,
        writes: &[CorrelationId],
        not_restored: &[NotRestored],
        most: Option<u32>,
        deadline: Instant,
    ) -> Result<(Vec<Vec<Option<String>>>, Vec<PlanSummary>), pg::Error> {
        if writes.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let mut lease = self.writer.acquire(deadline).await?;
        let kept: Vec<String> = not_restored.iter().map(|kept| kept.table.clone()).collect();
        let (writes, kept) = (Some(array(writes)), Some(text_array(&kept)));
        let params = [writes.clone(), most.map(|most| most.to_string()), kept.clone()];
        let rows = lease.run_one(ROWS_SQL, &params, deadline).await?.rows;
        let summary = lease.run_one(SUMMARY_SQL, &[writes, kept], deadline).await?.rows;
        let lines = summary.into_iter().flatten().flatten();
        Ok((rows, lines.filter_map(|line| serde_json::from_str(&line).ok()).collect()))
    }
}
