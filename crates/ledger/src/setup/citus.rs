//! Citus: keeps the ledger on this node, revokes functions that act on other nodes, outside of the transaction that
//! calls them, and finds its tables, which cannot be tracked. Citus grants the functions to PUBLIC, so a login that may
//! only read could write with them.

use super::Setup;
use super::tables::Table;
use crate::setup::schema::SchemaError;

/// Whether the database has Citus.
const IS_THERE_SQL: &str = "select 1::text where to_regclass('pg_catalog.pg_dist_partition') is not null";

/// The table, or one of its partitions, if Citus keeps its rows: in shards, which are tables of their own, also for a
/// table on this node only.
const SHARDED_SQL: &str = "\
select min(t.oid::regclass::text) \
from (select $1::oid union select p.relid from pg_partition_tree($1::oid::regclass) p) t (oid) \
join pg_dist_partition d on d.logicalrelid::oid = t.oid having count(*) > 0";

/// The functions that PUBLIC may execute, by name and arguments, and whether this login may revoke that. It excludes
/// functions that Citus itself calls for writes of ordinary logins (`lock_shard_resources`). `column_to_column_name`
/// can crash the server (`functions.sql` of the crate `pg`); the view `citus_tables` calls it.
const OPEN_SQL: &str = "\
select p.oid::regprocedure::text, \
    (r.rolsuper or pg_has_role(p.proowner, 'usage'))::text \
from pg_proc p join pg_depend d on d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e' \
join pg_extension e on d.refclassid = 'pg_extension'::regclass and e.oid = d.refobjid and e.extname = 'citus' \
join pg_roles r on r.rolname = current_user \
where p.prokind in ('f', 'p') and p.prorettype <> 'trigger'::regtype \
  and p.proname ~ ('^(run_command_on_|master_run_on_worker|broadcast_intermediate_result|column_to_column_name' \
    || '|citus_check_c|citus_run_local_command' \
    || '|citus_(move|copy|rebalance|job|split|drain|stat_tenants_.*reset)|rebalance_table_shards|replicate_table_shards' \
    || '|(master|citus)_(move|copy)_shard|worker_(apply|create|drop|copy|split|change|alter|adjust)|isolate_|undistribute' \
    || '|alter_(distributed|table)|create_(distributed|reference)|update_distributed|truncate_local)') \
  and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a \
              where a.grantee = 0 and a.privilege_type = 'EXECUTE') \
order by 1";

impl Setup {
    /// Keeps what is created next out of Citus, until [`Setup::share_with_nodes`]. Citus would create the ledger's schema
    /// and functions on every node, and, if it is set to, manage or distribute the ledger's tables. Roles and grants do
    /// belong on every node: Citus connects there with the login of the caller.
    pub(super) async fn keep_from_nodes(&mut self) -> Result<(), SchemaError> {
        self.set_propagation("off").await
    }

    pub(super) async fn share_with_nodes(&mut self) -> Result<(), SchemaError> {
        self.set_propagation("default").await
    }

    async fn set_propagation(&mut self, value: &str) -> Result<(), SchemaError> {
        if self.has_citus().await? {
            for setting in ["enable_ddl_propagation", "use_citus_managed_tables"] {
                self.execute(format!("set local citus.{setting} = {value}")).await?;
            }
        }
        Ok(())
    }

    async fn has_citus(&mut self) -> Result<bool, SchemaError> {
        Ok(!self.rows::<1>(IS_THERE_SQL, &[]).await?.is_empty())
    }

    /// Revokes these functions from PUBLIC. Superusers keep them, and so do roles with a grant of their own.
    pub(super) async fn revoke_citus(&mut self) -> Result<(), SchemaError> {
        let open = self.rows::<2>(OPEN_SQL, &[]).await?;
        if open.is_empty() {
            return Ok(());
        }
        let count = open.len();
        if open.iter().any(|[_, may_revoke]| may_revoke != "true") {
            self.report.warnings.push(format!(
                "everybody may execute {count} functions of Citus that act on other nodes, outside of a transaction, or \
                 can crash the server: run init as a superuser, which revokes them from PUBLIC"
            ));
            return Ok(());
        }
        for [function, _] in open {
            self.execute(format!("revoke execute on routine {function} from public")).await?;
        }
        self.report.changes.push(format!(
            "revoked {count} functions of Citus from PUBLIC, which act on other nodes, outside of a transaction, or can crash \
             the server: grant them to the roles that distribute tables"
        ));
        self.report.warnings.push(
            "the workers of Citus have these functions as well: revoke them there (docs/setup/databases.md)".to_owned(),
        );
        Ok(())
    }

    /// Refuses to track a table of Citus. It takes the triggers of a table on this node, and with
    /// `citus.enable_unsafe_triggers` those of others. They run on shards, in other sessions or on other nodes, where the
    /// write is not known: every write would fail.
    pub(super) async fn refuse_sharded(&mut self, table: &Table) -> Result<(), SchemaError> {
        if !self.has_citus().await? {
            return Ok(());
        }
        match self.rows::<1>(SHARDED_SQL, &[Some(table.oid.clone())]).await?.concat().first() {
            None => Ok(()),
            Some(sharded) => Err(SchemaError::Tracking(format!(
                "{sharded} is a table of Citus, which keeps its rows in shards: triggers that record them would run in its \
                 sessions, here or on other nodes, and every write would fail. Track tables that Citus does not manage"
            ))),
        }
    }
}
