//! A caller's INSERT, UPDATE, DELETE or MERGE of tracked tables in the gate's transaction.
//!
//! ```text
//! Parse, Describe       parameters and result columns
//! EXPLAIN               one plan that changes rows, without forbidden functions (`pg::ModifyingStatement`)
//! tables                each table that the plan writes to is tracked, has a key, and is allowed by the operator
//! Bind, Execute         the statement runs to its end
//! afterwards            deferred triggers run; all changes are recorded, and there are not too many
//! ```
//! The last step counts what triggers and functions did as well: PostgreSQL's counters for the transaction show
//! every table with changed rows, those of the catalog included, which a command such as CREATE TABLE changes.

use std::str::FromStr;

use pg::{CompleteResult, Error, ModifyingStatementError, PipelineStatement, RowRetention, StatementResult, value};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{ErrorCode, Failure, TableAccess};

use crate::SCHEMA;
use crate::read::ResultSet;
use crate::write::adhoc_sql::{refusal_at, unguessable};
use crate::write::caller_part::{self, Rights};
use crate::write::error_hints::HintQuery;
use crate::write::executor::WriteOutput;
use crate::write::failures::{ExecutorError, too_large};
use crate::write::write_tx::WriteTx;

/// What a statement of a caller may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModificationLimits {
    /// The most rows that one statement may change, with those that cascades and triggers change.
    pub max_rows: u64,
    /// The tables; empty for all tracked tables.
    pub tables: Vec<TablePattern>,
}

/// A table, or all tables of a schema. Names are written as in the catalog, without quotes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct TablePattern {
    schema: String,
    /// `None` for all tables of the schema.
    table: Option<String>,
}

impl TryFrom<String> for TablePattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once('.') {
            Some((schema, table)) if !schema.is_empty() && !table.is_empty() => {
                Ok(Self { schema: schema.to_owned(), table: (table != "*").then(|| table.to_owned()) })
            }
            _ => Err(format!("{text:?} is neither a table nor a schema's tables: schema.table or schema.*")),
        }
    }
}

impl FromStr for TablePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::try_from(text.to_owned())
    }
}

impl TablePattern {
    fn matches(&self, schema: &str, table: &str) -> bool {
        self.schema == schema && self.table.as_deref().is_none_or(|name| name == table)
    }
}

/// The result of a statement that changed rows.
#[derive(Debug)]
pub struct ModificationResult {
    /// The returned rows that were kept, up to the limit of the caller.
    pub returned: ResultSet,
    /// The command tag.
    pub command_tag: String,
    /// The number of rows in the command tag.
    pub rows_affected: u64,
    /// The tables of which an UPDATE or DELETE without a condition changed every row: `schema.table`.
    pub unfiltered: Vec<String>,
}

/// Of each written table: its name, the schema and name of the table that is tracked for it, and whether changes of
/// that are recorded and can be undone. The last column has what the counters of the session say already, in
/// PostgreSQL 14, where they may still have earlier transactions.
const TABLES_SQL: &str = "\
select pg_catalog.format('%I.%I', w.schema, w.name), rn.nspname, r.relname, t.relation is not null, t.key_columns is not null, \
    c.relkind operator(pg_catalog.=) 'v', \
    case when pg_catalog.current_setting('server_version_num')::pg_catalog.int4 operator(pg_catalog.<) 150000 then ( \
        select pg_catalog.jsonb_object_agg(x.relid::pg_catalog.text, \
            x.n_tup_ins operator(pg_catalog.+) x.n_tup_upd operator(pg_catalog.+) x.n_tup_del) \
        from pg_catalog.pg_stat_xact_all_tables x) end \
from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])) w (schema, name) \
left join (pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace) \
    on n.nspname operator(pg_catalog.=) w.schema and c.relname operator(pg_catalog.=) w.name \
left join (pg_catalog.pg_class r join pg_catalog.pg_namespace rn on rn.oid operator(pg_catalog.=) r.relnamespace) \
    on r.oid operator(pg_catalog.=) case when c.relispartition then pg_catalog.pg_partition_root(c.oid) else c.oid end \
left join countersign.tracked t on t.is_current and t.relation operator(pg_catalog.=) r.oid";

