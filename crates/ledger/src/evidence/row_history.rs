//! Recorded changes of rows, and what made them.

use std::collections::HashSet;

use pg::WriterPool;
use serde::Deserialize;
use tokio::time::Instant;
use types::{CorrelationId, Principal, RowEffect, RowHistoryEntry};

use crate::evidence::effects::RecordedChange;
use crate::evidence::guarded_rows::{GuardedRows, is_guarded};
use crate::evidence::records::Records;
use crate::evidence::values::rfc3339;

const BEGIN_SQL: &str = concat!(
    "select case when $4::text is null then e.correlation_id else r.correlation_id end as correlation_id, \
     r.tool_name, r.account_id, r.actor, r.client_name, ",
    rfc3339!("coalesce(w.completed_at, e.changed_at)"),
    " as changed_at, case when $4::text is null then e.origin end as origin, t.name, e.op::text as op, coalesce(e.key_before, e.key) as key, \
     case when e.bytes <= $5::bigint then e.before end as before, case when e.bytes <= $5::bigint then e.after end as after, e.bytes > $5::bigint as is_cut, \
     e.secret_before is distinct from e.secret_after as has_sensitive_changes, to_json(coalesce(e.unchanged, '{}')) as unchanged, to_json(coalesce(e.erased, '{}')) as erased, to_json(t.columns) as columns, to_json(t.sensitive) as sensitive, t.shape::text as shape, \
     case when exists (select from pg_class k where k.oid = t.relation) then coalesce(row_security_active(t.relation), false) else false end as has_policy \
     from (select f.*, sum(coalesce(octet_length(f.before), 0) + coalesce(octet_length(f.after), 0)) over (order by f.position desc) as bytes \
           from (select c.* from ("
);
const END_SQL: &str = ") c order by c.position desc limit $3::bigint) f) e join countersign.tracked t on t.shape = e.shape \
     left join countersign.record w on w.correlation_id = e.correlation_id \
     left join countersign.record r on r.correlation_id = e.correlation_id \
         and ($4::text is null or r.account_id = $4 and r.caller_context is null) \
     order by e.position desc";

/// The newest changes of the row `$2` of the table `$1` that meet a condition on `c`. Each part reads its index
/// backwards, and stops at the limit: PostgreSQL expects few changes of a row, and would sort all of them.
macro_rules! newest_of_row {
    ($($condition:tt)*) => {
        concat!(
            "(select c.* from countersign.effect c where c.relation = $1::oid and c.key = $2 \
                and hashtextextended(c.key, 0) = hashtextextended($2, 0) and ",
            $($condition)*,
            " order by c.position desc limit $3::bigint) union all \
             (select c.* from countersign.effect c where c.relation = $1::oid and c.key_before = $2 \
                and hashtextextended(c.key_before, 0) = hashtextextended($2, 0) and ",
            $($condition)*,
            " order by c.position desc limit $3::bigint)"
        )
    };
}
pub(crate) use newest_of_row;

/// Which changes are read.
pub(crate) struct HistoryQuery<'a> {
    /// A query for rows of `countersign.effect`.
    pub(crate) changes: &'a str,
    /// The first two parameters of the query.
    pub(crate) params: [Option<String>; 2],
    /// The maximum number of changes.
    pub(crate) limit: u32,
    /// The account that sees who made its own writes, and of others nothing but what they changed; `None`: a person
    /// who sees who made each of them.
    pub(crate) account: Option<String>,
    /// The maximum length of all row images in bytes. Changes beyond it have no columns.
    pub(crate) max_bytes: usize,
}

/// The maximum length of the row images for a person.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// The newest of these changes, newest first.
pub(crate) async fn newest(records: &Records, query: HistoryQuery<'_>) -> Result<Vec<RowHistoryEntry>, pg::Error> {
    Ok(rows(records, query).await?.into_iter().map(HistoryRow::entry).collect())
}

/// The newest of these changes for a caller, newest first, and the number of rows whose changes are left out because
/// the caller cannot read them now. What a row became is what the caller reads.
pub(crate) async fn newest_for(
    records: &Records,
    query: HistoryQuery<'_>,
    caller: &Principal,
    lease: (&WriterPool, Instant),
) -> Result<(Vec<RowHistoryEntry>, u64), pg::Error> {
    let (writer, deadline) = lease;
    let mut rows = rows(records, query).await?;
    let guarded = rows.iter().enumerate().filter(|(_, row)| is_guarded(&caller.context, row.has_policy));
    let asked: GuardedRows =
        guarded.map(|(at, row)| (at, row.shape.clone(), row.change.image().map(str::to_owned))).collect();
    let mut unread = HashSet::new();
    if !asked.is_empty() {
        let found = asked.read(&mut writer.acquire(deadline).await?, caller, deadline).await?;
        let mut found = asked.images(found);
        let mut newest = HashSet::new();
        for at in asked.ids() {
            let Some(row) = rows.get_mut(at) else { continue };
            match found.remove(&at) {
                Some(image) if newest.insert(row.change.place()) => row.change.set_current(image),
                Some(_) => {}
                None => drop(unread.insert(row.change.place())),
            }
        }
    }
    rows.retain(|row| !unread.contains(&row.change.place()));
    Ok((rows.into_iter().map(HistoryRow::entry).collect(), unread.len() as u64))
}

async fn rows(records: &Records, query: HistoryQuery<'_>) -> Result<Vec<HistoryRow>, pg::Error> {
    let HistoryQuery { changes, params: [first, second], limit, account, max_bytes } = query;
    let params = [first, second, Some(limit.to_string()), account, Some(max_bytes.to_string())];
    records.rows(&format!("{BEGIN_SQL}{changes}{END_SQL}"), &params).await
}

#[derive(Deserialize)]
struct HistoryRow {
    correlation_id: Option<CorrelationId>,
    tool_name: Option<String>,
    account_id: Option<String>,
    actor: Option<String>,
    client_name: Option<String>,
    changed_at: Option<String>,
    origin: Option<String>,
    is_cut: bool,
    shape: String,
    has_policy: bool,
    #[serde(flatten)]
    change: RecordedChange,
}

impl HistoryRow {
    fn entry(self) -> RowHistoryEntry {
        let Self {
            correlation_id, tool_name, account_id, actor, client_name, changed_at, origin, is_cut, change, ..
        } = self;
        let effect = RowEffect { is_cut, ..change.effect() };
        RowHistoryEntry { correlation_id, tool_name, account_id, actor, client_name, changed_at, origin, effect }
    }
}
