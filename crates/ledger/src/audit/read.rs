//! Reading the records of every account. Agents read through [`crate::Records`] instead.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{CorrelationId, IdPrefix, TimeRange};

use super::Audit;
use super::record::{PlannedWrite, Record, RecordLine};
use super::row::TrackedRow;
use crate::evidence::newest::{Newest, Params, SEARCHED};
use crate::evidence::records::RecordStatus;
use crate::evidence::values::{array, rfc3339};

/// Selects the records of a list.
#[derive(Debug, Clone, Default)]
pub struct RecordFilter {
    /// The maximum number of records.
    pub limit: u32,
    /// The tool; `None` for any.
    pub tool_name: Option<String>,
    /// The status; `None` for any.
    pub status: Option<RecordStatus>,
    /// The account; `None` for any.
    pub account_id: Option<String>,
    /// The actor; `None` for any.
    pub actor: Option<String>,
    /// The beginning of the session's id; `None` for any.
    pub session: Option<String>,
    pub time: TimeRange,
    /// A table, or a row of it, that the writes changed; `None` for any.
    pub row: Option<TrackedRow>,
    /// Only records older than the one with this `id` (not its correlation id).
    pub before: Option<i64>,
    /// The most records that are searched, to the next multiple of 2000. Those of one row are all searched.
    pub max_searched: u32,
}

/// The records that a filter selects.
#[derive(Debug, Default)]
pub struct RecordList {
    /// Newest first.
    pub records: Vec<RecordLine>,
    /// Where the search stopped, if older records may match.
    pub stopped_at: Option<StoppedAt>,
}

/// The last record that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StoppedAt {
    pub id: i64,
    /// When it ended.
    pub completed_at: String,
}

/// A write is reversed if its chain of undos has an odd length: if an undo is undone, the write is in force again.
const LIST_COLUMNS: &str = concat!(
    "m.id, ",
    rfc3339!("m.admitted_at"),
    " as created_at, m.status, m.tool_name, m.account_id, m.actor, m.correlation_id, m.elapsed_ms, m.params_summary, \
     m.result_summary, m.error_code, m.error_message, m.approval, m.client, m.reason, \
     (with recursive reversed (by, times) as ( \
          select v.reversed_by, 1 from countersign.reversal v where v.correlation_id = m.correlation_id \
          union all \
          select v.reversed_by, r.times + 1 from reversed r join countersign.reversal v on v.correlation_id = r.by) \
      select coalesce(max(r.times), 0) % 2 = 1 from reversed r) as is_reversed"
);

/// The newest changes of a row whose writes are listed.
const MAX_OF_ROW: u32 = 10_000;

/// The newest record before a time, of those that ended from `$2` hours before it to an hour after it. The sum keeps
/// PostgreSQL from reading back from the newest record.
const BEFORE_SQL: &str = "select max(r.id + 0) as id from countersign.record r \
     where r.completed_at >= $1::timestamptz - make_interval(hours => $2::integer) \
       and r.completed_at < $1::timestamptz + interval '1 hour' and r.admitted_at < $1::timestamptz";

/// The hours that are tried: the first range that has a record is small, unless nothing was written for long.
const BEFORE_HOURS: [u32; 5] = [1, 24, 30 * 24, 365 * 24, 1_000_000];

/// The columns that identify a record.
const FIND_SQL: &str = concat!(
    "select a.correlation_id, a.tool_name, a.status, ",
    rfc3339!("a.admitted_at"),
    " as created_at from countersign.mutation a \
     where a.correlation_id between $1::uuid and $2::uuid order by a.id desc nulls first limit $3::bigint"
);
/// The maximum number of records in one query, because the size of its answer is bounded.
const PAGE: u32 = 500;

