//! Finds the parameters and result columns of a statement without running it.
//!
//! PostgreSQL reports which table column a result column comes from, and the catalog says whether that column is NOT
//! NULL. This is not enough: columns from the nullable side of an outer join and columns of grouping sets come from
//! the same table columns and may be NULL. Only the plan shows this, so where it matters the statement is also
//! planned (EXPLAIN without ANALYZE).

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use types::{
    Column, ConditionShape, DescribeError, DescribeStatement, ReferencedObjects, RemotePart, Requirements,
    RequirementsCheck, StatementShape,
};

use crate::client::error::{Error, ServerError};
use crate::client::session::pooler_transaction::setting;
use crate::client::session::{PipelineStatement, Session, StatementResult};
use crate::client::wire::FieldDescription;
use crate::query::column_origins::{TableColumn, column_origins};
use crate::query::columns;
use crate::query::plan::{BACK_TO_SAVEPOINT, PlanParameters, PlanResult, RELEASE, SAVEPOINT, plan};
use crate::query::referenced_objects::{called, referenced_objects};
use crate::query::type_catalog::TypeCatalog;
use crate::query::value;
use crate::query::writer_pool::WriterPool;

/// The time limit for describing a statement: a locked table must not block the start indefinitely.
const DESCRIBE_DEADLINE: Duration = Duration::from_secs(30);

const DESCRIBED: &str = "countersign_described";

const HAS_CITUS_SQL: &str = "select 1 where pg_catalog.to_regclass('pg_catalog.pg_dist_partition') is not null";

/// The tables of Citus that this transaction has locked as a statement that writes does.
const DISTRIBUTED_TABLES_SQL: &str = "\
select n.nspname, c.relname from pg_catalog.pg_locks l \
join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) l.relation \
join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace \
join pg_catalog.pg_dist_partition d on d.logicalrelid::pg_catalog.oid operator(pg_catalog.=) c.oid \
where l.pid operator(pg_catalog.=) pg_catalog.pg_backend_pid() and l.locktype operator(pg_catalog.=) 'relation' and l.granted \
  and l.mode operator(pg_catalog.=) 'RowExclusiveLock' \
order by 1, 2";

/// The foreign tables among the tables of $1 (schemas) and $2 (names), and among their partitions and child tables.
const FOREIGN_TABLES_SQL: &str = "\
with recursive written (oid) as ( \
    select c.oid from rows from (unnest($1::text[]), unnest($2::text[])) as w (schema_name, table_name) \
    join pg_catalog.pg_namespace n on n.nspname = w.schema_name::name \
    join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.table_name::name \
    union \
    select i.inhrelid from written w join pg_catalog.pg_inherits i on i.inhparent = w.oid \
) \
select n.nspname, c.relname from written w join pg_catalog.pg_class c on c.oid = w.oid \
join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.relkind = 'f' order by 1, 2";

const SOURCE_SQL: &str = "\
select a.attnotnull and c.relkind <> 'f', i.indnkeyatts, a.attname, c.relkind = 'v' \
from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid \
left join pg_catalog.pg_index i on i.indrelid = a.attrelid and i.indisprimary and a.attnum = any(i.indkey::smallint[]) \
where a.attrelid = $1 and a.attnum = $2 and not a.attisdropped";

/// The functions with these names that a condition may not call, and the reasons. A plan shows only names, so a name
/// is refused if any function of that name is refused.
const REFUSED_IN_CONDITIONS_SQL: &str = concat!(
    "select f.proname, f.why from (",
    include_str!("read/functions.sql"),
    ") f where f.why is not null \
    union select p.proname, case when p.provolatile = 'v' then 'it is volatile: it has effects, or other results each time' \
        else 'it may read tables: a function that is not PostgreSQL''s own must be immutable' end \
    from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace \
    where p.proname = any ($1::pg_catalog.name[]) \
        and (p.provolatile = 'v' or p.provolatile = 's' and n.nspname <> 'pg_catalog') \
    order by 1, 2"
);

