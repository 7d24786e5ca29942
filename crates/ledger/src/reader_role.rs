//! The login of the read path. The login is the wall: a read-only transaction stops little, and SET ROLE is undone by
//! the query itself (design.md section 4).

use contract::Secret;
use pg::{Reader, Session, Step, Target};
use uuid::Uuid;

/// Why `query_database` is not served.
#[derive(Debug, thiserror::Error)]
pub enum ReaderRoleError {
    /// The database cannot be asked.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// `init` could not make a login, or an older one made none.
    #[error(
        "the ledger knows no reader login: run `countersign init` as a role that may create roles, \
         or give a login of your own with --read-url"
    )]
    NoLogin,
    /// The login can do more than read tables.
    #[error(
        "the reader logs in as \"{role}\", which {power}: a read-only transaction cannot contain that. \
         Use a login with SELECT only (`countersign init` makes one), or allow it with --allow-privileged-reader"
    )]
    Privileged {
        /// The role.
        role: String,
        /// What makes it too powerful.
        power: String,
    },
}

/// Makes the login and grants it what is there. A role that may not create roles gets a warning, not an error: the
/// operator can give a login of their own.
pub(crate) async fn ensure(session: &mut Session) -> Result<(), pg::Error> {
    // Two version 4 UUIDs: 244 random bits from the operating system.
    let password = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let params = [Some(password)];
    let step = Step { sql: "select countersign.ensure_reader($1)", params: &params, param_types: &[] };
    match session.run(&[step]).await.map_err(|failed| failed.error) {
        Ok(_) => Ok(()),
        Err(pg::Error::Server(error)) if error.sqlstate == "42501" => {
            tracing::warn!(%error, "no reader login was made: this role may not; query_database needs --read-url");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The target of the read path: the same database, as the reader's login.
///
/// # Errors
/// [`ReaderRoleError::NoLogin`] if there is none, or that the database cannot be asked.
pub async fn reader_login(target: &Target) -> Result<Target, ReaderRoleError> {
    let mut session = Session::connect(target, &[]).await.map_err(pg::Error::from)?;
    let step = Step::plain("select role_name, password from countersign.reader_credentials()");
    let outcomes = session.run(&[step]).await.map_err(|failed| failed.error)?;
    session.close().await;
    let row = outcomes.into_iter().next().and_then(|outcome| outcome.rows.into_iter().next());
    match row.and_then(|row| <[Option<String>; 2]>::try_from(row).ok()) {
        Some([Some(role), password]) => Ok(target.as_role(&role, password.map(Secret::new))),
        _ => Err(ReaderRoleError::NoLogin),
    }
}

const POWER_SQL: &str = "\
select current_user, case \
    when (select rolsuper from pg_catalog.pg_roles where rolname = current_user) then 'is a superuser' \
    else (select 'is a member of ' || rolname from pg_catalog.pg_roles \
          where (rolsuper or rolname in \
                ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program', 'pg_signal_backend')) \
            and pg_catalog.pg_has_role(current_user, oid, 'member') order by rolname limit 1) end";

/// Makes sure that the reader's login cannot read files, run programs or signal others.
///
/// # Errors
/// [`ReaderRoleError::Privileged`] if it can, or that the database cannot be asked.
pub async fn check_reader(reader: &Reader) -> Result<(), ReaderRoleError> {
    let mut lease = reader.lease().await?;
    let outcomes = lease.session().run(&[Step::plain(POWER_SQL)]).await.map_err(|failed| failed.error)?;
    let row = outcomes.into_iter().next().and_then(|outcome| outcome.rows.into_iter().next());
    match row.and_then(|row| <[Option<String>; 2]>::try_from(row).ok()) {
        Some([Some(role), Some(power)]) => Err(ReaderRoleError::Privileged { role, power }),
        _ => Ok(()),
    }
}