/// The number of duplicates, and the ids of the first ones: a record can have any number of duplicates.
const SHOW_SQL: &str = concat!(
    "select a.id, a.correlation_id, a.status, a.tool_name, a.account_id, a.actor, a.client, a.caller_context, a.reason, ",
    rfc3339!("a.admitted_at"),
    " as created_at, ",
    rfc3339!("a.completed_at"),
    " as completed_at, a.elapsed_ms, a.idempotency_key, a.fingerprint as params_hash, a.params, a.result, a.rows_affected, a.before_image, a.after_image, \
     a.rollback as rollback_action, a.error_code, a.error_sqlstate, a.error_message, a.error_detail, a.approval, a.xid::text as exec_xid, a.duplicate_of, \
     (select count(*) from countersign.record d where d.duplicate_of = a.correlation_id) as duplicates, \
     (select json_agg(d.correlation_id) from (select d.correlation_id from countersign.record d \
      where d.duplicate_of = a.correlation_id order by d.id limit 20) d) as first_duplicates, \
     case when a.rollback ->> 'reversible' = 'true' or v.reversed_by is not null then json_build_array( \
         json_build_object('tool_name', coalesce(b.tool_name, a.rollback ->> 'undo_tool'), 'reversed_by', v.reversed_by)) \
     end as undo_calls, \
     (select json_agg(u.correlation_id) from countersign.reversal u where u.reversed_by = a.correlation_id) as reverses, \
     (select l.leaf_index from countersign.leaf l where l.record_id = a.id) as log_entry, \
     countersign.undo_obstacles(a.correlation_id) as undo_obstacles \
     from countersign.mutation a \
     left join countersign.reversal v on v.correlation_id = a.correlation_id \
     left join countersign.record b on b.correlation_id = v.reversed_by \
     where a.correlation_id = $1::uuid"
);

/// A record ends after it was admitted, so the index over its end finds those of a time.
const COUNTS_SQL: &str = "\
    select a.tool_name, count(*) filter (where a.status = 'pending') as pending, \
        count(*) filter (where a.status = 'success') as success, count(*) filter (where a.status = 'failure') as failure, \
        count(*) filter (where a.status = 'duplicate') as duplicate, count(*) as total \
    from (select r.tool_name, r.status, r.admitted_at from countersign.record r where r.completed_at >= coalesce($1::timestamptz, '-infinity') \
          union all select m.tool_name, m.status, m.admitted_at from countersign.mutation m where m.status = 'pending') a \
    where $1::timestamptz is null or a.admitted_at >= $1 \
    group by rollup (a.tool_name) order by a.tool_name nulls last";

/// The lines of some records, in the order of the given ids.
const SOME_SQL: &str = concat!(
    "select a.correlation_id, a.tool_name, a.account_id, a.actor, a.params_summary, ",
    rfc3339!("a.completed_at"),
    " as completed_at from unnest($1::uuid[]) with ordinality i (id, place) \
     join countersign.mutation a on a.correlation_id = i.id order by i.place"
);

/// Only looks at the newest records, so that the query is fast in a ledger of any size.
const ACTIVITY_SQL: &str = concat!(
    "select r.account_id, r.actor, r.client_name, r.session_id, count(*) filter (where r.status = 'success') as writes, \
     count(*) filter (where r.status = 'failure') as failures, ",
    rfc3339!("max(r.admitted_at)"),
    " as last_at from (select * from countersign.record n order by n.id desc limit 10000) r \
     where r.admitted_at > clock_timestamp() - interval '7 days' \
     group by r.account_id, r.actor, r.client_name, r.session_id order by max(r.admitted_at) desc limit 100"
);

/// Only looks at the newest records, as [`ACTIVITY_SQL`] does.
const NAMES_SQL: &str = "\
    with newest as materialized (select r.tool_name, r.account_id, r.actor from countersign.record r order by r.id desc limit 1000), \
    named as (select k.kind, k.name, count(*) as count from newest n cross join lateral \
        (values ('tools', n.tool_name), ('accounts', n.account_id), ('actors', n.actor)) k (kind, name) \
        where k.name is not null group by k.kind, k.name), \
    ranked as (select n.*, row_number() over (partition by n.kind order by n.count desc, n.name) as rank from named n \
        union all select 'tables', t.name, null, row_number() over (order by t.name) \
        from countersign.tracked t where t.is_current) \
    select coalesce(json_agg(r.name order by r.rank) filter (where r.kind = 'tools'), '[]') as tools, \
        coalesce(json_agg(r.name order by r.rank) filter (where r.kind = 'accounts'), '[]') as accounts, \
        coalesce(json_agg(r.name order by r.rank) filter (where r.kind = 'actors'), '[]') as actors, \
        coalesce(json_agg(r.name order by r.rank) filter (where r.kind = 'tables'), '[]') as tables \
    from ranked r where r.rank <= 20";

/// The columns that identify a record to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordName {
    pub correlation_id: CorrelationId,
    pub tool_name: String,
    /// The status: a name of [`RecordStatus`].
    pub status: String,
    pub created_at: String,
}

