//! Finds settings that `ALTER ROLE .. SET` has given to the servers' logins, by an administrator or by SQL that ran
//! within a write. They apply to every later session of the login.

use crate::Ledger;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginSetting {
    /// The scope of the setting: `role countersign_writer`, `database shop`, or both.
    pub scope: String,
    /// Name and value: `search_path=evil`.
    pub setting: String,
}

impl LoginSetting {
    /// How the setting breaks the ledger; `None` if it does not.
    #[must_use]
    pub fn breaks(&self) -> Option<&'static str> {
        let (name, value) = self.setting.split_once('=')?;
        let is_on = ["on", "true", "yes", "1"].iter().any(|on| value.eq_ignore_ascii_case(on));
        match name.to_ascii_lowercase().as_str() {
            "default_transaction_read_only" if is_on => Some("with it writes are refused"),
            "session_replication_role" if !value.eq_ignore_ascii_case("origin") => {
                Some("with it triggers do not fire, those that protect the ledger among them")
            }
            _ => None,
        }
    }
}

/// Settings of the servers' logins and of the database, except those that only change limits, logging, formats and
/// the choice of plans. A search path of the whole database is common and has no effect on sessions of servers.
const SETTINGS_SQL: &str = "\
select concat_ws(' in ', 'role ' || pg_get_userbyid(nullif(s.setrole, 0)), \
                 case when s.setdatabase <> 0 then 'database ' || current_database() end), c.setting \
from pg_db_role_setting s cross join unnest(s.setconfig) as c (setting) \
where (s.setdatabase = 0 or s.setdatabase = (select d.oid from pg_database d where d.datname = current_database())) \
  and (s.setrole = 0 or s.setrole in (select r.oid from pg_roles r where r.rolname = any ($1::name[]) \
      or r.rolname in (select w.role_name from countersign.writer_login w))) \
  and not (s.setrole = 0 and c.setting ~* '^search_path=') \
  and c.setting !~* '^(log_|lc_|enable_|jit|max_parallel_|tcp_|auto_explain[.]|pg_stat_statements[.])' \
  and split_part(lower(c.setting), '=', 1) <> all (array['application_name', 'bytea_output', 'client_connection_check_interval', \
      'client_encoding', 'client_min_messages', 'cpu_tuple_cost', 'datestyle', 'deadlock_timeout', 'default_statistics_target', \
      'default_transaction_isolation', 'effective_cache_size', 'effective_io_concurrency', 'extra_float_digits', \
      'idle_in_transaction_session_timeout', 'idle_session_timeout', 'intervalstyle', 'lock_timeout', 'maintenance_work_mem', \
      'password_encryption', 'plan_cache_mode', 'random_page_cost', 'seq_page_cost', 'statement_timeout', 'temp_buffers', \
      'temp_file_limit', 'timezone', 'track_activities', 'transaction_timeout', 'work_mem']) \
order by 1, 2";

impl Ledger {
    /// The unexpected settings of these logins, of all servers' logins, and of the database.
    pub async fn unexpected_settings(&self, logins: &[&str]) -> Result<Vec<LoginSetting>, pg::Error> {
        let logins: Vec<String> = logins.iter().map(|login| (*login).to_owned()).collect();
        let found = self.rows(SETTINGS_SQL, &[Some(pg::value::text_array(&logins))]).await?;
        let setting = |row| match <[Option<String>; 2]>::try_from(row) {
            Ok([Some(scope), Some(setting)]) => Some(LoginSetting { scope, setting }),
            _ => None,
        };
        Ok(found.into_iter().filter_map(setting).collect())
    }
}
