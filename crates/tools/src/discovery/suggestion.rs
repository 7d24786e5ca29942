//! The nearest names that exist, for one that does not: of tables, columns, functions and types; and keywords, for a
//! word that PostgreSQL's grammar stumbled over.

use std::collections::HashSet;

use ledger::read::{ReadError, Reader};
use types::{ErrorCode, Failure};

use super::error_position::{IdentifierAt, name_at, quoted_in, words};
use super::keyword::misspelt_or_quoted;
use super::{
    ColumnName, TableName, column_names, enum_labels, function_names, mentioned_tables, nearest, table_names,
    type_names,
};

/// Words of a query that may be names of tables, and what is listed at the most.
const MAX_WORDS: usize = 2_000;
const MAX_COLUMNS: usize = 40;
const MAX_FUNCTIONS: usize = 20;

const UNTYPED: &str = "Write the parameter's type, as in $1::text, and use every number from $1 on.";

/// A hint, if there is one to give: by what PostgreSQL found wrong, in whatever language it says so.
pub(super) async fn suggestion(reader: &Reader, query: &str, failure: &Failure) -> Result<Option<String>, ReadError> {
    // Of parameters, PostgreSQL's message is all that is left.
    if failure.code == ErrorCode::InvalidParams {
        return unknown_label(reader, failure).await;
    }
    let Some(sqlstate) = failure.sqlstate.as_deref() else { return Ok(None) };
    let place = failure.position.map(|position| name_at(query, position)).unwrap_or_default();
    let said = |name: &str| failure.message.contains(name);
    match (sqlstate, place.parts.last(), &failure.hint) {
        ("42P01", Some(_), None) => unknown_table(reader, &place.parts, failure).await,
        ("42703", Some(last), None) if said(last) => unknown_column(reader, query, last, &place).await,
        // It has no place (JOIN .. USING), or points to a word beside the name: its message has the name.
        ("42703", _, None) => match quoted_in(&failure.message) {
            Some(name) => column_to_join(reader, query, name).await,
            None => Ok(None),
        },
        ("42702", Some(last), None) if said(last) => ambiguous_column(reader, query, last).await,
        // Always has a hint, but one that is about its arguments.
        ("42883", Some(last), _) if said(last) => unknown_function(reader, last).await,
        ("42704", Some(last), None) if said(last) => unknown_type(reader, last).await,
        ("22P02", _, None) => unknown_label(reader, failure).await,
        ("42501", ..) if failure.code == ErrorCode::NotPermitted => readable_columns(reader, query, failure).await,
        ("42P18", _, None) => Ok(Some(UNTYPED.to_owned())),
        ("42601", _, None) => misspelt_or_quoted(reader, query, failure).await,
        _ => Ok(None),
    }
}

async fn unknown_table(reader: &Reader, name: &[String], failure: &Failure) -> Result<Option<String>, ReadError> {
    // The message quotes the whole name of a table that does not exist; but only `x` of a column `x.id` whose `x` is not
    // in FROM.
    let wanted = match name {
        [alias @ .., _] if !alias.is_empty() && !failure.message.contains(&name.join(".")) => alias,
        name => name,
    };
    let (schema, table) = match wanted {
        [.., schema, table] => (Some(schema.as_str()), table),
        [table] => (None, table),
        [] => return Ok(None),
    };
    let existing = table_names(reader, table).await?;
    let near = nearest_tables(schema, table, &existing);
    Ok(listed("The nearest tables that exist", near.into_iter().map(|table| table.shown.clone())))
}

/// Tables with a name like this one; of those that are equally like it, the ones in `schema` first.
pub(super) fn nearest_tables<'a>(schema: Option<&str>, table: &str, existing: &'a [TableName]) -> Vec<&'a TableName> {
    let mut ordered: Vec<&TableName> = existing.iter().collect();
    ordered.sort_by_key(|it| schema.is_some_and(|schema| it.schema_name != schema));
    nearest(table, &ordered, |it| &it.name).into_iter().copied().collect()
}

/// The tables that a query is about, which PostgreSQL does not say: words that are names of tables are guess enough. The
/// name at `except` is none of them: it is what does not exist.
pub(super) async fn tables_of(
    reader: &Reader,
    query: &str,
    except: &IdentifierAt,
) -> Result<Vec<TableName>, ReadError> {
    let words: HashSet<String> = words(query, except).take(MAX_WORDS).collect();
    mentioned_tables(reader, &words).await
}

