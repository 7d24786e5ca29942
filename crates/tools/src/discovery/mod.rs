//! What there is in the database, as far as the reader's login may read it: for agents who do not know the schema, and
//! for hints when they guessed a name wrong.
//!
//! Every question is a constant (the `.sql` files, put together below) and goes through the read path with its
//! parameters bound, within the same bounds as an agent's own query. Comments and names are data of others: they are
//! answered, never acted upon.

pub(crate) mod correction;
pub(crate) mod data;
mod nearest;
mod place;

use std::collections::HashSet;

use ledger::read::{ReadError, ReadRequest, Reader, RowForm};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use data::{FoundData, SchemaData, TableData};
pub(crate) use nearest::nearest;

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
const MENTIONED_TABLES: &str = concat!(include_str!("readable.sql"), include_str!("mentioned_tables.sql"));
const COLUMN_NAMES: &str = concat!(include_str!("readable.sql"), include_str!("column_names.sql"));
const FUNCTION_NAMES: &str = include_str!("function_names.sql");

/// How many names are compared at the most.
const MAX_NAMES: u32 = 10_000;

/// The schemas and at most `max_tables` of their tables.
pub(crate) async fn overview(
    reader: &Reader,
    schema: Option<&str>,
    max_tables: usize,
) -> Result<Vec<SchemaData>, ReadError> {
    ask(reader, OVERVIEW, &[json!(schema), json!(max_tables)]).await
}

/// Everything of the tables of this name: more than one if several schemas have it.
pub(crate) async fn tables(reader: &Reader, schema: Option<&str>, table: &str) -> Result<Vec<TableData>, ReadError> {
    ask(reader, TABLE, &[json!(schema), json!(table)]).await
}

/// Tables and columns whose name or comment has `word` in it, at most `max` of each.
pub(crate) async fn search(
    reader: &Reader,
    schema: Option<&str>,
    word: &str,
    max: usize,
) -> Result<Option<FoundData>, ReadError> {
    let found = ask(reader, SEARCH, &[json!(like_pattern(word)), json!(schema), json!(max)]).await?;
    Ok(found.into_iter().next())
}

/// Matches whatever has `word` in it, to the letter.
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

/// A schema that exists.
#[derive(Debug, Deserialize)]
pub(crate) struct SchemaName {
    pub(crate) name: String,
    /// As SQL takes it: quoted if need be.
    pub(crate) shown: String,
}

pub(crate) async fn schema_names(reader: &Reader) -> Result<Vec<SchemaName>, ReadError> {
    ask(reader, SCHEMA_NAMES, &[]).await
}

/// A table or view that exists.
#[derive(Debug, Deserialize)]
pub(crate) struct TableName {
    oid: u32,
    pub(crate) schema_name: String,
    pub(crate) name: String,
    /// With its schema, as SQL takes it.
    pub(crate) shown: String,
}

/// Tables whose names are not much longer or shorter than `wanted`.
pub(crate) async fn table_names(reader: &Reader, wanted: &str) -> Result<Vec<TableName>, ReadError> {
    ask(reader, TABLE_NAMES, &[json!(wanted)]).await
}

/// Tables whose name is one of these words, which are in lower case.
async fn mentioned_tables(reader: &Reader, words: &HashSet<String>) -> Result<Vec<TableName>, ReadError> {
    ask(reader, MENTIONED_TABLES, &[json!(words)]).await
}

/// A column that exists.
#[derive(Debug, Deserialize)]
struct ColumnName {
    name: String,
    shown: String,
    table: String,
}

async fn column_names(reader: &Reader, tables: &[TableName]) -> Result<Vec<ColumnName>, ReadError> {
    let oids: Value = tables.iter().map(|table| table.oid).collect();
    ask(reader, COLUMN_NAMES, &[oids]).await
}

/// A function that exists.
#[derive(Debug, Deserialize)]
struct FunctionName {
    name: String,
    shown: String,
    /// Of each function of this name, if it is the very name that was asked for.
    arguments: Option<Vec<String>>,
}

async fn function_names(reader: &Reader, called: &str) -> Result<Vec<FunctionName>, ReadError> {
    ask(reader, FUNCTION_NAMES, &[json!(called)]).await
}

/// Reads the rows of one of our own questions.
async fn ask<T: DeserializeOwned>(reader: &Reader, sql: &str, params: &[Value]) -> Result<Vec<T>, ReadError> {
    let request = ReadRequest { sql, params, row_limit: Some(MAX_NAMES), form: RowForm::Object };
    let result = reader.query(&request).await?;
    let rows = result.rows.iter().map(|row| serde_json::from_str(row.get()));
    rows.collect::<Result<_, _>>().map_err(|error| ReadError::Database(std::io::Error::other(error).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_letters_that_like_takes_for_patterns_are_letters_here() {
        assert_eq!(like_pattern(r"100%_\"), r"%100\%\_\\%");
    }
}