/// The number of recorded rows, whether PostgreSQL counts changed rows, and the changed tables of which changes are not
/// recorded, each with the reason: it is not tracked, or its owner has disabled the trigger that records them.
/// Tables of users stay locked until the end of a transaction that changes them; those of the catalog do not, and
/// there are few. Changes of foreign tables are not counted, so the lock is enough. $2 is the last column of
/// [`TABLES_SQL`].
const CHANGES_SQL: &str = "\
select (select pg_catalog.count(*) from countersign.effect e \
        where e.correlation_id operator(pg_catalog.=) $1::pg_catalog.uuid and e.op operator(pg_catalog.<>) 'N'), \
    pg_catalog.current_setting('track_counts'), \
    (select pg_catalog.string_agg(pg_catalog.format('%I.%I (%s)', n.nspname, c.relname, \
                case when t.relation is null then 'not tracked' else 'its trigger is disabled' end), \
            ', ' order by c.oid operator(pg_catalog.<) 16384, c.oid) \
     from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace \
     left join countersign.tracked t on t.is_current and t.relation operator(pg_catalog.=) \
         case when c.relispartition then pg_catalog.pg_partition_root(c.oid)::pg_catalog.oid else c.oid end \
     where n.nspname operator(pg_catalog.<>) 'countersign' and c.relkind in ('r', 'm', 'f') \
         and (c.oid operator(pg_catalog.<) 16384 or c.oid in ( \
             select l.relation from pg_catalog.pg_locks l \
             where l.pid operator(pg_catalog.=) pg_catalog.pg_backend_pid() and l.locktype operator(pg_catalog.=) 'relation' \
                 and l.mode not in ('AccessShareLock', 'RowShareLock'))) \
         and (c.relkind operator(pg_catalog.=) 'f' or pg_catalog.pg_stat_get_xact_tuples_inserted(c.oid) operator(pg_catalog.+) \
              pg_catalog.pg_stat_get_xact_tuples_updated(c.oid) operator(pg_catalog.+) \
              pg_catalog.pg_stat_get_xact_tuples_deleted(c.oid) operator(pg_catalog.>) \
              coalesce(($2::pg_catalog.jsonb operator(pg_catalog.->>) c.oid::pg_catalog.text)::pg_catalog.int8, 0)) \
         and (t.relation is null or not exists ( \
             select from pg_catalog.pg_trigger g where g.tgrelid operator(pg_catalog.=) c.oid and g.tgenabled operator(pg_catalog.=) 'A' \
                 and g.tgname operator(pg_catalog.=) any ('{!countersign,!countersign_of_root}'))))";

/// Deferred triggers run before the changes are counted. A function may have changed the role of the transaction.
const SETTLE: [&str; 3] = ["set constraints all immediate", "reset session authorization", "reset role"];

