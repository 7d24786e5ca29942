//! Queries of the system catalog, limited to the objects that the reader's login may read.
//!
//! Each query is constant text (the `.sql` files, combined below). It runs on the read path with bound parameters,
//! and within the limits of an agent's own query. Comments and names come from other users: they are returned, never
//! executed.

use std::collections::HashSet;

use read::{ReadError, ReadRequest, Reader, RowFormat};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::annotations::CatalogAnnotations;
use crate::responses::{SchemaData, SearchResult, TableData};

const OVERVIEW: &str = concat!(
    include_str!("readable.sql"),
    include_str!("asked_schema.sql"),
    include_str!("sized.sql"),
    include_str!("overview.sql")
);
const TABLE: &str = concat!(
    include_str!("readable.sql"),
    include_str!("asked_table.sql"),
    include_str!("sized.sql"),
    include_str!("table.sql")
);
const SEARCH: &str = concat!(include_str!("readable.sql"), include_str!("search.sql"));
const SCHEMA_NAMES: &str = concat!(include_str!("readable.sql"), include_str!("schema_names.sql"));
const TABLE_NAMES: &str = concat!(include_str!("readable.sql"), include_str!("table_names.sql"));
const LISTING: &str = concat!(include_str!("readable.sql"), include_str!("listing.sql"));
const SCHEMA_COMPLETION: &str = concat!(include_str!("readable.sql"), include_str!("schema_completion.sql"));
const TABLE_COMPLETION: &str = concat!(include_str!("readable.sql"), include_str!("table_completion.sql"));
const MENTIONED_TABLES: &str = concat!(include_str!("readable.sql"), include_str!("mentioned_tables.sql"));
const SEARCHED_TABLE: &str = "\
select pg_catalog.format('%I.%I', n.nspname, c.relname) as name \
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
where c.oid = pg_catalog.to_regclass(pg_catalog.quote_ident($1))";
const COLUMN_NAMES: &str = concat!(include_str!("readable.sql"), include_str!("column_names.sql"));
const FUNCTION_NAMES: &str = include_str!("function_names.sql");
const FUNCTION_SIGNATURES: &str = include_str!("function_signatures.sql");
const TYPE_NAMES: &str = include_str!("type_names.sql");
const ENUM_LABELS: &str = include_str!("enum_labels.sql");
const KEYWORDS: &str = include_str!("keywords.sql");

/// The maximum number of names to compare.
const MAX_NAMES: u32 = 10_000;

/// The maximum number of tables in an overview with a summary, and with only their name, before it is cut to size.
const MAX_SUMMARIES: u32 = 200;
const MAX_LISTED: u32 = 2_000;

/// The schemas, each with its tables or with only their names, if the list is complete.
pub(crate) async fn overview(reader: &Reader, schema: Option<&str>) -> Result<Vec<SchemaData>, ReadError> {
    ask(reader, OVERVIEW, &[json!(schema), json!(MAX_SUMMARIES), json!(MAX_LISTED)]).await
}

/// The descriptions of the tables with this name, which may be in several schemas. An exact match comes first.
pub(crate) async fn tables(
    reader: &Reader,
    schema: Option<&str>,
    table: &str,
    annotations: &CatalogAnnotations,
) -> Result<Vec<TableData>, ReadError> {
    let (schemas, names): (Vec<&str>, Vec<&str>) =
        annotations.accessed().into_iter().map(|(schema, name)| (schema.as_str(), name.as_str())).unzip();
    ask(reader, TABLE, &[json!(schema), json!(table), json!(schemas), json!(names)]).await
}

/// Tables and columns whose name, comment or note contains `word`, at most `max` of each.
pub(crate) async fn search(
    reader: &Reader,
    schema: Option<&str>,
    word: &str,
    max: usize,
    annotations: &CatalogAnnotations,
) -> Result<Option<SearchResult>, ReadError> {
    let noted = annotations.objects_with_note(word);
    let schemas: Vec<&str> = noted.iter().map(|(schema, _, _)| *schema).collect();
    let tables: Vec<&str> = noted.iter().map(|(_, table, _)| *table).collect();
    let columns: Vec<Option<&str>> = noted.iter().map(|(_, _, column)| *column).collect();
    let params = [json!(like_pattern(word)), json!(schema), json!(max), json!(schemas), json!(tables), json!(columns)];
    let found = ask(reader, SEARCH, &params).await?;
    Ok(found.into_iter().next())
}