/// What is missing of extension $1 and role $2 (either may be NULL) for login $3, by default the session's; and the
/// schema of the extension.
const REQUIREMENTS_SQL: &str = "\
select case \
    when e.oid is null and $1::text is not null \
        then pg_catalog.format('the database lacks the extension %s (create extension %I)', $1, $1) \
    when $2::text is not null and not exists (select from pg_catalog.pg_roles r, pg_catalog.pg_roles u \
            where r.rolname = $2 and u.rolname = l.name and pg_catalog.pg_has_role(u.oid, r.oid, 'usage')) \
        then pg_catalog.format('the login %s lacks the role %s (grant %I to %I)', l.name, $2, $2, l.name) end, \
    pg_catalog.quote_ident(n.nspname) \
from (select coalesce($3::text, current_user) as name) l \
left join pg_catalog.pg_extension e on e.extname = $1 \
left join pg_catalog.pg_namespace n on n.oid = e.extnamespace";

struct Described {
    shape: StatementShape,
    /// The names of the functions that the plan shows.
    functions: BTreeSet<String>,
}

impl DescribeStatement for WriterPool {
    async fn describe(&self, sql: &str, param_types: &[u32]) -> Result<StatementShape, DescribeError> {
        self.describe_again(sql, param_types).await.map(|described| described.shape)
    }

    async fn check_requirements(&self, requirements: &Requirements) -> Result<RequirementsCheck, DescribeError> {
        self.check_requirements_of(requirements, None).await
    }

    async fn describe_condition(&self, sql: &str, param_types: &[u32]) -> Result<ConditionShape, DescribeError> {
        let Described { shape, functions } = self.describe_again(sql, param_types).await?;
        let refused = self.refused_in_conditions(functions).await;
        let refused_functions = refused.map_err(|error| DescribeError::Unavailable(error.to_string()))?;
        Ok(ConditionShape { shape, refused_functions })
    }
}

impl WriterPool {
    /// Checks what a tool requires whose statements this login runs; `None`: the login of the pool.
    pub async fn check_requirements_of(
        &self,
        requirements: &Requirements,
        login: Option<&str>,
    ) -> Result<RequirementsCheck, DescribeError> {
        let Requirements { extension, role } = requirements;
        let params = [extension.clone(), role.clone(), login.map(str::to_owned)];
        let answer = self.run_one(REQUIREMENTS_SQL, &params, Instant::now() + DESCRIBE_DEADLINE).await;
        let answer = answer.map_err(|error| DescribeError::Unavailable(error.to_string()))?;
        let no_answer =
            || DescribeError::Unavailable("the catalog gave no answer about extensions and roles".to_owned());
        let [missing, extension_schema] = answer.into_row().ok_or_else(no_answer)?;
        Ok(missing.map_or(RequirementsCheck::Met { extension_schema }, RequirementsCheck::Missing))
    }

    async fn refused_in_conditions(&self, functions: BTreeSet<String>) -> Result<Vec<(String, String)>, Error> {
        if functions.is_empty() {
            return Ok(Vec::new());
        }
        let names = value::text_array(&functions.into_iter().collect::<Vec<_>>());
        let deadline = Instant::now() + DESCRIBE_DEADLINE;
        let answer = self.run_one(REFUSED_IN_CONDITIONS_SQL, &[Some(names), Some("{}".to_owned())], deadline).await?;
        let texts = |row: Vec<Option<String>>| {
            let mut row = row.into_iter().flatten();
            Some((row.next()?, row.next()?))
        };
        Ok(answer.rows.into_iter().filter_map(texts).collect())
    }

    async fn describe_again(&self, sql: &str, param_types: &[u32]) -> Result<Described, DescribeError> {
        let deadline = Instant::now() + DESCRIBE_DEADLINE;
        let answer = match self.describe_once(sql, param_types, deadline).await {
            // The session may have been lost while it was in the pool (PostgreSQL restarted). The question is
            // repeated on a new session.
            Err(Error::Lost(error)) => {
                tracing::info!(%error, "a pooled connection was lost; describing again on a fresh one");
                self.retire_all();
                self.describe_once(sql, param_types, deadline).await
            }
            answer => answer,
        };
        answer.unwrap_or_else(|error| Err(DescribeError::Unavailable(error.to_string())))
    }

