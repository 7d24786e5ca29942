//! Reads the records of one caller: those of its account that were made with its role and claims, or with none.

use std::time::Duration;

use pg::WriterPool;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use types::{CorrelationId, Effects, Principal};

use crate::evidence::effects;
use crate::evidence::newest::{Newest, Params};
use crate::evidence::values::{array, as_object, rfc3339};

types::text_enum! {
    /// The states of a record.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RecordStatus {
        /// The write is running.
        Pending = "pending",
        /// The write succeeded.
        Success = "success",
        /// The write failed.
        Failure = "failure",
        /// The call was answered from the record of an identical one.
        Duplicate = "duplicate",
    }
}

impl RecordStatus {
    /// The words of a partial index, or of the table's CHECK.
    pub(crate) const fn condition(self) -> Option<&'static str> {
        match self {
            Self::Success => None,
            Self::Failure | Self::Duplicate => Some("m.status <> 'success'"),
            Self::Pending => Some("m.status = 'pending'"),
        }
    }
}

/// What must be known about writes before they are undone.
#[derive(Debug, Clone)]
pub struct Undoable {
    /// The status. Only a success can be undone.
    pub status: RecordStatus,
    /// The tools whose writes the undo would take back or make again.
    pub tools: Vec<UndoneTool>,
    /// The undos that people made, among the writes.
    pub made_by_people: Vec<CorrelationId>,
    /// Whether the record of an undone write is missing, so that it is unknown which write the undo would make again.
    pub has_gap: bool,
}

/// A tool whose write an undo would take back or make again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct UndoneTool {
    pub tool: String,
    /// Whether the undo would make the write again, which is so if an odd number of undos lies between them.
    pub is_redo: bool,
    /// Whether the write was an undo itself, made by a declared undo tool.
    pub is_undo: bool,
}

/// Reads records. Statements are read-only and limited in time.
#[derive(Debug, Clone)]
pub struct Records {
    writer: WriterPool,
    /// The time limit of a query.
    timeout: Duration,
}

/// The newest records of a caller.
#[derive(Debug)]
pub struct RecentRecords {
    /// Newest first, without hashes, undo calls and account.
    pub records: Vec<Map<String, Value>>,
    /// The record at which the search stopped, if there may be more that fit. [`Records::recent`] goes on from it.
    pub stopped_at: Option<CorrelationId>,
}

const RECENT_COLUMNS: &str = concat!(
    "m.correlation_id, m.tool_name, m.status, m.params_summary, m.result_summary, m.error_sqlstate, m.error_message, m.elapsed_ms, m.client, ",
    rfc3339!("m.admitted_at"),
    " as created_at, ",
    rfc3339!("m.completed_at"),
    " as completed_at"
);

/// The record from which a search goes on.
const OLDER_SQL: &str = "select r.id from countersign.record r where r.account_id = $1 and r.correlation_id = $2::uuid";

const DETAIL_SQL: &str = concat!(
    "select a.id, a.correlation_id, a.idempotency_key, a.tool_name, a.fingerprint as params_hash, a.params_summary, a.params, a.status, \
     a.result_summary, a.result, a.rows_affected, a.before_image, a.after_image, a.rollback as rollback_action, a.error_code, a.error_sqlstate, \
     a.error_message, a.elapsed_ms, a.account_id, a.actor, a.client, a.reason, a.duplicate_of, a.approval, a.error_detail, \
     (select json_agg(v.reversed_by) from countersign.reversal v where v.correlation_id = a.correlation_id) as reversed_by, \
     (select json_agg(v.correlation_id) from countersign.reversal v where v.reversed_by = a.correlation_id) as reverses, \
     countersign.undo_obstacles(a.correlation_id) as undo_obstacles, ",
    rfc3339!("a.admitted_at"),
    " as created_at, ",
    rfc3339!("a.completed_at"),
    " as completed_at from countersign.mutation a where a.account_id = $1 and a.correlation_id = $2::uuid \
     and (a.caller_context is null or a.caller_context::text = $3)"
);