/// A schema or a table. A listing has all schemas first, then all tables.
#[derive(Debug, Deserialize)]
pub(crate) struct CatalogEntry {
    pub(crate) schema: String,
    pub(crate) table: Option<String>,
    /// `schema`, or the kind of the table as in its description.
    pub(crate) kind: String,
}

/// The entries after this schema or table; the first ones if it is `None`.
pub(crate) async fn listing(
    reader: &Reader,
    after: Option<(&str, Option<&str>)>,
    max: usize,
) -> Result<Vec<CatalogEntry>, ReadError> {
    let (position, schema, table) = match after {
        None => (-1, "", ""),
        Some((schema, None)) => (0, schema, ""),
        Some((schema, Some(table))) => (1, schema, table),
    };
    ask(reader, LISTING, &[json!(position), json!(schema), json!(table), json!(max)]).await
}

#[derive(Debug, Deserialize)]
struct FoundNames {
    name: String,
}

/// The names of schemas that contain `part`. Names that begin with it come first.
pub(crate) async fn schemas_like(reader: &Reader, part: &str, max: usize) -> Result<Vec<String>, ReadError> {
    let pattern = like_pattern(part);
    let params = [json!(pattern), json!(pattern.trim_start_matches('%')), json!(max)];
    let found: Vec<FoundNames> = ask(reader, SCHEMA_COMPLETION, &params).await?;
    Ok(found.into_iter().map(|it| it.name).collect())
}

/// The names of tables that contain `part`, in one schema or in all. Names that begin with it come first.
pub(crate) async fn tables_like(
    reader: &Reader,
    schema: Option<&str>,
    part: &str,
    max: usize,
) -> Result<Vec<String>, ReadError> {
    let pattern = like_pattern(part);
    let params = [json!(pattern), json!(pattern.trim_start_matches('%')), json!(max), json!(schema)];
    let found: Vec<FoundNames> = ask(reader, TABLE_COMPLETION, &params).await?;
    Ok(found.into_iter().map(|it| it.name).collect())
}

/// Pattern that matches every text containing `word` literally.
fn like_pattern(word: &str) -> String {
    let mut pattern = String::from("%");
    for letter in word.chars() {
        if matches!(letter, '\\' | '%' | '_') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern.push('%');
    pattern
}

#[derive(Debug, Deserialize)]
pub(crate) struct SchemaName {
    pub(crate) name: String,
    /// The name, quoted if SQL needs it.
    pub(crate) shown: String,
}

pub(crate) async fn schema_names(reader: &Reader) -> Result<Vec<SchemaName>, ReadError> {
    ask(reader, SCHEMA_NAMES, &[]).await
}

/// A table or view that exists.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TableName {
    pub(crate) oid: u32,
    pub(crate) schema_name: String,
    pub(crate) name: String,
    /// The name with its schema, quoted if SQL needs it.
    pub(crate) shown: String,
    /// Whether only some of its columns may be read.
    pub(crate) partly: bool,
}

/// All tables, or those whose names have a similar length to `wanted`.
pub(crate) async fn table_names(reader: &Reader, wanted: Option<&str>) -> Result<Listed<TableName>, ReadError> {
    list(reader, TABLE_NAMES, &[json!(wanted)]).await
}

/// The table that a read finds by this name without a schema, as SQL with its schema.
pub(crate) async fn searched_table(reader: &Reader, name: &str) -> Result<Option<String>, ReadError> {
    let found: Vec<FoundNames> = ask(reader, SEARCHED_TABLE, &[json!(name)]).await?;
    Ok(found.into_iter().next().map(|it| it.name))
}