    /// The inner result is PostgreSQL's judgement of `sql`. The outer error means that there is no judgement.
    async fn describe_once(
        &self,
        sql: &str,
        param_types: &[u32],
        deadline: Instant,
    ) -> Result<Result<Described, DescribeError>, Error> {
        let mut lease = self.acquire(deadline).await?;
        tokio::time::timeout_at(deadline, ask_on(lease.session(), sql, param_types))
            .await
            .unwrap_or(Err(Error::Deadline))
    }
}

/// Through a pooler, all questions are asked in one transaction: the next transaction may have another backend,
/// without the statement prepared here.
async fn ask_on(
    session: &mut Session,
    sql: &str,
    param_types: &[u32],
) -> Result<Result<Described, DescribeError>, Error> {
    if !session.is_pooled() {
        return ask_here(session, sql, param_types, None).await;
    }
    session.begin(None, &[]).await.map_err(|failed| failed.error)?;
    let answer = ask_here(session, sql, param_types, Some((SAVEPOINT, RELEASE))).await;
    session.roll_back().await?;
    answer
}

/// `around` has the statements that keep a failed plan from failing an open transaction; `None` if none is open.
async fn ask_here(
    session: &mut Session,
    sql: &str,
    param_types: &[u32],
    around: Option<(&str, &str)>,
) -> Result<Result<Described, DescribeError>, Error> {
    let raw = match session.describe(DESCRIBED, sql, param_types).await {
        // An error that may not recur (a timeout, a shutdown of the server) says nothing about the text; neither does
        // an error of the catalog queries below.
        Err(Error::Server(error)) if !error.is_retryable() => return Ok(Err(refused(*error))),
        answer => answer?,
    };
    // The cached types are not used: a type may have changed since (ALTER TYPE .. ADD VALUE), and describing detects
    // this.
    let types = TypeCatalog::default();
    let params = types.resolve_all(session, &raw.params).await?;
    let planned = plan(session, around, DESCRIBED, PlanParameters::AnyValues(params.len())).await?;
    if around.is_some() && matches!(planned, PlanResult::Refused(_)) {
        session
            .run(&[BACK_TO_SAVEPOINT, RELEASE].map(PipelineStatement::without_params))
            .await
            .map_err(|failed| failed.error)?;
    }
    let functions = planned.functions();
    let referenced_objects =
        with_remote_tables(session, (sql, param_types, params.len()), planned.referenced_objects(), around.is_some())
            .await?;
    let Some(raw_columns) = raw.columns else {
        return Ok(match planned {
            // The statement has no plan. COMMIT in a manifest would end the transaction of the write protocol.
            PlanResult::Utility | PlanResult::Empty => Err(DescribeError::Refused {
                message:
                    "only SELECT, INSERT, UPDATE, DELETE and MERGE can be part of a manifest: COMMIT, CALL, DDL and \
                          other commands cannot"
                        .to_owned(),
                sqlstate: "0A000".to_owned(),
                hint: None,
                position: None,
            }),
            _ => {
                let shape =
                    StatementShape { params, columns: None, origins: Vec::new(), key: Vec::new(), referenced_objects };
                Ok(Described { shape, functions })
            }
        });
    };
    let mut columns = columns::resolve(&types, session, &raw_columns).await?;
    let sources = sources(session, &raw_columns).await?;
    if sources.iter().any(|source| source.not_null) && !planned.may_add_nulls() {
        for (column, source) in columns.iter_mut().zip(&sources) {
            column.not_null = source.not_null;
        }
    }
    let key = key(&columns, &raw_columns, &sources);
    let origins = column_origins(planned.plan(), sources.iter().map(|source| source.column.as_ref()));
    let shape = StatementShape { params, columns: Some(columns), origins, key, referenced_objects };
    Ok(Ok(Described { shape, functions }))
}