/// The numbers of a tool's records by status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCounts {
    /// The tool; `None` for the sum over all tools.
    pub tool_name: Option<String>,
    /// Attempts without an outcome.
    pub pending: u64,
    pub success: u64,
    pub failure: u64,
    /// Calls that were answered from the record of an identical one.
    pub duplicate: u64,
    pub total: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SessionActivity {
    pub account_id: String,
    /// The person or agent on whose behalf the session acts.
    pub actor: Option<String>,
    pub client_name: Option<String>,
    pub session_id: Option<String>,
    /// The number of successes among the records.
    pub writes: u64,
    /// The number of failures among the records.
    pub failures: u64,
    /// When the newest record was made.
    pub last_at: String,
}

/// Names by which records can be selected, the most frequent ones first, at most 20 of each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct LedgerNames {
    /// The tools of the newest 1000 records.
    pub tools: Vec<String>,
    /// The accounts of these records.
    pub accounts: Vec<String>,
    /// The actors of these records.
    pub actors: Vec<String>,
    /// The first tracked tables by name.
    pub tables: Vec<String>,
}

impl Audit {
    /// The names by which records can be selected.
    pub async fn names(&self) -> Result<LedgerNames, pg::Error> {
        Ok(self.records.rows(NAMES_SQL, &[]).await?.into_iter().next().unwrap_or_default())
    }

    /// The writes with these ids, in short.
    pub async fn some(&self, ids: &[CorrelationId]) -> Result<Vec<PlannedWrite>, pg::Error> {
        self.records.rows(SOME_SQL, &[Some(array(ids))]).await
    }

    /// The sessions of the last 7 days in the newest 10,000 records, at most 100, the most recently active one first.
    pub async fn activity(&self) -> Result<Vec<SessionActivity>, pg::Error> {
        self.records.rows(ACTIVITY_SQL, &[]).await
    }

    /// The records that the filter selects.
    pub async fn list(&self, query: &RecordFilter) -> Result<RecordList, pg::Error> {
        let mut list = RecordList::default();
        let (mut left, mut before, mut searched) = (query.limit, query.before, 0);
        if let (Some(to), None) = (query.time.to, before) {
            // Writes in flight have no place among the records.
            if query.status.is_none_or(|status| status == RecordStatus::Pending) {
                let pending = RecordFilter { status: Some(RecordStatus::Pending), ..query.clone() };
                list.records = self.page(&pending, left.min(PAGE), None).await?;
                left -= left.min(u32::try_from(list.records.len()).unwrap_or(u32::MAX));
            }
            before = Some(self.newest_before(&types::rfc3339(to)).await?.map_or(0, |id| id + 1));
        }
        while left > 0 {
            let page = left.min(PAGE);
            let found = self.page(query, page, before).await?;
            let is_full = found.len() >= usize::try_from(page).unwrap_or(usize::MAX);
            if is_full {
                before = Some(oldest_id(&found));
                left -= page;
                list.records.extend(found);
                continue;
            }
            left -= u32::try_from(found.len()).unwrap_or(left);
            list.records.extend(found);
            let Some(stopped_at) = self.stopped_at(query, before).await? else { break };
            (before, searched) = (Some(stopped_at.id), searched + SEARCHED);
            if searched >= query.max_searched {
                list.stopped_at = Some(stopped_at);
                break;
            }
        }
        Ok(list)
    }

    /// At most `limit` of the records that a query looks at.
    async fn page(&self, query: &RecordFilter, limit: u32, before: Option<i64>) -> Result<Vec<RecordLine>, pg::Error> {
        let mut params = Params::default();
        let newest = newest(query, before, &mut params);
        let searched = if is_of_one_row(query) { newest.all() } else { newest.records() };
        let mut condition = "true".to_owned();
        let filters = [
            ("m.tool_name = ", query.tool_name.clone(), ""),
            ("m.status = ", query.status.map(|status| status.as_str().to_owned()), ""),
            ("m.account_id = ", query.account_id.clone(), ""),
            ("m.actor = ", query.actor.clone(), ""),
            ("starts_with(m.session_id, ", query.session.clone(), ")"),
            ("m.admitted_at >= ", query.time.from.map(types::rfc3339), "::timestamptz"),
            ("m.admitted_at < ", query.time.to.map(types::rfc3339), "::timestamptz"),
            (
                "exists (select from countersign.effect e where e.correlation_id = m.correlation_id and e.relation = ",
                query.row.as_ref().filter(|row| row.key.is_none()).map(|row| row.relation.clone()),
                "::oid)",
            ),
        ];
        for (begin, value, end) in filters {
            if let Some(value) = value {
                condition += &format!(" and {begin}{}{end}", params.add(value));
            }
        }
        let most = params.add(limit.to_string());
        let order = newest.order();
        let sql =
            format!("select {LIST_COLUMNS} from {searched} where {condition} order by {order} limit {most}::bigint");
        self.records.rows(&sql, &params.0).await
    }

