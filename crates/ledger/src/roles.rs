//! The roles of the ledger: its owner, and the logins of servers (`setup` creates them).

use pg::Reader;
use tokio::time::Instant;
use types::RoleName;

use crate::Ledger;

/// The login that `init` creates for servers if the operator gives no other name.
pub const DEFAULT_WRITER: &str = "countersign_writer";

/// The role that owns the ledger. It cannot log in.
pub const OWNER: &str = "countersign_owner";

/// The role of the people who approve proposals.
pub const APPROVER: &str = "countersign_approver";

/// The role of the console, which decides for the people whom it has verified.
pub const CONSOLE: &str = "countersign_console";

/// The role of the people who undo writes of any account, and who stop accounts.
pub const OPERATOR: &str = "countersign_operator";

/// Every privilege by which a login can do more than the manifests' statements and the ledger's protocol need. The
/// database may have no ledger.
const EXCESS_SQL: &str = "\
select s.rolname::text, array_to_json(case when s.rolsuper then array['is a superuser'] else array( \
    with mine as (select g.* from pg_roles g where pg_has_role(s.oid, g.oid, 'member')) \
    select x.power from (values \
        (1, (select 'may become the superuser ' || string_agg(rolname, ', ' order by rolname) from mine where rolsuper)), \
        (2, case when exists (select from pg_class c where c.relnamespace = to_regnamespace('countersign') \
                              and c.relkind = 'r' and pg_has_role(s.oid, c.relowner, 'member')) \
            then 'owns the ledger' end), \
        (3, case when exists (select from pg_class c where c.relnamespace = to_regnamespace('countersign') \
                              and c.relkind in ('r', 'v') and not pg_has_role(s.oid, c.relowner, 'member') \
                              and has_table_privilege(s.oid, c.oid, case c.relname when 'admission' then 'update, delete, truncate' \
                                                                    else 'insert, update, delete, truncate' end)) \
            then 'may change the ledger''s tables' end), \
        (4, case when exists (select from mine where rolname in ('countersign_approver', 'countersign_console')) \
                 or exists (select from pg_proc p where p.pronamespace = to_regnamespace('countersign') \
                            and p.proname in ('decide_as_person', 'decide_as_reviewer', 'decide_as_console') \
                            and has_function_privilege(s.oid, p.oid, 'execute')) \
            then 'may approve what its agents propose' end), \
        (5, case when exists (select from mine where rolname = 'countersign_operator') \
                 or exists (select from pg_proc p where p.pronamespace = to_regnamespace('countersign') \
                            and p.proname in ('admit_undo', 'freeze', 'unfreeze') and has_function_privilege(s.oid, p.oid, 'execute')) \
            then 'may undo the writes of every account, and freeze accounts' end), \
        (6, (select 'may create roles' from mine where rolcreaterole limit 1)), \
        (7, (select 'bypasses row level security' from mine where rolbypassrls limit 1)), \
        (8, (select 'may replicate' from mine where rolreplication limit 1)), \
        (9, (select 'is a member of ' || string_agg(rolname, ', ' order by rolname) from mine \
             where rolname in ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program', \
                               'pg_signal_backend', 'pg_write_all_data'))) \
    ) as x (number, power) where x.power is not null order by x.number) end) \
from pg_roles s where ";
const THIS_SQL: &str = "s.rolname = current_user";
const SERVERS_SQL: &str = "s.rolname in (select w.role_name from countersign.writer_login w) order by s.rolname";

/// A login, and its privileges beyond what a server needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExcessPrivileges {
    pub role: String,
    /// Phrases without a subject: `may create roles`. Empty if the login has no excess privileges.
    pub powers: Vec<String>,
}

impl Ledger {
    /// The reason why this login can do more than a server needs; `None` if it cannot.
    pub async fn check_server_role(&self) -> Result<Option<String>, pg::Error> {
        let excess = self.check_login().await?.filter(|excess| !excess.powers.is_empty());
        Ok(excess.map(|ExcessPrivileges { role, powers }| {
            format!("the server logs in as \"{role}\", which {}", powers.join(", "))
        }))
    }

    /// The excess privileges of the login of this ledger's connections.
    pub async fn check_login(&self) -> Result<Option<ExcessPrivileges>, pg::Error> {
        Ok(self.excess(THIS_SQL).await?.into_iter().next())
    }

    /// The logins that `init` has created for servers or that were named to it, each with its excess privileges.
    pub async fn check_all_server_roles(&self) -> Result<Vec<ExcessPrivileges>, pg::Error> {
        self.excess(SERVERS_SQL).await
    }

    /// Why statements of callers may not run as this role, over the logins of the server: the end of a sentence about
    /// the role. `None` if they may.
    pub async fn check_caller_role(
        &self,
        reader: Option<&Reader>,
        role: &RoleName,
        has_ledger: bool,
    ) -> Result<Option<String>, pg::Error> {
        if let Some(reader) = reader
            && let Some(why) = reader.for_callers().acquire().await?.session().check_caller_role(role).await?
        {
            return Ok(Some(why));
        }
        if !has_ledger {
            return Ok(None);
        }
        let deadline = Instant::now() + self.settings.call_deadline;
        self.writer.acquire(deadline).await?.session().check_caller_role(role).await
    }

    async fn excess(&self, which: &str) -> Result<Vec<ExcessPrivileges>, pg::Error> {
        let rows = self.rows(&format!("{EXCESS_SQL}{which}"), &[]).await?.into_iter();
        let excess = rows.filter_map(|row| match <[Option<String>; 2]>::try_from(row).ok()? {
            [Some(role), powers] => {
                let powers = powers.and_then(|powers| serde_json::from_str(&powers).ok()).unwrap_or_default();
                Some(ExcessPrivileges { role, powers })
            }
            _ => None,
        });
        Ok(excess.collect())
    }
}
