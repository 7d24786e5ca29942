//! Reading the records of every account. Agents read through [`crate::Records`] instead.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{CorrelationId, IdPrefix, TimeRange};

use super::Audit;
use super::record::{PlannedWrite, Record, RecordLine};
use super::row::TrackedRow;
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
}

/// A write is reversed if its chain of undos has an odd length: if an undo is undone, the write is in force again.
const LIST_SQL: &str = concat!(
    "select a.id, ",
    rfc3339!("a.admitted_at"),
    " as created_at, a.status, a.tool_name, a.account_id, a.actor, a.correlation_id, a.elapsed_ms, a.params_summary, \
     a.result_summary, a.error_code, a.error_message, a.approval, a.client, a.reason, \
     (with recursive reversed (by, times) as ( \
          select v.reversed_by, 1 from countersign.reversal v where v.correlation_id = a.correlation_id \
          union all \
          select v.reversed_by, r.times + 1 from reversed r join countersign.reversal v on v.correlation_id = r.by) \
      select coalesce(max(r.times), 0) % 2 = 1 from reversed r) as is_reversed \
     from countersign.mutation a \
     where ($1::text is null or a.tool_name = $1) and ($2::text is null or a.status = $2) \
       and ($3::text is null or a.account_id = $3) \
       and ($4::timestamptz is null or a.admitted_at >= $4) \
       and ($5::bigint is null or a.id < $5) \
       and ($7::text is null or a.actor = $7) \
       and ($8::text is null or starts_with(a.session_id, $8)) \
       and ($9::timestamptz is null or a.admitted_at < $9) \
       and ($10::oid is null or exists (select from countersign.effect e where e.correlation_id = a.correlation_id \
            and e.relation = $10 and ($11::text is null or e.key = $11 or e.key_before = $11))) \
     order by a.id desc nulls first, a.admitted_at desc limit $6::bigint"
);

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

const COUNTS_SQL: &str = "\
    select a.tool_name, count(*) filter (where a.status = 'pending') as pending, \
        count(*) filter (where a.status = 'success') as success, count(*) filter (where a.status = 'failure') as failure, \
        count(*) filter (where a.status = 'duplicate') as duplicate, count(*) as total \
    from countersign.mutation a \
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

    /// The records that the filter selects, newest first.
    pub async fn list(&self, query: &RecordFilter) -> Result<Vec<RecordLine>, pg::Error> {
        let mut records: Vec<RecordLine> = Vec::new();
        let (mut left, mut before) = (query.limit, query.before);
        while left > 0 {
            let page = left.min(PAGE);
            let params = [
                query.tool_name.clone(),
                query.status.map(|status| status.as_str().to_owned()),
                query.account_id.clone(),
                query.time.from.map(types::rfc3339),
                before.map(|id| id.to_string()),
                Some(page.to_string()),
                query.actor.clone(),
                query.session.clone(),
                query.time.to.map(types::rfc3339),
                query.row.as_ref().map(|row| row.relation.clone()),
                query.row.as_ref().and_then(|row| row.key.clone()),
            ];
            let found: Vec<RecordLine> = self.records.rows(LIST_SQL, &params).await?;
            let is_last = found.len() < usize::try_from(page).unwrap_or(usize::MAX);
            records.extend(found);
            before = Some(oldest_id(&records));
            left = if is_last { 0 } else { left - page };
        }
        Ok(records)
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

/// The id of the last record on a page; the next page continues after it. Running writes have no id; they come first,
/// and only on the first page.
fn oldest_id(records: &[RecordLine]) -> i64 {
    records.last().and_then(|last| last.id).unwrap_or(i64::MAX)
}