/// Adds the tables of other servers that the statement writes to: foreign tables, and tables of Citus.
async fn with_remote_tables(
    session: &mut Session,
    (sql, param_types, param_count): (&str, &[u32], usize),
    mut objects: ReferencedObjects,
    in_transaction: bool,
) -> Result<ReferencedObjects, Error> {
    // Citus plans no INSERT whose distribution column is a parameter.
    if matches!(objects, ReferencedObjects::Unplanned(_)) && has_citus(session).await? {
        let remote = parsed_tables(session, sql, param_types, in_transaction).await?;
        if !remote.is_empty() {
            let (schemas, tables) = (Vec::new(), Vec::new());
            return Ok(ReferencedObjects::Planned {
                schemas,
                changes: true,
                overwrites: true,
                locks: false,
                tables,
                remote,
            });
        }
    }
    if let ReferencedObjects::Planned { tables, remote, .. } = &mut objects {
        let written = || tables.iter().filter(|table| table.written);
        if written().next().is_some() {
            let names: [Vec<String>; 2] =
                [written().map(|it| it.schema.clone()).collect(), written().map(|it| it.table.clone()).collect()];
            let names = names.map(|names| Some(value::text_array(&names)));
            for row in session.rows(FOREIGN_TABLES_SQL, &names).await? {
                if let Ok([Some(schema), Some(table)]) = <[Option<String>; 2]>::try_from(row) {
                    remote.push(RemotePart::ForeignTable { schema, table });
                }
            }
        }
        let is_distributed = remote.contains(&RemotePart::Distributed);
        if (is_distributed || written().next().is_some()) && has_citus(session).await? {
            let found = distributed_tables(session, param_count, in_transaction).await?;
            if !found.is_empty() {
                remote.retain(|part| *part != RemotePart::Distributed);
                remote.extend(found);
            }
        }
    }
    Ok(objects)
}

/// The tables of Citus that the described statement writes to. Its plan has the names of shards,
/// or none; but planning locks the tables.
async fn distributed_tables(
    session: &mut Session,
    param_count: usize,
    in_transaction: bool,
) -> Result<Vec<RemotePart>, Error> {
    let explain = PlanParameters::AnyValues(param_count).explain(DESCRIBED, false);
    let (begin, end) = if in_transaction { (SAVEPOINT, BACK_TO_SAVEPOINT) } else { ("begin", "rollback") };
    let mode = format!("select {}", setting(&[("plan_cache_mode", "force_generic_plan")]));
    let steps = [begin, &mode, &explain, DISTRIBUTED_TABLES_SQL, end].map(PipelineStatement::without_params);
    let outcomes = session.run_large(&steps).await;
    session.forget(&explain)?;
    let outcomes = match outcomes {
        Ok(outcomes) => outcomes,
        Err(failed) => {
            session.batch_execute(end).await?;
            return Err(failed.error);
        }
    };
    Ok(tables_of(outcomes.into_iter().nth(3).map(|outcome| outcome.rows).unwrap_or_default()))
}

async fn has_citus(session: &mut Session) -> Result<bool, Error> {
    Ok(!session.rows(HAS_CITUS_SQL, &[]).await?.is_empty())
}

/// The tables of Citus that the text writes to, by the locks of its parsing.
async fn parsed_tables(
    session: &mut Session,
    sql: &str,
    param_types: &[u32],
    in_transaction: bool,
) -> Result<Vec<RemotePart>, Error> {
    let (begin, end) = if in_transaction { (SAVEPOINT, BACK_TO_SAVEPOINT) } else { ("begin", "rollback") };
    session.batch_execute(begin).await?;
    let rows = match session.describe(DESCRIBED, sql, param_types).await {
        Ok(_) => session.rows(DISTRIBUTED_TABLES_SQL, &[]).await,
        Err(error) => Err(error),
    };
    session.batch_execute(end).await?;
    rows.map(tables_of)
}

fn tables_of(rows: Vec<Vec<Option<String>>>) -> Vec<RemotePart> {
    let table = |row: Vec<Option<String>>| match <[Option<String>; 2]>::try_from(row) {
        Ok([Some(schema), Some(table)]) => Some(RemotePart::DistributedTable { schema, table }),
        _ => None,
    };
    rows.into_iter().filter_map(table).collect()
}

fn refused(error: ServerError) -> DescribeError {
    let ServerError { message, sqlstate, hint, position, .. } = error;
    DescribeError::Refused { message, sqlstate, hint, position }
}

/// Catalog facts about the table column that a result column comes from.
#[derive(Debug, Clone, Default)]
struct ColumnSource {
    /// The column; `None` for an expression.
    column: Option<TableColumn>,
    /// Whether the column is NOT NULL. For foreign tables this is only a claim.
    not_null: bool,
    /// The number of columns in the primary key of the table, if this is one of them.
    key_columns: Option<usize>,
}

