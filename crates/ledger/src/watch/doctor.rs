//! Reports stuck work and wrong states. Each method is one query that the servers' login may run; the caller
//! interprets the results.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{CorrelationId, ProposalId};

use crate::audit::RecordName;
use crate::evidence::records::Records;
use crate::evidence::values::rfc3339;
use crate::options::LedgerOptions;
use crate::watch::sweep::BEYOND_DEADLINE;

/// Facts about the PostgreSQL server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ServerFacts {
    /// The version: `16.4`.
    pub version: String,
    /// The version as a number: 160004 for 16.4.
    pub number: i64,
    pub database: String,
    pub login: String,
    pub is_standby: bool,
}

/// An attempt that has been pending for longer than a call may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbandonedRecord {
    pub correlation_id: CorrelationId,
    pub account_id: String,
    pub tool_name: String,
    pub created_at: String,
    pub age_s: u64,
    /// The total number of abandoned attempts.
    #[serde(skip_serializing)]
    pub total: u64,
}

/// A proposal that was approved, and neither executed nor ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckProposal {
    pub proposal_id: ProposalId,
    pub account_id: String,
    pub tool_name: String,
    /// The tier: `confirm` or `approve`.
    pub tier: String,
    /// The status: always `confirmed`.
    pub status: String,
    pub decided_by: Option<String>,
    pub created_at: String,
    pub decided_at: String,
    pub executable_until: Option<String>,
    pub is_over: Option<bool>,
    /// The time since the decision, in seconds.
    pub age_s: u64,
    /// The total number of stuck proposals.
    #[serde(skip_serializing)]
    pub total: u64,
}

/// The proposals of one tier that wait for a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingProposals {
    /// The tier: `confirm` or `approve`.
    pub tier: String,
    pub proposals: u64,
    /// When the oldest proposal was made.
    pub oldest: String,
    /// When the next proposal expires.
    pub next_to_expire: String,
}

/// Final records that are not sealed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsealedRecords {
    /// The number of those among the oldest 10,000.
    pub records: u64,
    /// Whether there are newer ones.
    pub has_more: bool,
    /// When the oldest record ended.
    pub oldest: Option<String>,
    /// The number of pending writes, for which sealing may have to wait.
    pub pending: u64,
}

/// The standbys of this server, as its login sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ReplicationFacts {
    /// The setting `synchronous_standby_names`.
    pub synchronous_standby_names: String,
    /// The number of connected standbys.
    pub standbys: u64,
    /// The number of standbys whose commits the primary waits for; `None` if this login may not see that.
    pub confirming: Option<u64>,
    /// The end of the WAL.
    pub position: Option<String>,
}

/// Runs checks in one database and its ledger.
#[derive(Debug, Clone)]
pub struct Doctor {
    records: Records,
    /// The age in seconds after which a pending attempt counts as abandoned.
    abandoned_after_s: u64,
}

/// The maximum number of rows of one finding; each row has the total number.
pub const MAX_FOUND: u32 = 20;

const SERVER_SQL: &str = "select pg_catalog.current_setting('server_version') as version, \
    pg_catalog.current_setting('server_version_num')::integer as number, pg_catalog.current_database()::text as database, \
    current_user::text as login, pg_catalog.pg_is_in_recovery() as is_standby";

/// Walsenders of subscriptions are no standbys. Without pg_monitor, sync_state is null.
const REPLICATION_SQL: &str = "select current_setting('synchronous_standby_names') as synchronous_standby_names, count(*) as standbys, \
    case when count(*) = count(r.sync_state) then count(*) filter (where r.sync_state in ('sync', 'quorum')) end as confirming, \
    case when not pg_is_in_recovery() then pg_current_wal_lsn()::text end as position \
    from pg_stat_replication r \
    where not exists (select from pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical')";

const POLICIES_SQL: &str = "\
select format('%I on %I.%I', p.policyname, p.schemaname, p.tablename) from pg_policies p \
where concat(p.qual, ' ', p.with_check) ~ 'current_setting\\(''countersign\\.(account_id|claim_)' order by 1";

const APPROVERS_SQL: &str = "select r.rolname::text as login from pg_catalog.pg_roles r \
    where r.rolcanlogin and not r.rolsuper \
      and (pg_catalog.pg_has_role(r.oid, pg_catalog.to_regrole('countersign_approver')::oid, 'member') \
        or pg_catalog.pg_has_role(r.oid, pg_catalog.to_regrole('countersign_console')::oid, 'member')) order by r.rolname";