async fn unknown_column(
    reader: &Reader,
    query: &str,
    column: &str,
    place: &IdentifierAt,
) -> Result<Option<String>, ReadError> {
    let tables = tables_of(reader, query, place).await?;
    let columns = column_names(reader, &tables).await?;
    Ok(nearest_columns(column, &columns))
}

/// A column that one side of JOIN .. USING does not have; the other side may.
async fn column_to_join(reader: &Reader, query: &str, column: &str) -> Result<Option<String>, ReadError> {
    let tables = tables_of(reader, query, &IdentifierAt::default()).await?;
    let columns = column_names(reader, &tables).await?;
    let with_it: HashSet<String> = columns.iter().filter(|it| it.name == column).map(|it| it.table.clone()).collect();
    let others: Vec<ColumnName> = columns.into_iter().filter(|it| !with_it.contains(&it.table)).collect();
    Ok(nearest_columns(column, &others))
}

/// Those with a name like this one, or else all that there are.
fn nearest_columns(column: &str, columns: &[ColumnName]) -> Option<String> {
    let near = nearest(column, columns, |it| &it.name);
    if !near.is_empty() {
        let near = near.into_iter().map(|it| format!("{} (in {})", it.shown, it.table));
        return listed("The nearest columns that exist", near);
    }
    let some = columns.get(..MAX_COLUMNS).unwrap_or(columns);
    let tables = some.chunk_by(|one, next| one.table == next.table);
    let lists = tables.filter_map(|of_table| {
        listed(&format!("{} has", of_table.first()?.table), of_table.iter().map(|it| it.shown.clone()))
    });
    Some(lists.collect::<Vec<String>>().join(" ")).filter(|lists| !lists.is_empty())
}

async fn ambiguous_column(reader: &Reader, query: &str, column: &str) -> Result<Option<String>, ReadError> {
    let tables = tables_of(reader, query, &IdentifierAt::default()).await?;
    let columns = column_names(reader, &tables).await?;
    let having = columns.iter().filter(|it| it.name == column).map(|it| it.table.clone());
    let having = listed("It is in", having);
    Ok(having.map(|having| format!("{having} Write the table's name or alias in front of it.")))
}

async fn unknown_function(reader: &Reader, function: &str) -> Result<Option<String>, ReadError> {
    let existing = function_names(reader, function).await?;
    let same: Vec<String> = existing
        .iter()
        .flat_map(|it| it.arguments.iter().flatten().map(|arguments| format!("{}({arguments})", it.shown)))
        .collect();
    if !same.is_empty() {
        return Ok(listed("It exists as", same.into_iter().take(MAX_FUNCTIONS)));
    }
    let near = nearest(function, &existing, |it| &it.name);
    Ok(listed("The nearest functions that exist", near.into_iter().map(|it| it.shown.clone())))
}

async fn unknown_type(reader: &Reader, wanted: &str) -> Result<Option<String>, ReadError> {
    let existing = type_names(reader, wanted).await?;
    let near = nearest(wanted, &existing, |it| &it.name);
    let mut shown: Vec<String> = near.into_iter().map(|it| it.shown.clone()).collect();
    // `int4` and `integer` are both names of one type.
    shown.dedup();
    Ok(listed("The nearest types that exist", shown.into_iter()))
}

async fn unknown_label(reader: &Reader, failure: &Failure) -> Result<Option<String>, ReadError> {
    let Some(found) = enum_labels(reader, &failure.message).await? else { return Ok(None) };
    Ok(listed(&format!("{} takes", found.name), found.labels.iter().map(|label| format!("'{label}'"))))
}

/// The columns that may be read of tables of which not all may: of the one that the message names, if it names one.
async fn readable_columns(reader: &Reader, query: &str, failure: &Failure) -> Result<Option<String>, ReadError> {
    let mut tables = tables_of(reader, query, &IdentifierAt::default()).await?;
    tables.retain(|table| table.partly && failure.message.contains(&table.name));
    let columns = column_names(reader, &tables).await?;
    let of_tables = columns.chunk_by(|one, next| one.table == next.table);
    let lists = of_tables.filter_map(|of_table| {
        let some = of_table.iter().take(MAX_COLUMNS).map(|it| it.shown.clone());
        listed(&format!("Of {} only these columns may be read", of_table.first()?.table), some)
    });
    Ok(Some(lists.collect::<Vec<String>>().join(" ")).filter(|lists| !lists.is_empty()))
}

/// `What: a, b.`; nothing if there is nothing to list.
pub(super) fn listed(what: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| format!("{what}: {}.", names.join(", ")))
}