    /// The last record that [`Audit::page`] looked at, if older ones may match.
    async fn stopped_at(&self, query: &RecordFilter, before: Option<i64>) -> Result<Option<StoppedAt>, pg::Error> {
        if is_of_one_row(query) || query.status == Some(RecordStatus::Pending) {
            return Ok(None);
        }
        let mut params = Params::default();
        let last = newest(query, before, &mut params).last();
        let mut sql = format!(concat!("select m.id, ", rfc3339!("m.completed_at"), " as completed_at from {}"), last);
        if let Some(from) = query.time.from {
            // Records are in the order of their ends, but for clocks that were set.
            let from = params.add(types::rfc3339(from));
            sql += &format!(" where m.completed_at >= {from}::timestamptz - interval '1 hour'");
        }
        Ok(self.records.rows(&sql, &params.0).await?.into_iter().next())
    }

    /// The newest record that was made before a time. A write that is in flight for longer than an hour has its place
    /// where it ended.
    async fn newest_before(&self, time: &str) -> Result<Option<i64>, pg::Error> {
        for hours in BEFORE_HOURS {
            let found = self.records.objects(BEFORE_SQL, &[Some(time.to_owned()), Some(hours.to_string())]).await?;
            let id = found.first().and_then(|row| row.get("id")).and_then(Value::as_i64);
            if id.is_some() {
                return Ok(id);
            }
        }
        Ok(None)
    }

    /// The records whose correlation id begins with `prefix`, newest first.
    pub async fn find(&self, prefix: &IdPrefix, limit: u32) -> Result<Vec<RecordName>, pg::Error> {
        let [low, high] = prefix.range();
        self.records.rows(FIND_SQL, &[Some(low), Some(high), Some(limit.to_string())]).await
    }

    /// A whole record, with its effects, its entry in the log, its duplicates or its original, and the writes that
    /// undid it or that it undid.
    pub async fn show(&self, correlation_id: CorrelationId) -> Result<Option<Record>, pg::Error> {
        let found = self.records.objects(SHOW_SQL, &[Some(correlation_id.to_string())]).await?.into_iter().next();
        let record = self.records.with_effects(found, correlation_id).await?;
        let record = record.map(|record| serde_json::from_value(Value::Object(record))).transpose();
        record.map_err(|error| pg::Error::Lost(std::io::Error::other(error)))
    }

    /// The numbers of records since the beginning of `time`, by status: for each tool in alphabetical order, then for
    /// all tools.
    pub async fn counts(&self, time: TimeRange) -> Result<Vec<ToolCounts>, pg::Error> {
        self.records.rows(COUNTS_SQL, &[time.from.map(types::rfc3339)]).await
    }
}

/// The records to look at: by the index that leaves the fewest.
fn newest(query: &RecordFilter, before: Option<i64>, params: &mut Params) -> Newest {
    let by = query.account_id.as_ref().map(|account| ("m.account_id", params.add(account)));
    let mut newest = Newest::new(by, query.status.and_then(RecordStatus::condition));
    if let Some(before) = before {
        newest = newest.and(format!("m.id < {}::bigint", params.add(before.to_string())));
    }
    if let Some(TrackedRow { relation, key: Some(key) }) = &query.row {
        let [relation, key] = [relation, key].map(|part| params.add(part));
        newest = newest.and(format!(
            "m.correlation_id = any (array(select e.correlation_id from countersign.effects_of_row({relation}::oid, {key}) e \
             where e.correlation_id is not null order by e.position desc limit {MAX_OF_ROW}))"
        ));
    }
    newest
}

fn is_of_one_row(query: &RecordFilter) -> bool {
    query.row.as_ref().is_some_and(|row| row.key.is_some())
}

/// The id of the last record on a page; the next page continues after it. Running writes have no id; they come first,
/// and only on the first page.
fn oldest_id(records: &[RecordLine]) -> i64 {
    records.last().and_then(|last| last.id).unwrap_or(i64::MAX)
}