const IS_CONSOLE_SQL: &str = "\
    select pg_catalog.pg_has_role(current_user, 'countersign_console', 'member') and not r.rolsuper as is_console \
    from pg_catalog.pg_roles r where r.rolname = current_user";

const PENDING_SQL: &str = concat!(
    "select a.correlation_id, a.account_id, a.tool_name, ",
    rfc3339!("a.admitted_at"),
    " as created_at, extract(epoch from clock_timestamp() - a.admitted_at)::bigint as age_s, count(*) over () as total \
     from countersign.mutation a \
     where a.status = 'pending' and a.admitted_at < clock_timestamp() - make_interval(secs => $1::double precision) \
     order by a.admitted_at desc limit $2::bigint"
);

const CONFIRMED_SQL: &str = concat!(
    "select p.proposal_id, p.account_id, p.tool_name, p.tier, p.status, p.decided_by, ",
    rfc3339!("p.created_at"),
    " as created_at, ",
    rfc3339!("p.decided_at"),
    " as decided_at, ",
    rfc3339!("countersign.executable_until(p)"),
    " as executable_until, countersign.executable_until(p) <= clock_timestamp() as is_over, \
     extract(epoch from clock_timestamp() - p.decided_at)::bigint as age_s, count(*) over () as total \
     from countersign.proposal p \
     where p.status = 'confirmed' and p.decided_at < clock_timestamp() - interval '5 minutes' \
     order by p.decided_at desc, p.id desc limit $1::bigint"
);

const LATELY_SQL: &str = "select count(*) as confirmed from countersign.proposal p \
    where p.status = 'confirmed' and p.decided_at >= clock_timestamp() - interval '1 hour'";

const WAITING_SQL: &str = concat!(
    "select p.tier, count(*) as proposals, ",
    rfc3339!("min(p.created_at)"),
    " as oldest, ",
    rfc3339!("min(p.expires_at)"),
    " as next_to_expire from countersign.proposal p \
     where p.status = 'pending' and p.expires_at > clock_timestamp() group by p.tier order by p.tier"
);

/// Only looks at the oldest of them: there may be millions if sealing is stuck. A range with two ends, as in `gauges.sql`.
const UNSEALED_SQL: &str = concat!(
    "with first as materialized (select a.id from countersign.record a \
        where a.id > (select coalesce(max(l.record_id), 0) from countersign.leaf l) order by a.id limit 1) \
     select count(*) as records, ",
    rfc3339!("min(a.completed_at)"),
    " as oldest, (select count(*) from countersign.mutation w where w.status = 'pending') as pending, \
        coalesce((select max(n.id) from countersign.record n) >= (select first.id + 10000 from first), false) as has_more \
     from countersign.record a \
     where a.id >= (select first.id from first) and a.id < (select first.id + 10000 from first) \
       and a.completed_at < clock_timestamp() - interval '10 minutes'"
);

/// Only looks at the newest records, so that the query is fast in a ledger of any size.
const UNDOABLE_SQL: &str = concat!(
    "select distinct on (r.tool_name) r.correlation_id, r.tool_name, r.status, ",
    rfc3339!("r.admitted_at"),
    " as created_at from (select * from countersign.record n order by n.id desc limit 10000) r \
     where r.status = 'success' and r.rollback ->> 'undo_tool' = 'undo_mutation' and r.rollback ->> 'checked' = 'true' \
       and not exists (select from countersign.reversal v where v.correlation_id = r.correlation_id) \
     order by r.tool_name, r.id desc"
);

const KEYS_SQL: &str = "select k.key_id from countersign.fingerprint_key k \
    where k.used_at > clock_timestamp() - interval '150 seconds' order by k.key_id";

const UNTIL_SQL: &str = concat!(
    "select ",
    rfc3339!("countersign.executable_until(p)"),
    " as executable_until from countersign.proposal p where p.proposal_id = $1::uuid"
);

impl Doctor {
    pub(crate) fn new(records: Records, settings: &LedgerOptions) -> Self {
        Self { records, abandoned_after_s: (settings.call_deadline + BEYOND_DEADLINE).as_secs() }
    }