/// Follows each write through all writes that it undid. `undos` counts the undos between: the new undo makes a write
/// with an odd number again. An operator's undo has a decision without a proposal.
const UNDOABLE_SQL: &str = "\
with recursive written as ( \
    select m.correlation_id, m.tool_name, m.status, m.undo_of, 0 as undos, \
        m.undo_of is not null and m.approval is not null and m.approval -> 'proposal_id' is null as is_by_person \
    from countersign.mutation m where m.account_id = $1 and m.correlation_id = any ($2::uuid[]) \
        and (m.caller_context is null or m.caller_context::text = $3) \
    union \
    select r.correlation_id, r.tool_name, w.status, r.undo_of, w.undos + 1, false \
    from written w cross join lateral unnest(w.undo_of) u (write) join countersign.record r on r.correlation_id = u.write) \
select w.status, \
    coalesce(json_agg(distinct jsonb_build_object( \
            'tool', w.tool_name, 'is_redo', w.undos % 2 = 1, 'is_undo', w.undo_of is not null)) \
        filter (where w.tool_name not in ('undo_mutation', 'undo_run')), '[]'), \
    coalesce(json_agg(distinct w.correlation_id) filter (where w.is_by_person), '[]'), \
    bool_or(exists (select from unnest(w.undo_of) u (write) \
        where not exists (select from countersign.record r where r.correlation_id = u.write))) \
from written w group by w.status";

impl Records {
    pub(crate) fn new(writer: WriterPool, timeout: Duration) -> Self {
        Self { writer, timeout }
    }

    /// Lists at most `limit` records of the caller. `tool_name` and `status` select records; `older_than` is a record of
    /// the account, and `None` is returned if it is not.
    pub async fn recent(
        &self,
        owner: &Principal,
        limit: u32,
        tool_name: Option<String>,
        status: Option<RecordStatus>,
        older_than: Option<CorrelationId>,
    ) -> Result<Option<RecentRecords>, pg::Error> {
        let mut params = Params::default();
        let account = owner.account_id.as_str();
        let mut newest =
            Newest::new(Some(("m.account_id", params.add(account))), status.and_then(RecordStatus::condition));
        if let Some(record) = older_than {
            let place = self.objects(OLDER_SQL, &[Some(account.to_owned()), Some(record.to_string())]).await?;
            let Some(place) = place.first().and_then(|place| place.get("id")) else { return Ok(None) };
            newest = newest.and(format!("m.id < {}::bigint", params.add(place.to_string())));
        }
        let last = format!("select m.correlation_id from {}", newest.last());
        let of_last = params.0.clone();
        let mut condition = "m.caller_context is null".to_owned();
        if let Some(context) = owner.context.to_json() {
            condition = format!("({condition} or m.caller_context::text = {})", params.add(context));
        }
        if let Some(tool_name) = tool_name {
            condition += &format!(" and m.tool_name = {}", params.add(tool_name));
        }
        if let Some(status) = status {
            condition += &format!(" and m.status = {}", params.add(status.as_str()));
        }
        let most = params.add(limit.to_string());
        let sql = format!(
            "select {RECENT_COLUMNS} from {} where {condition} order by {} limit {most}::bigint",
            newest.records(),
            newest.order()
        );
        let records = self.objects(&sql, &params.0).await?;
        if records.len() >= limit as usize {
            return Ok(Some(RecentRecords { records, stopped_at: None }));
        }
        let last = self.rows::<Stopped>(&last, &of_last).await?.into_iter().next();
        Ok(Some(RecentRecords { records, stopped_at: last.map(|last| last.correlation_id) }))
    }

    /// A whole record; `None` if the caller has no such record. Changed rows that the caller cannot read now are only
    /// counted.
    pub async fn detail(
        &self,
        owner: &Principal,
        correlation_id: CorrelationId,
    ) -> Result<Option<Map<String, Value>>, pg::Error> {
        let account = Some(owner.account_id.as_str().to_owned());
        let params = [account, Some(correlation_id.to_string()), owner.context.to_json()];
        let Some(mut record) = self.objects(DETAIL_SQL, &params).await?.into_iter().next() else { return Ok(None) };
        if is_success(&record) {
            let deadline = Instant::now() + self.timeout;
            let effects = effects::of_write_for(&self.writer, correlation_id, owner, deadline).await?;
            record.insert("effects".to_owned(), json!(effects.map(Effects::stored)));
        }
        Ok(Some(record))
    }

