//! Citus: revokes its functions that act on other nodes, outside of the transaction that calls them, and finds its
//! tables, which cannot be tracked. Citus grants the functions to PUBLIC, so a login that may only read could write with
//! them.

use super::Setup;
use super::tables::Table;
use crate::setup::schema::SchemaError;

/// Whether the database has Citus.
const IS_THERE_SQL: &str = "select 1::text where to_regclass('pg_catalog.pg_dist_partition') is not null";

/// The table, or one of its partitions, if Citus changes its rows in shards: it is distributed, or has copies on other
/// nodes.
const SHARDED_SQL: &str = "\
select min(t.oid::regclass::text) \
from (select $1::oid union select p.relid from pg_partition_tree($1::oid::regclass) p) t (oid) \
join pg_dist_partition d on d.logicalrelid::oid = t.oid \
where d.partmethod <> 'n' or exists ( \
    select from pg_dist_shard s join pg_dist_placement p on p.shardid = s.shardid \
    where s.logicalrelid::oid = t.oid and p.groupid <> (select g.groupid from pg_dist_local_group g)) \
having count(*) > 0";

/// The functions that PUBLIC may execute, by name and arguments, and whether this login may revoke that. It excludes
/// functions that Citus itself calls for writes of ordinary logins (`lock_shard_resources`).
const OPEN_SQL: &str = "\
select p.oid::regprocedure::text, \
    (r.rolsuper or pg_has_role(p.proowner, 'usage'))::text \
from pg_proc p join pg_depend d on d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e' \
join pg_extension e on d.refclassid = 'pg_extension'::regclass and e.oid = d.refobjid and e.extname = 'citus' \
join pg_roles r on r.rolname = current_user \
where p.prokind in ('f', 'p') and p.prorettype <> 'trigger'::regtype \
  and p.proname ~ ('^(run_command_on_|master_run_on_worker|citus_check_c|citus_run_local_command' \
    || '|citus_(move|copy|rebalance|job|split|drain|stat_tenants_.*reset)|rebalance_table_shards|replicate_table_shards' \
    || '|(master|citus)_(move|copy)_shard|worker_(apply|create|drop|copy|split|change|alter|adjust)|isolate_|undistribute' \
    || '|alter_(distributed|table)|create_(distributed|reference)|update_distributed|truncate_local)') \
  and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a \
              where a.grantee = 0 and a.privilege_type = 'EXECUTE') \
order by 1";

impl Setup {
    /// Revokes these functions from PUBLIC. Superusers keep them, and so do roles with a grant of their own.
    pub(super) async fn revoke_citus(&mut self) -> Result<(), SchemaError> {
        let open = self.rows::<2>(OPEN_SQL, &[]).await?;
        if open.is_empty() {
            return Ok(());
        }
        let count = open.len();
        if open.iter().any(|[_, may_revoke]| may_revoke != "true") {
            self.report.warnings.push(format!(
                "everybody may execute {count} functions of Citus that act on other nodes, outside of a transaction: run \
                 init as a superuser, which revokes them from PUBLIC"
            ));
            return Ok(());
        }
        for [function, _] in open {
            self.execute(format!("revoke execute on routine {function} from public")).await?;
        }
        self.report.changes.push(format!(
            "revoked {count} functions of Citus that act on other nodes, outside of a transaction, from PUBLIC: grant them to \
             the roles that distribute tables"
        ));
        self.report.warnings.push(
            "the workers of Citus have these functions as well: revoke them there (docs/setup/databases.md)".to_owned(),
        );
        Ok(())
    }

    /// Refuses to track a table of Citus. With `citus.enable_unsafe_triggers` it takes the triggers, which then run on
    /// shards and other nodes, where the ledger is not: every write would fail.
    pub(super) async fn refuse_sharded(&mut self, table: &Table) -> Result<(), SchemaError> {
        if self.rows::<1>(IS_THERE_SQL, &[]).await?.is_empty() {
            return Ok(());
        }
        match self.rows::<1>(SHARDED_SQL, &[Some(table.oid.clone())]).await?.concat().first() {
            None => Ok(()),
            Some(sharded) => Err(SchemaError::Tracking(format!(
                "{sharded} is a table of Citus, which changes its rows in shards or on other nodes: triggers that record them \
                 would run there, where the ledger is not, and every write would fail. Track tables of this database only"
            ))),
        }
    }
}