    /// Whether this login has the role of the console and is not a superuser.
    pub async fn is_console(&self) -> Result<bool, pg::Error> {
        Ok(self.first(IS_CONSOLE_SQL, &[]).await? == Some(Value::Bool(true)))
    }

    /// Facts about the PostgreSQL server. This works without a ledger.
    pub async fn server(&self) -> Result<ServerFacts, pg::Error> {
        self.one(SERVER_SQL, &[]).await
    }

    /// The standbys of the PostgreSQL server. This works without a ledger.
    pub async fn replication(&self) -> Result<ReplicationFacts, pg::Error> {
        self.one(REPLICATION_SQL, &[]).await
    }

    /// The logins that can approve proposals, except superusers.
    pub async fn approvers(&self) -> Result<Vec<String>, pg::Error> {
        self.texts(APPROVERS_SQL).await
    }

    /// The policies of row level security that believe a setting of the caller: `policy on schema.table`.
    pub async fn policies_over_settings(&self) -> Result<Vec<String>, pg::Error> {
        self.texts(POLICIES_SQL).await
    }

    /// Attempts that have been pending for longer than a call may take, newest first.
    pub async fn abandoned_records(&self) -> Result<Vec<AbandonedRecord>, pg::Error> {
        let params = [Some(self.abandoned_after_s.to_string()), Some(MAX_FOUND.to_string())];
        self.records.rows(PENDING_SQL, &params).await
    }

    /// Proposals that were approved more than 5 minutes ago and neither executed nor ended, newest first.
    pub async fn stuck_proposals(&self) -> Result<Vec<StuckProposal>, pg::Error> {
        self.records.rows(CONFIRMED_SQL, &[Some(MAX_FOUND.to_string())]).await
    }

    /// The number of proposals that were approved within the last hour and have not ended.
    pub async fn confirmed_lately(&self) -> Result<u64, pg::Error> {
        Ok(self.first(LATELY_SQL, &[]).await?.and_then(|count| count.as_u64()).unwrap_or_default())
    }

    /// The proposals that wait for a decision, by tier.
    pub async fn waiting_proposals(&self) -> Result<Vec<WaitingProposals>, pg::Error> {
        self.records.rows(WAITING_SQL, &[]).await
    }

    /// The records that ended more than 10 minutes ago and are not sealed.
    pub async fn unsealed_records(&self) -> Result<UnsealedRecords, pg::Error> {
        self.one(UNSEALED_SQL, &[]).await
    }

    /// For each tool, in alphabetical order, the newest write that can be undone by its recorded effects, according
    /// to its receipt.
    pub async fn newest_undoable(&self) -> Result<Vec<RecordName>, pg::Error> {
        self.records.rows(UNDOABLE_SQL, &[]).await
    }

    /// The ids of the fingerprint keys that servers reported within the last 2.5 minutes. Each server reports its key
    /// every minute.
    pub async fn fingerprint_keys(&self) -> Result<Vec<String>, pg::Error> {
        self.texts(KEYS_SQL).await
    }

    /// The time until which a server may execute this proposal; `None` if it does not exist or is not approved.
    pub async fn executable_until(&self, id: ProposalId) -> Result<Option<String>, pg::Error> {
        Ok(self.first(UNTIL_SQL, &[Some(id.to_string())]).await?.and_then(|time| time.as_str().map(str::to_owned)))
    }

    /// The only row, or the default if there is none.
    async fn one<T: DeserializeOwned + Default>(&self, sql: &str, params: &[Option<String>]) -> Result<T, pg::Error> {
        Ok(self.records.rows(sql, params).await?.into_iter().next().unwrap_or_default())
    }

    /// The first value of the first row.
    async fn first(&self, sql: &str, params: &[Option<String>]) -> Result<Option<Value>, pg::Error> {
        let row = self.records.objects(sql, params).await?.into_iter().next();
        Ok(row.and_then(|row| row.into_iter().next()).map(|(_, value)| value))
    }

    /// The first column of all rows, as text.
    async fn texts(&self, sql: &str) -> Result<Vec<String>, pg::Error> {
        let rows = self.records.objects(sql, &[]).await?.into_iter();
        Ok(rows.filter_map(|row| row.into_iter().next()?.1.as_str().map(str::to_owned)).collect())
    }
}
