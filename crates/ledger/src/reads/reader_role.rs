//! The login of the read path. Security depends on the privileges of this login: a read-only transaction prevents
//! little, and a query can undo SET ROLE.

use pg::{CallerSeal, ConnectOptions, PipelineStatement, Reader, StatementResult};
use types::Secret;

use crate::Ledger;

/// The reason why `query_database` is not available.
#[derive(Debug, thiserror::Error)]
pub enum ReaderRoleError {
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// `init` could not create a reader's login, or an older version did not.
    #[error(
        "the ledger knows no reader login: run `countersign init` as a role that may create roles, \
         or give a login of your own with --read-url"
    )]
    NoLogin,
    #[error(
        "the reader logs in as \"{role}\", which {power}: agents would have that as well. \
         Use a login with SELECT only (`countersign init` makes one), or allow it with --allow-privileged-reader"
    )]
    Privileged { role: String, power: String },
}

impl Ledger {
    /// The options of the read path: the same database with the reader's login.
    pub async fn reader_login(&self) -> Result<ConnectOptions, ReaderRoleError> {
        self.login(self.writer.target(), false).await?.ok_or(ReaderRoleError::NoLogin)
    }

    /// The login that reads as the roles of callers, on the server of the reader. `None` if the ledger has none.
    pub async fn callers_login(&self, reader: &ConnectOptions) -> Result<Option<ConnectOptions>, pg::Error> {
        self.login(reader, true).await
    }

    async fn login(&self, target: &ConnectOptions, for_callers: bool) -> Result<Option<ConnectOptions>, pg::Error> {
        let sql = "select role_name, password from countersign.reader_credentials($1)";
        let row = self.rows(sql, &[Some(for_callers.to_string())]).await?.into_iter().next();
        Ok(match row.and_then(|row| <[Option<String>; 2]>::try_from(row).ok()) {
            Some([Some(role), password]) => Some(target.as_role(&role, password.map(Secret::new))),
            _ => None,
        })
    }

    /// The seal that shows the database on whose behalf a read runs.
    pub async fn caller_seal(&self) -> Result<CallerSeal, pg::Error> {
        let key = self.rows("select countersign.caller_key()", &[]).await?.into_iter().flatten().flatten().next();
        let key = key.ok_or_else(|| std::io::Error::other("the ledger has no key for callers"))?;
        Ok(CallerSeal::new(Secret::new(key)))
    }
}

const POWER_SQL: &str = "\
select current_user, case \
    when (select rolsuper from pg_catalog.pg_roles where rolname = current_user) then 'is a superuser' \
    else (select 'is a member of ' || rolname from pg_catalog.pg_roles \
          where (rolsuper or rolname in \
                ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program', 'pg_signal_backend', \
                 'pg_read_all_data', 'pg_write_all_data')) \
            and pg_catalog.pg_has_role(current_user, oid, 'member') \
          union all \
          select 'may read the ledger (countersign.' || relname || ')' from pg_catalog.pg_class \
          where relnamespace = pg_catalog.to_regnamespace('countersign') and relkind in ('r', 'v') \
            and pg_catalog.has_any_column_privilege(oid, 'select') order by 1 limit 1) end";

/// Checks that the reader's login cannot read files, run programs, signal other sessions, or read the ledger or all
/// data.
pub async fn check_reader(reader: &Reader) -> Result<(), ReaderRoleError> {
    let mut lease = reader.acquire().await?;
    let outcomes =
        lease.session().run(&[PipelineStatement::without_params(POWER_SQL)]).await.map_err(|failed| failed.error)?;
    match outcomes.into_iter().next().and_then(StatementResult::into_row) {
        Some([Some(role), Some(power)]) => Err(ReaderRoleError::Privileged { role, power }),
        _ => Ok(()),
    }
}

/// $1: the roles that callers may have.
const REACHABLE_SQL: &str = "\
select 'may become ' || quote_ident(r.rolname) || ', which no profile and no claim names' from pg_roles r \
where r.rolname <> session_user and r.rolname <> all ($1::name[]) and pg_has_role(session_user, r.oid, 'member') \
union all \
(select 'may read ' || format('%I.%I', n.nspname, c.relname) || ' without a role' \
 from pg_class c join pg_namespace n on n.oid = c.relnamespace \
 where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname <> 'information_schema' and left(n.nspname, 3) <> 'pg_' \
   and has_schema_privilege(session_user, n.oid, 'usage') and has_any_column_privilege(session_user, c.oid, 'select') \
 order by 1 limit 1)";

/// What a query for a caller can reach that leaves the caller's role: each the end of a sentence about the login that
/// reads for callers with one of these roles.
pub async fn reachable_without_role(reader: &Reader, roles: &[String]) -> Result<Vec<String>, pg::Error> {
    let mut lease = reader.for_callers().acquire().await?;
    let roles = [Some(pg::value::text_array(roles))];
    let outcomes = lease.session().run(&[PipelineStatement::new(REACHABLE_SQL, &roles)]).await;
    let outcomes = outcomes.map_err(|failed| failed.error)?;
    Ok(outcomes.into_iter().flat_map(|outcome| outcome.rows).flatten().flatten().collect())
}

const CHANGEABLE_SQL: &str = "\
select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace \
where c.relkind in ('r', 'p', 'v', 'f') and n.nspname <> 'information_schema' and left(n.nspname, 3) <> 'pg_' \
  and (pg_has_role(c.relowner, 'usage') or has_table_privilege(c.oid, 'insert, update, delete, truncate') \
       or has_any_column_privilege(c.oid, 'insert, update')) \
order by 1 limit 1";

/// A table that the reader's login may change; `None` if it may change none. For a login that `init` has not made: the
/// read-only transaction keeps a query from changing the table, and the login does not. The owner of a table also reads
/// past its row level security.
pub async fn changeable_table(reader: &Reader) -> Result<Option<String>, pg::Error> {
    let mut lease = reader.acquire().await?;
    let step = PipelineStatement::without_params(CHANGEABLE_SQL);
    let outcomes = lease.session().run(&[step]).await.map_err(|failed| failed.error)?;
    Ok(outcomes.into_iter().flat_map(|outcome| outcome.rows).flatten().flatten().next())
}
