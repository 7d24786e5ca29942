//! Maps partitions to their partitioned tables. A plan names partitions, but an auditor searches for the table.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pg::WriterPool;
use pg::value::text_array;
use tokio::time::Instant;

/// How long a name is cached, and the maximum number of names.
const SEEN_FOR: Duration = Duration::from_secs(60);
const MAX_NAMES: usize = 20_000;

/// The name of a table, in the form in which `pg` reads it from plans.
macro_rules! name {
    ($schema:literal, $table:literal) => {
        concat!(name!($schema), " || '.' || ", name!($table))
    };
    ($name:literal) => {
        concat!(
            "case when ",
            $name,
            " ~ '^[a-z_][a-z0-9_]*$' then ",
            $name,
            " else '\"' || replace(",
            $name,
            ", '\"', '\"\"') || '\"' end"
        )
    };
}

const ROOTS_SQL: &str = concat!(
    "select p.name, ",
    name!("n.nspname", "c.relname"),
    " from (select c.oid, ",
    name!("n.nspname", "c.relname"),
    " as name from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relispartition) p \
     join pg_class c on c.oid = pg_partition_root(p.oid) join pg_namespace n on n.oid = c.relnamespace \
     where p.name = any ($1::text[])"
);

#[derive(Debug)]
pub(super) struct PartitionRoots {
    /// The partitioned table of each name; `None` if the table is not a partition.
    names: HashMap<String, Option<String>>,
    since: Instant,
}

impl Default for PartitionRoots {
    fn default() -> Self {
        Self { names: HashMap::new(), since: Instant::now() }
    }
}

impl PartitionRoots {
    /// Looks up the names that are not cached, before `deadline`.
    pub(super) async fn look_up<'a>(
        &mut self,
        pool: &WriterPool,
        tables: impl Iterator<Item = &'a Arc<[String]>>,
        deadline: Instant,
    ) -> Result<(), pg::Error> {
        if self.since.elapsed() >= SEEN_FOR || self.names.len() > MAX_NAMES {
            *self = Self::default();
        }
        let unknown: BTreeSet<&String> =
            tables.flat_map(|tables| tables.iter()).filter(|name| !self.names.contains_key(*name)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let unknown: Vec<String> = unknown.into_iter().cloned().collect();
        let found = pool.run_one(ROOTS_SQL, &[Some(text_array(&unknown))], deadline).await?;
        self.names.extend(unknown.into_iter().map(|name| (name, None)));
        for row in found.rows {
            if let Ok([Some(name), root]) = <[Option<String>; 2]>::try_from(row) {
                self.names.insert(name, root);
            }
        }
        Ok(())
    }

    /// The tables, each once, with partitions replaced by their partitioned tables.
    pub(super) fn of<'a>(&'a self, tables: &'a [String]) -> Vec<&'a str> {
        let root = |name: &'a String| self.names.get(name).and_then(Option::as_deref).unwrap_or(name);
        tables.iter().map(root).collect::<BTreeSet<&str>>().into_iter().collect()
    }
}
