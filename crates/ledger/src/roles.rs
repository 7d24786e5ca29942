//! The roles of the ledger: who owns it, and as whom servers log in (migrations/V5__roles.sql).

use pg::{Session, Step, Target};

/// The login that `init` makes for servers, unless another name is given.
pub const DEFAULT_WRITER: &str = "countersign_writer";

/// Makes the owner and the writer and hands the ledger over. A role that may not create roles gets a warning, not an
/// error: the ledger is then its own.
pub(crate) async fn ensure(session: &mut Session, writer: &str) -> Result<(), pg::Error> {
    let params = [Some(writer.to_owned())];
    let step = Step { sql: "select countersign.ensure_roles($1)", params: &params, param_types: &[] };
    match session.run(&[step]).await.map_err(|failed| failed.error) {
        Ok(_) => Ok(()),
        Err(pg::Error::Server(error)) if error.sqlstate == "42501" => {
            tracing::warn!(
                %error,
                "no roles were made for the ledger: this role may not; it owns the ledger, and a server that logs in as it can change the records"
            );
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Everything that lets a login do more than the manifests' statements and the ledger's protocol need.
const EXCESS_SQL: &str = "\
with mine as (select g.* from pg_roles g where pg_has_role(current_user, g.oid, 'member')), \
     me as (select r.rolsuper from pg_roles r where r.rolname = current_user) \
select current_user::text, array_to_json(case when me.rolsuper then array['is a superuser'] else array( \
    select x.power from (values \
        (1, (select 'may become the superuser ' || string_agg(rolname, ', ' order by rolname) from mine where rolsuper)), \
        (2, case when exists (select from pg_class c where c.relnamespace = 'countersign'::regnamespace \
                              and c.relkind = 'r' and pg_has_role(current_user, c.relowner, 'member')) \
            then 'owns the ledger' end), \
        (3, case when exists (select from pg_class c where c.relnamespace = 'countersign'::regnamespace \
                              and c.relkind = 'r' and not pg_has_role(current_user, c.relowner, 'member') \
                              and has_table_privilege(c.oid, 'insert, update, delete, truncate')) \
            then 'may change the ledger''s tables' end), \
        (4, (select 'may create roles' from mine where rolcreaterole limit 1)), \
        (5, (select 'bypasses row level security' from mine where rolbypassrls limit 1)), \
        (6, (select 'may replicate' from mine where rolreplication limit 1)), \
        (7, (select 'is a member of ' || string_agg(rolname, ', ' order by rolname) from mine \
             where rolname in ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program', \
                               'pg_signal_backend', 'pg_write_all_data'))) \
    ) as x (number, power) where x.power is not null order by x.number) end) \
from me";

/// Why this login can do more than a server needs; `None` if it cannot.
///
/// # Errors
/// That the database cannot be asked.
pub async fn excess_of_server(target: &Target) -> Result<Option<String>, pg::Error> {
    let mut session = Session::connect(target, &[("search_path", "pg_catalog")]).await?;
    let outcomes = session.run(&[Step::plain(EXCESS_SQL)]).await.map_err(|failed| failed.error)?;
    session.close().await;
    let row = outcomes.into_iter().next().and_then(|outcome| outcome.rows.into_iter().next());
    let Some([Some(role), Some(powers)]) = row.and_then(|row| <[Option<String>; 2]>::try_from(row).ok()) else {
        return Ok(None);
    };
    let powers: Vec<String> = serde_json::from_str(&powers).unwrap_or_default();
    Ok((!powers.is_empty()).then(|| format!("the server logs in as \"{role}\", which {}", powers.join(", "))))
}
