//! Removes a ledger from a database: its schema with the triggers of tracked tables, what its logins were granted, and the
//! roles that `init` made. Tables of applications stay as they are.

use pg::ConnectOptions;
use pg::value::identifier;

use super::Setup;
use crate::roles::{APPROVER, CONSOLE, OPERATOR, OWNER};
use crate::setup::schema::{self, SchemaError};

/// What a removal has done, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovalReport {
    pub database: String,
    /// The number of records of writes that are gone.
    pub records: u64,
    /// The number of tables that are tracked no more.
    pub tables: u64,
    /// The statements, in order.
    pub statements: Vec<String>,
    /// The roles that stay, each with the reason.
    pub kept_roles: Vec<String>,
}

const COUNTS_SQL: &str = "\
select (select count(*) from countersign.record)::text, (select count(*) from countersign.tracked t where t.is_current)::text";

/// Objects of others that use the ledger, such as a policy with `countersign.claim`: they would go with it.
const USERS_SQL: &str = "\
with own as ( \
    select 'pg_proc'::regclass as class, p.oid from pg_proc p where p.pronamespace = 'countersign'::regnamespace \
    union all select 'pg_class'::regclass, c.oid from pg_class c where c.relnamespace = 'countersign'::regnamespace \
    union all select 'pg_type'::regclass, t.oid from pg_type t where t.typnamespace = 'countersign'::regnamespace \
) \
select distinct pg_describe_object(d.classid, d.objid, d.objsubid) \
from own join pg_depend d on d.refclassid = own.class and d.refobjid = own.oid and d.deptype in ('n', 'a') \
cross join lateral pg_identify_object(d.classid, d.objid, d.objsubid) i \
where coalesce(i.schema, '') <> 'countersign' and i.identity !~ '\\mcountersign\\.' \
  and not (d.classid = 'pg_trigger'::regclass and i.identity like '\"!countersign%') \
order by 1 limit 20";

/// The roles of the ledger, before it is gone.
const ROLES_SQL: &str = "\
select r.rolname from pg_roles r where r.rolname = any ($1::text[]::name[]) \
    or r.rolname in (select w.role_name from countersign.writer_login w union select l.role_name from countersign.reader_login l) \
order by 1";

/// Of a role: whether another database has objects or rights of it, and an object of it in this one.
const USE_SQL: &str = "\
select coalesce((select string_agg(distinct b.datname, ', ') from pg_shdepend d join pg_database b on b.oid = d.dbid \
                 where d.refclassid = 'pg_authid'::regclass and d.refobjid = r.oid and b.datname <> current_database()), ''), \
       coalesce((select pg_describe_object(d.classid, d.objid, d.objsubid) from pg_shdepend d \
                 join pg_database b on b.oid = d.dbid and b.datname = current_database() \
                 where d.refclassid = 'pg_authid'::regclass and d.refobjid = r.oid and d.deptype = 'o' limit 1), '') \
from pg_roles r where r.rolname = $1";

/// Statements that revoke what a role was granted in this database alone.
const REVOKE_SQL: &str = "\
select distinct g.sql from ( \
    select format('revoke all on schema %I from %I', n.nspname, $1::text), n.nspacl from pg_namespace n \
    union all \
    select format('revoke all on %s %I.%I from %I', case c.relkind when 'S' then 'sequence' else 'table' end, n.nspname, c.relname, $1::text), c.relacl \
    from pg_class c join pg_namespace n on n.oid = c.relnamespace \
    union all \
    select format('revoke all on function %s from %I', p.oid::regprocedure, $1::text), p.proacl from pg_proc p \
    union all \
    select format('revoke all on database %I from %I', b.datname, $1::text), b.datacl from pg_database b where b.datname = current_database() \
) g (sql, acl) where exists (select from aclexplode(g.acl) a where a.grantee = to_regrole(quote_ident($1::text))::oid) order by 1";

/// Removes the ledger of this database, or with `is_dry_run` does so in a transaction that is rolled back.
///
/// # Errors
/// [`SchemaError`]: there is no ledger, something of others uses it, or a statement is not permitted.
pub async fn remove(target: &ConnectOptions, is_dry_run: bool) -> Result<RemovalReport, SchemaError> {
    schema::refuse_pooler(target)?;
    let mut setup = Setup::begin(target).await?;
    let removed = setup.remove().await.map_err(|error| setup.explained(error));
    setup.end(removed, is_dry_run).await
}

impl Setup {
    async fn remove(&mut self) -> Result<RemovalReport, SchemaError> {
        let database = self.dbname.clone();
        if self.rows::<1>("select nspname from pg_namespace where nspname = 'countersign'", &[]).await?.is_empty() {
            return Err(SchemaError::Tracking(format!(
                "the database \"{database}\" has no ledger. Nothing was changed"
            )));
        }
        let users = self.rows::<1>(USERS_SQL, &[]).await?.concat();
        if !users.is_empty() {
            let users = users.join("\n  ");
            return Err(SchemaError::Tracking(format!(
                "these objects use the ledger and would go with it: change or drop them first. Nothing was changed\n  {users}"
            )));
        }
        let mut report = RemovalReport { database, ..RemovalReport::default() };
        for [records, tables] in self.rows::<2>(COUNTS_SQL, &[]).await? {
            report.records = records.parse().unwrap_or_default();
            report.tables = tables.parse().unwrap_or_default();
        }
        let groups = pg::value::text_array(&[OWNER, APPROVER, CONSOLE, OPERATOR].map(str::to_owned));
        let roles = self.rows::<1>(ROLES_SQL, &[Some(groups)]).await?.concat();
        self.execute("drop schema countersign cascade".to_owned()).await?;
        for role in roles {
            report.kept_roles.extend(self.remove_role(&role).await?);
        }
        report.statements = std::mem::take(&mut self.report.statements);
        Ok(report)
    }

    /// Takes away what a role was granted here, and drops it if nothing else needs it; otherwise returns why it stays.
    async fn remove_role(&mut self, role: &str) -> Result<Option<String>, SchemaError> {
        let of_role = [Some(role.to_owned())];
        let [elsewhere, owned] = self.rows::<2>(USE_SQL, &of_role).await?.into_iter().next().unwrap_or_default();
        for [revoke] in self.rows::<1>(REVOKE_SQL, &of_role).await? {
            self.execute(revoke).await?;
        }
        let why = if !elsewhere.is_empty() {
            format!("the database {elsewhere} uses it")
        } else if !owned.is_empty() {
            format!("it owns {owned}")
        } else if !role.starts_with("countersign_") {
            "`init` may not have made it".to_owned()
        } else {
            // What is left are default privileges and the like.
            self.execute(format!("drop owned by {}", identifier(role))).await?;
            self.execute(format!("drop role {}", identifier(role))).await?;
            return Ok(None);
        };
        Ok(Some(format!("{role} stays: {why}")))
    }
}
