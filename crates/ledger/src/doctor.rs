//! Reports stuck work and wrong states: one query each, which the servers' login may run (promises C5-09, C5-10).
//! The caller interprets the answers.

use serde_json::{Map, Value};
use types::ProposalId;

use crate::options::LedgerOptions;
use crate::records::Records;
use crate::sweep::BEYOND_DEADLINE;
use crate::values::rfc3339;

/// Asks one database, and the ledger in it.
#[derive(Debug, Clone)]
pub struct Doctor {
    records: Records,
    /// After how many seconds a record that is pending was abandoned.
    abandoned_after_s: u64,
}

/// The most rows of one finding; each says in `total` how many there are.
pub const MOST_FOUND: u32 = 20;

const SERVER_SQL: &str = "select pg_catalog.current_setting('server_version') as version, \
    pg_catalog.current_setting('server_version_num')::integer as number, pg_catalog.current_database()::text as database, \
    current_user::text as login, pg_catalog.pg_is_in_recovery() as is_standby";

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

const UNSEALED_SQL: &str = concat!(
    "select count(*) as records, ",
    rfc3339!("min(a.completed_at)"),
    " as oldest, (select count(*) from countersign.mutation w where w.status = 'pending') as pending \
     from countersign.record a \
     where a.id > (select coalesce(max(l.record_id), 0) from countersign.leaf l) \
       and a.completed_at < clock_timestamp() - interval '10 minutes'"
);

/// Servers say which key they have every minute.
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

    /// Whether this login is one of the console, and no superuser.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn is_console(&self) -> Result<bool, pg::Error> {
        let rows = self.records.objects(IS_CONSOLE_SQL, &[]).await?;
        Ok(rows.first().and_then(|row| row.get("is_console")) == Some(&Value::Bool(true)))
    }

    /// Facts about the server: `version`, `number` (160004 for 16.4), `database`, `login`, `is_standby`. Needs no
    /// ledger.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn server(&self) -> Result<Map<String, Value>, pg::Error> {
        self.one(SERVER_SQL, &[]).await
    }

    /// The logins that have the role `countersign_approver`, superusers aside.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn approvers(&self) -> Result<Vec<String>, pg::Error> {
        let rows = self.records.objects(APPROVERS_SQL, &[]).await?;
        Ok(rows.iter().filter_map(|row| row.get("login")?.as_str().map(str::to_owned)).collect())
    }

    /// Records that are pending for longer than a call may take, newest first: `correlation_id`, `account_id`, `tool_name`,
    /// `created_at`, `age_s`, `total`.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn abandoned_records(&self) -> Result<Vec<Map<String, Value>>, pg::Error> {
        let params = [Some(self.abandoned_after_s.to_string()), Some(MOST_FOUND.to_string())];
        self.records.objects(PENDING_SQL, &params).await
    }

    /// Proposals that were agreed to over 5 minutes ago and neither carried out nor ended, newest first: `proposal_id`,
    /// `account_id`, `tool_name`, `tier`, `status`, `decided_by`, `created_at`, `decided_at`, `executable_until`, `is_over`,
    /// `age_s`, `total`.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn stuck_proposals(&self) -> Result<Vec<Map<String, Value>>, pg::Error> {
        self.records.objects(CONFIRMED_SQL, &[Some(MOST_FOUND.to_string())]).await
    }

    /// The number of proposals that were approved within the last hour and have not ended yet.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn confirmed_lately(&self) -> Result<u64, pg::Error> {
        let row = self.one(LATELY_SQL, &[]).await?;
        Ok(row.get("confirmed").and_then(Value::as_u64).unwrap_or_default())
    }

    /// Proposals that wait for a decision, a row a tier: `tier`, `proposals`, `oldest`, `next_to_expire`.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn waiting_proposals(&self) -> Result<Vec<Map<String, Value>>, pg::Error> {
        self.records.objects(WAITING_SQL, &[]).await
    }

    /// Records that were final over 10 minutes ago and are not sealed: `records`, `oldest`; and `pending`, how many records
    /// others may have to wait for.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn unsealed_records(&self) -> Result<Map<String, Value>, pg::Error> {
        self.one(UNSEALED_SQL, &[]).await
    }

    /// The ids of the fingerprint keys that servers had within the last 2.5 minutes.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn fingerprint_keys(&self) -> Result<Vec<String>, pg::Error> {
        let rows = self.records.objects(KEYS_SQL, &[]).await?;
        Ok(rows.iter().filter_map(|row| row.get("key_id")?.as_str().map(str::to_owned)).collect())
    }

    /// Until when a server may execute this proposal; `None` if it does not exist, or is not approved.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn executable_until(&self, id: ProposalId) -> Result<Option<String>, pg::Error> {
        let row = self.one(UNTIL_SQL, &[Some(id.to_string())]).await?;
        Ok(row.get("executable_until").and_then(Value::as_str).map(str::to_owned))
    }

    /// The only row, or one without columns.
    async fn one(&self, sql: &str, params: &[Option<String>]) -> Result<Map<String, Value>, pg::Error> {
        Ok(self.records.objects(sql, params).await?.into_iter().next().unwrap_or_default())
    }
}