async fn sources(session: &mut Session, columns: &[FieldDescription]) -> Result<Vec<ColumnSource>, Error> {
    let places: Vec<[Option<String>; 2]> = columns
        .iter()
        .map(|column| {
            let (table, number) = column.source.unwrap_or_default();
            [Some(table.to_string()), Some(number.to_string())]
        })
        .collect();
    let steps: Vec<PipelineStatement<'_>> =
        places.iter().map(|place| PipelineStatement::new(SOURCE_SQL, place)).collect();
    let outcomes = session.run(&steps).await.map_err(|failed| failed.error)?;
    let source = |outcome: &StatementResult| match outcome.rows.first().map(Vec::as_slice) {
        Some([not_null, key_columns, name, is_of_view]) => ColumnSource {
            column: name.clone().map(|name| TableColumn { name, is_of_view: is_of_view.as_deref() == Some("t") }),
            not_null: not_null.as_deref() == Some("t"),
            key_columns: key_columns.as_deref().and_then(|count| count.parse().ok()),
        },
        _ => ColumnSource::default(),
    };
    Ok(outcomes.iter().map(source).collect())
}

/// The columns of those primary keys that are complete in the result.
fn key(columns: &[Column], raw: &[FieldDescription], sources: &[ColumnSource]) -> Vec<String> {
    let place = |index: usize| raw.get(index).and_then(|column| column.source);
    let is_whole = |table: u32, key_columns: usize| {
        let parts = (0..sources.len()).filter(|&index| sources.get(index).is_some_and(|it| it.key_columns.is_some()));
        let parts: BTreeSet<_> = parts.filter_map(place).filter(|(of, _)| *of == table).collect();
        parts.len() == key_columns
    };
    let in_key = |index: usize| match (place(index), sources.get(index).and_then(|source| source.key_columns)) {
        (Some((table, _)), Some(key_columns)) => is_whole(table, key_columns),
        _ => false,
    };
    columns.iter().enumerate().filter(|(index, _)| in_key(*index)).map(|(_, column)| column.name.clone()).collect()
}

impl PlanResult {
    /// Whether the statement may return NULL for a column that contains none. Without a plan, it may.
    fn may_add_nulls(&self) -> bool {
        match self {
            Self::Plan(plan) => adds_nulls(plan),
            Self::Utility | Self::Empty | Self::Refused(_) => true,
        }
    }

    const fn plan(&self) -> Option<&Value> {
        match self {
            Self::Plan(plan) => Some(plan),
            Self::Utility | Self::Empty | Self::Refused(_) => None,
        }
    }

    fn functions(&self) -> BTreeSet<String> {
        match self {
            Self::Plan(plan) => called(plan).into_iter().map(|call| call.name).collect(),
            Self::Utility | Self::Empty | Self::Refused(_) => BTreeSet::new(),
        }
    }

    fn referenced_objects(&self) -> ReferencedObjects {
        match self {
            Self::Plan(plan) => referenced_objects(plan),
            Self::Utility | Self::Empty => ReferencedObjects::Unplanned("it is a command".to_owned()),
            Self::Refused(error) if error.sqlstate == "42501" => ReferencedObjects::Forbidden(error.message.clone()),
            Self::Refused(error) => ReferencedObjects::Unplanned(error.to_string()),
        }
    }
}

/// Whether a plan has a node that adds NULLs, or a node with unknown output. An anti join may be the rest of a left
/// join whose other side must be NULL.
fn adds_nulls(plan: &Value) -> bool {
    match plan {
        Value::Array(items) => items.iter().any(adds_nulls),
        Value::Object(node) => {
            let text = |key: &str| node.get(key).and_then(Value::as_str);
            node.contains_key("Grouping Sets")
                || text("Join Type").is_some_and(|join| !["Inner", "Semi"].contains(&join))
                || text("Node Type").is_some_and(|node| ["Foreign Scan", "Custom Scan"].contains(&node))
                || node.values().any(adds_nulls)
        }
        _ => false,
    }
}