/// The tables whose name is one of these words, which are in lower case.
pub(crate) async fn mentioned_tables(reader: &Reader, words: &HashSet<String>) -> Result<Vec<TableName>, ReadError> {
    ask(reader, MENTIONED_TABLES, &[json!(words)]).await
}

#[derive(Debug, Deserialize)]
pub(crate) struct ColumnName {
    pub(crate) name: String,
    pub(crate) shown: String,
    pub(crate) table: String,
}

pub(crate) async fn column_names(reader: &Reader, tables: &[TableName]) -> Result<Vec<ColumnName>, ReadError> {
    let oids: Value = tables.iter().map(|table| table.oid).collect();
    ask(reader, COLUMN_NAMES, &[oids]).await
}

#[derive(Debug, Deserialize)]
pub(crate) struct FunctionName {
    pub(crate) name: String,
    pub(crate) shown: String,
}

/// All functions, or those whose names have a similar length to `wanted`.
pub(crate) async fn function_names(reader: &Reader, wanted: Option<&str>) -> Result<Listed<FunctionName>, ReadError> {
    list(reader, FUNCTION_NAMES, &[json!(wanted)]).await
}

/// A function with its arguments, in the form in which SQL calls it.
#[derive(Debug, Deserialize)]
pub(crate) struct FunctionSignature {
    pub(crate) shown: String,
}

/// The functions with exactly this name.
pub(crate) async fn function_signatures(reader: &Reader, name: &str) -> Result<Vec<FunctionSignature>, ReadError> {
    ask(reader, FUNCTION_SIGNATURES, &[json!(name)]).await
}

#[derive(Debug, Deserialize)]
pub(crate) struct TypeName {
    pub(crate) name: String,
    pub(crate) shown: String,
}

pub(crate) async fn type_names(reader: &Reader, wanted: &str) -> Result<Vec<TypeName>, ReadError> {
    ask(reader, TYPE_NAMES, &[json!(wanted)]).await
}

/// An enum and its values, in order.
#[derive(Debug, Deserialize)]
pub(crate) struct EnumLabels {
    pub(crate) name: String,
    pub(crate) labels: Vec<String>,
}

/// The enum type that PostgreSQL's message names.
pub(crate) async fn enum_labels(reader: &Reader, message: &str) -> Result<Option<EnumLabels>, ReadError> {
    Ok(ask(reader, ENUM_LABELS, &[json!(message)]).await?.pop())
}

#[derive(Debug, Deserialize)]
pub(crate) struct Keyword {
    /// The keyword in lower case.
    pub(crate) word: String,
    /// The keyword in upper case.
    pub(crate) shown: String,
    /// Whether the keyword needs quotes in some kinds of names.
    pub(crate) reserved: bool,
}

pub(crate) async fn keywords(reader: &Reader) -> Result<Vec<Keyword>, ReadError> {
    ask(reader, KEYWORDS, &[]).await
}

pub(crate) struct Listed<T> {
    pub(crate) rows: Vec<T>,
    /// Whether a limit has omitted rows.
    pub(crate) is_cut: bool,
}

/// The rows of a constant query.
async fn ask<T: DeserializeOwned>(reader: &Reader, sql: &str, params: &[Value]) -> Result<Vec<T>, ReadError> {
    Ok(list(reader, sql, params).await?.rows)
}

async fn list<T: DeserializeOwned>(reader: &Reader, sql: &str, params: &[Value]) -> Result<Listed<T>, ReadError> {
    let request = ReadRequest { row_limit: Some(MAX_NAMES), ..ReadRequest::new(sql, params, RowFormat::Object) };
    let result = reader.for_trusted_sql().read(&request).await?;
    let rows = result.rows.deserialize().map_err(|error| ReadError::Database(std::io::Error::other(error).into()))?;
    Ok(Listed { rows, is_cut: result.truncated_by.is_some() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_letters_that_like_takes_for_patterns_are_letters_here() {
        assert_eq!(like_pattern(r"100%_\"), r"%100\%\_\\%");
    }
}