    /// What must be known about writes of the caller before they are undone, one element for each status among them.
    /// Empty if the caller has no such write.
    pub async fn undoable(&self, owner: &Principal, writes: &[CorrelationId]) -> Result<Vec<Undoable>, pg::Error> {
        let params = [Some(owner.account_id.as_str().to_owned()), Some(array(writes)), owner.context.to_json()];
        let answer = self.writer.run_one(UNDOABLE_SQL, &params, Instant::now() + self.timeout).await?;
        let undoable = |row: Vec<Option<String>>| {
            let [status, tools, made_by_people, has_gap] = <[Option<String>; 4]>::try_from(row).ok()?;
            let made_by_people: Vec<String> = serde_json::from_str(&made_by_people?).ok()?;
            Some(Undoable {
                status: RecordStatus::parse(&status?)?,
                tools: serde_json::from_str(&tools?).ok()?,
                made_by_people: made_by_people.iter().map(|id| CorrelationId::parse(id)).collect::<Option<_>>()?,
                has_gap: has_gap.as_deref() == Some("t"),
            })
        };
        Ok(answer.rows.into_iter().filter_map(undoable).collect())
    }

    /// Adds its effects to a record, if it has any.
    pub(crate) async fn with_effects(
        &self,
        record: Option<Map<String, Value>>,
        correlation_id: CorrelationId,
    ) -> Result<Option<Map<String, Value>>, pg::Error> {
        let Some(mut record) = record else { return Ok(None) };
        if is_success(&record) {
            let effects = effects::of_write(&self.writer, correlation_id, Instant::now() + self.timeout).await?;
            record.insert("effects".to_owned(), json!(effects.map(Effects::stored)));
        }
        Ok(Some(record))
    }

    /// The rows of a read-only query, parsed by column names.
    pub(crate) async fn rows<T: DeserializeOwned>(
        &self,
        sql: &str,
        params: &[Option<String>],
    ) -> Result<Vec<T>, pg::Error> {
        let rows = self.objects(sql, params).await?.into_iter();
        let parsed = rows.map(|row| serde_json::from_value(Value::Object(row)));
        parsed.collect::<Result<_, _>>().map_err(|error| pg::Error::Lost(std::io::Error::other(error)))
    }

    /// The rows of a read-only query, as JSON objects. The query is repeated if the pooled session was dead.
    pub(crate) async fn objects(
        &self,
        sql: &str,
        params: &[Option<String>],
    ) -> Result<Vec<Map<String, Value>>, pg::Error> {
        match self.try_objects(sql, params).await {
            Err(pg::Error::Lost(_)) => {
                self.writer.retire_all();
                self.try_objects(sql, params).await
            }
            answer => answer,
        }
    }

    /// The rows of one query in a read-only transaction, so that no code of a table writes.
    pub(crate) async fn read_only<T: DeserializeOwned>(
        &self,
        sql: &str,
        params: &[Option<String>],
    ) -> Result<Vec<T>, pg::Error> {
        let deadline = Instant::now() + self.timeout;
        let mut lease = self.writer.acquire(deadline).await?;
        lease.session().begin(Some("read only"), &[]).await.map_err(|failed| failed.error)?;
        let outcome = lease.run_one(sql, params, deadline).await?;
        let columns = self.writer.resolve_columns(&mut lease, &outcome.columns).await?;
        lease.session().batch_execute("commit").await?;
        let parsed = outcome.rows.iter().map(|row| serde_json::from_value(Value::Object(as_object(row, &columns))));
        parsed.collect::<Result<_, _>>().map_err(|error| pg::Error::Lost(std::io::Error::other(error)))
    }

    async fn try_objects(&self, sql: &str, params: &[Option<String>]) -> Result<Vec<Map<String, Value>>, pg::Error> {
        let deadline = Instant::now() + self.timeout;
        let mut lease = self.writer.acquire(deadline).await?;
        let outcome = lease.run_one(sql, params, deadline).await?;
        let columns = self.writer.resolve_columns(&mut lease, &outcome.columns).await?;
        Ok(outcome.rows.iter().map(|row| as_object(row, &columns)).collect())
    }
}

#[derive(Deserialize)]
struct Stopped {
    correlation_id: CorrelationId,
}

fn is_success(record: &Map<String, Value>) -> bool {
    record.get("status") == Some(&RecordStatus::Success.as_str().into())
}
