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
select current_user::text, array_to_json(array_remove(array[ \
    case when r.rolsuper then 'is a superuser' end, \
    case when not r.rolsuper and pg_has_role(current_user, c.relowner, 'member') then 'owns the ledger' end, \
    case when not r.rolsuper and not pg_has_role(current_user, c.relowner, 'member') \
          and has_table_privilege(c.oid, 'insert, update, delete, truncate') then 'may change the ledger''s tables' end, \
    case when r.rolcreaterole and not r.rolsuper then 'may create roles' end, \
    case when r.rolbypassrls and not r.rolsuper then 'bypasses row level security' end, \
    case when r.rolreplication and not r.rolsuper then 'may replicate' end] || array( \
        select 'is a member of ' || g.rolname from pg_roles g \
        where not r.rolsuper and pg_has_role(current_user, g.oid, 'member') and g.rolname in ('pg_read_server_files', \
            'pg_write_server_files', 'pg_execute_server_program', 'pg_signal_backend', 'pg_write_all_data') \
        order by 1), null)) \
from pg_roles r, pg_class c where r.rolname = current_user and c.oid = 'countersign.mutation_audit'::regclass";

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