impl WriteTx<'_> {
    /// Runs a caller's statement that changes rows of tracked tables to its end, and keeps the first rows that it
    /// returns.
    pub async fn modify_rows(
        &mut self,
        sql: &str,
        params: &[Value],
        keep: RowRetention,
        limits: &ModificationLimits,
    ) -> Result<ModificationResult, ExecutorError> {
        self.run(&[]).await?;
        let name = unguessable();
        let result = self.run_modification(&name, (sql, params), keep, limits).await;
        // Through a pooler, another client gets the backend next.
        self.lease.session().push_close(&name).map_err(ExecutorError::ConnectionLost)?;
        result
    }

    async fn run_modification(
        &mut self,
        name: &str,
        (sql, params): (&str, &[Value]),
        keep: RowRetention,
        limits: &ModificationLimits,
    ) -> Result<ModificationResult, ExecutorError> {
        let described =
            self.lease.session().describe(name, sql, &[]).await.map_err(|error| self.failed(error, true))?;
        let types = self.writer.resolve_types(self.lease, &described.params).await;
        let types = types.map_err(ExecutorError::ConnectionLost)?;
        let encoded = value::encode_all(params, &types).map_err(|error| invalid(error.to_string()))?;
        let inspected = self.lease.session().inspect_modifying(name, sql, &encoded).await;
        let statement = inspected.map_err(|error| self.refusal(error))?;
        let counted = self.check_tables(&statement.tables, limits).await?;
        let ran = self.lease.session().run_to_completion(name, &encoded, keep).await;
        let CompleteResult { outcome, truncated_by, .. } = ran.map_err(|error| self.failed(error, true))?;
        self.check_changes(counted, limits).await?;
        let columns = self.writer.resolve_columns(self.lease, &outcome.columns).await;
        let columns = columns.map_err(ExecutorError::ConnectionLost)?;
        Ok(ModificationResult {
            returned: ResultSet::truncate_to(columns, &outcome.rows, keep.bytes, truncated_by),
            rows_affected: outcome.rows_affected(),
            command_tag: outcome.tag,
            unfiltered: statement.unfiltered.into_iter().map(|(schema, table)| format!("{schema}.{table}")).collect(),
        })
    }

    /// Checks that the statement writes to tables only that it may change. Returns the last column of [`TABLES_SQL`].
    async fn check_tables(
        &mut self,
        tables: &[TableAccess],
        limits: &ModificationLimits,
    ) -> Result<Option<String>, ExecutorError> {
        if let Some(table) = tables.iter().find(|table| table.schema == SCHEMA) {
            return Err(
                not_permitted(format!("the statement uses {SCHEMA}.{}, a table of the ledger", table.table)).into()
            );
        }
        let names = |name: fn(&TableAccess) -> &String| {
            Some(value::text_array(&tables.iter().filter(|table| table.written).map(name).cloned().collect::<Vec<_>>()))
        };
        let params = [names(|table| &table.schema), names(|table| &table.table)];
        let login = self.caller.as_mut().map(|caller| caller.enter(Rights::Login));
        let role = self.caller.as_mut().map(|caller| caller.enter(Rights::Caller));
        let mut steps = caller_part::steps(login.as_ref());
        let tables = steps.len();
        steps.push(PipelineStatement::new(TABLES_SQL, &params));
        steps.extend(caller_part::steps(role.as_ref()));
        let ran = self.lease.session().run(&steps).await.map_err(|failed| self.failed(failed.error, false))?;
        let mut counted = None;
        for row in ran.into_iter().nth(tables).map(|found| found.rows).unwrap_or_default() {
            let [name, schema, table, is_tracked, has_key, is_view, counts] =
                <[Option<String>; 7]>::try_from(row).unwrap_or_default();
            let name = name.unwrap_or_default();
            let is_allowed = limits.tables.is_empty()
                || schema.zip(table).is_some_and(|(schema, table)| {
                    limits.tables.iter().any(|pattern| pattern.matches(&schema, &table))
                });
            if is_tracked.as_deref() != Some("t") {
                let hint = match is_view.as_deref() {
                    Some("t") => {
                        format!("{name} is a view: write to its tables, or through a tool that the operator declares.")
                    }
                    _ => format!("The operator can let it be changed: countersign track {name}."),
                };
                return Err(not_permitted(format!("{name} is not tracked, so it cannot be changed this way"))
                    .hint(hint)
                    .into());
            }
            if !is_allowed {
                let hint = "The operator decides which tables it may change: execute_sql_tables.";
                return Err(not_permitted(format!("{name} is not among the tables of this tool")).hint(hint).into());
            }
            if has_key.as_deref() != Some("t") {
                let hint = "The owner can give it a primary key; then the operator tracks it again.";
                return Err(not_permitted(format!("{name} has no key, so its changes could not be undone"))
                    .hint(hint)
                    .into());
            }
            counted = counts;
        }
        Ok(counted)
    }

    /// Checks that all that was changed is recorded, and that there is not too much of it.
    async fn check_changes(
        &mut self,
        counted: Option<String>,
        limits: &ModificationLimits,
    ) -> Result<(), ExecutorError> {
        let params = [Some(self.id.to_string()), counted];
        let mut steps = SETTLE.map(PipelineStatement::without_params).to_vec();
        steps.push(PipelineStatement::new(CHANGES_SQL, &params));
        let ran = self.lease.session().run(&steps).await.map_err(|failed| self.failed(failed.error, false))?;
        if let Some(caller) = &mut self.caller {
            caller.has_left_role();
        }
        let row = ran.into_iter().next_back().and_then(StatementResult::into_row);
        let [changed, track_counts, others] = row.unwrap_or_default();
        if track_counts.as_deref() != Some("on") {
            let why = "the setting track_counts is off, so it is unknown what the statement changed";
            return Err(not_permitted(why.to_owned()).hint("The operator can switch track_counts on.").into());
        }
        if let Some(others) = others {
            let why =
                format!("the statement, or a trigger or function that it runs, changes what is not recorded: {others}");
            let hint =
                "The operator can track tables (countersign track, again if a trigger is disabled), or write a tool.";
            return Err(not_permitted(why).hint(hint).into());
        }
        let changed = changed.and_then(|count| count.parse().ok()).unwrap_or(u64::MAX);
        if changed > limits.max_rows {
            let most = format!("at most {} (execute_sql_max_rows)", limits.max_rows);
            let hint = "Change fewer rows in a call, or ask the operator for a higher limit.";
            return Err(WriteOutput::wrong_row_count(&most, changed).hint(hint).into());
        }
        Ok(())
    }

    /// The error of a statement in this transaction. `is_callers`: whether its position refers to the caller's text.
    fn failed(&mut self, error: Error, is_callers: bool) -> ExecutorError {
        match &error {
            Error::Server(error) => {
                self.hint_query = HintQuery::of(error).filter(|_| error.sqlstate != "42501" || self.caller.is_none());
            }
            Error::MessageTooLarge { .. } if self.lease.session().in_transaction() => return too_large().into(),
            _ => {}
        }
        refusal_at(error, is_callers)
    }

    pub(crate) fn refusal(&mut self, error: ModifyingStatementError) -> ExecutorError {
        match error {
            ModifyingStatementError::NotModifying(why) => {
                let failure =
                    invalid(format!("the statement {why}, and this tool takes one INSERT, UPDATE, DELETE or MERGE"));
                failure.hint("Read with query_database.").into()
            }
            ModifyingStatementError::ForbiddenFunction { function, why } => {
                let failure = not_permitted(format!("the statement may not call {function}: {why}"));
                failure.hint("If it is not a call, give the text that contains the name as a parameter.").into()
            }
            ModifyingStatementError::UnicodeIdentifier => {
                invalid("the statement may have identifiers with Unicode escapes: write them without U&".to_owned())
                    .into()
            }
            ModifyingStatementError::Refused(error) => self.failed(Error::Server(error), false),
            ModifyingStatementError::Database(error) => self.failed(error, false),
        }
    }
}

fn invalid(why: String) -> Failure {
    Failure::new(ErrorCode::InvalidParams, format!("{why}; nothing was written"))
}

fn not_permitted(why: String) -> Failure {
    Failure::new(ErrorCode::NotPermitted, format!("{why}; nothing was written"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_table_or_all_tables_of_a_schema() {
        let matches =
            |pattern: &str, schema: &str, table: &str| pattern.parse::<TablePattern>().unwrap().matches(schema, table);
        assert!(matches("shop.*", "shop", "orders") && matches("Shop.Order Items", "Shop", "Order Items"));
        assert!(!matches("shop.*", "shop2", "orders") && !matches("shop.orders", "shop", "Orders"));
        for text in ["shop", "*", ".orders", "shop.", ""] {
            text.parse::<TablePattern>().unwrap_err();
        }
    }
}
