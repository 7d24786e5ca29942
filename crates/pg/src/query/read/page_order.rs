//! Finds the columns that identify the rows of a query and order them.
//!
//! The order is the one that the plan shows (`page_plan`). It identifies every row if each table that determines a
//! row has a unique index over NOT NULL columns that are all part of the order (`page_facts.sql`).

use std::collections::BTreeMap;
use std::sync::Arc;

use postgres_types::Type;
use types::{PgType, TypeKind};

use super::page_plan::{OrderProblem, PlannedOrder, TableName};
use crate::client::error::Error;
use crate::client::session::Session;
use crate::client::wire::FieldDescription;
use crate::query::type_catalog::TypeCatalog;

const FACTS_SQL: &str = include_str!("page_facts.sql");

/// PostgreSQL's own types that have an order and whose text form, under the session's settings, is parsed as the same
/// value.
const KEY_TYPES: [Type; 22] = [
    Type::BOOL,
    Type::CHAR,
    Type::INT2,
    Type::INT4,
    Type::INT8,
    Type::OID,
    Type::FLOAT4,
    Type::FLOAT8,
    Type::NUMERIC,
    Type::TEXT,
    Type::VARCHAR,
    Type::BPCHAR,
    Type::NAME,
    Type::UUID,
    Type::BYTEA,
    Type::DATE,
    Type::TIME,
    Type::TIMETZ,
    Type::TIMESTAMP,
    Type::TIMESTAMPTZ,
    Type::INTERVAL,
    Type::INET,
];

/// The reason why no `after` is offered for a query: the end of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PageProblem {
    #[error("its rows are not ordered")]
    Unordered,
    #[error("it orders by something that is no plain table column of its result")]
    Expression,
    #[error("it does not order by a unique key of its tables, so rows may be equal in the order")]
    NotUnique,
    #[error("it orders by a column of a type that cannot be given in `after`")]
    Type,
    #[error("it calls set_config, so its values may be written in another form")]
    Settings,
    #[error("it cannot be continued as it stands: leave out `;` and comments at its end, and EXPLAIN or SHOW")]
    Text,
    #[error("its order is not known at the moment")]
    Unknown,
}

types::same_variants! { OrderProblem => PageProblem { Unordered, Expression, NotUnique } }

/// One column of the order.
#[derive(Debug)]
pub(super) struct PageKey {
    /// The index of the result column.
    pub(super) index: usize,
    pub(super) ty: Arc<PgType>,
    pub(super) is_descending: bool,
    pub(super) nulls_first: bool,
    /// Whether the column is never NULL in the result.
    pub(super) not_null: bool,
}

/// The catalog's facts about a table (`page_facts.sql`).
#[derive(Debug)]
struct TableFacts {
    name: TableName,
    unique_keys: Vec<Vec<i16>>,
    partitions: Vec<TableName>,
    /// By `pg_attribute.attnum`: whether it is NOT NULL, and its collation as in a sort key.
    columns: BTreeMap<i16, (bool, String)>,
}

impl TableFacts {
    fn parse(row: Vec<Option<String>>) -> Option<(u32, Self)> {
        let [oid, name, unique_keys, partitions, columns] = <[Option<String>; 5]>::try_from(row).ok()?;
        let columns: Vec<(i16, bool, String)> = serde_json::from_str(&columns?).ok()?;
        let facts = Self {
            name: serde_json::from_str(&name?).ok()?,
            unique_keys: serde_json::from_str(&unique_keys?).ok()?,
            partitions: serde_json::from_str(&partitions?).ok()?,
            columns: columns.into_iter().map(|(number, not_null, collation)| (number, (not_null, collation))).collect(),
        };
        Some((oid?.parse().ok()?, facts))
    }

    /// Whether all rows of these tables are rows of this one.
    fn has_rows_of(&self, tables: &[TableName]) -> bool {
        tables.iter().all(|table| *table == self.name || self.partitions.contains(table))
    }
}

/// The keys of a query with these result columns and this order.
pub(super) async fn page_keys(
    types: &TypeCatalog,
    session: &mut Session,
    columns: &[FieldDescription],
    order: &PlannedOrder,
) -> Result<Result<Vec<PageKey>, PageProblem>, Error> {
    let sources = order.columns.iter().map(|sorted| columns.get(sorted.index).and_then(|column| column.source));
    let Some(sources) = sources.collect::<Option<Vec<_>>>() else { return Ok(Err(PageProblem::Expression)) };
    let tables = oids(sources.iter().map(|(table, _)| table.to_string()));
    let numbers = oids(sources.iter().map(|(_, number)| number.to_string()));
    let rows = session.rows(FACTS_SQL, &[Some(tables), Some(numbers)]).await?;
    let facts: BTreeMap<u32, TableFacts> = rows.into_iter().filter_map(TableFacts::parse).collect();
    let mut keys = Vec::new();
    for (sorted, (table, number)) in order.columns.iter().zip(&sources) {
        // A view has no facts: its columns may be any expressions.
        let Some(facts) = facts.get(table) else { return Ok(Err(PageProblem::Expression)) };
        let Some((not_null, collation)) = facts.columns.get(number) else { return Ok(Err(PageProblem::Expression)) };
        if *collation != sorted.collation {
            return Ok(Err(PageProblem::Expression));
        }
        let oid = columns.get(sorted.index).map(|column| column.type_oid).unwrap_or_default();
        let ty = types.resolve(session, oid).await?;
        let is_enum = matches!(ty.kind, TypeKind::Enum(_));
        if !is_enum && !Type::from_oid(oid).is_some_and(|ty| KEY_TYPES.contains(&ty)) {
            return Ok(Err(PageProblem::Type));
        }
        let is_determining = order.tables.iter().any(|parts| facts.has_rows_of(parts));
        keys.push(PageKey {
            index: sorted.index,
            ty,
            is_descending: sorted.is_descending,
            nulls_first: sorted.nulls_first,
            not_null: *not_null && is_determining,
        });
    }
    let is_unique = order.tables.iter().all(|parts| {
        facts.iter().filter(|(_, facts)| facts.has_rows_of(parts)).any(|(oid, facts)| {
            let is_sorted = |number: &i16| sources.contains(&(*oid, *number));
            facts.unique_keys.iter().any(|key| !key.is_empty() && key.iter().all(is_sorted))
        })
    });
    Ok(if is_unique { Ok(keys) } else { Err(PageProblem::NotUnique) })
}

/// An array in text form. Its elements are numbers.
fn oids(numbers: impl Iterator<Item = String>) -> String {
    format!("{{{}}}", numbers.collect::<Vec<_>>().join(","))
}
