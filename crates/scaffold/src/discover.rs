//! Reads the tables of a schema from the system catalog.

use read::ConnectOptions;
use read::{ReadError, ReadLimits, ReadRequest, Reader, RowFormat, SearchPath};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use types::nearest_names;
use types::visible;

use crate::table::{Follower, Table};

const TABLES: &str = concat!(include_str!("keys.sql"), include_str!("tables.sql"));
const FOLLOWERS: &str = concat!(include_str!("keys.sql"), include_str!("followers.sql"));
const SCHEMAS: &str = include_str!("schemas.sql");

/// The maximum number of tables in a schema, and of tables that follow them.
const MAX_ROWS: u32 = 100_000;

/// The maximum size of the description of a schema, in bytes. A command reads it only once.
const MAX_BYTES: usize = 256 << 20;

/// The reason why there are no tables for which tools could be written.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// No schema has this name.
    #[error("there is no schema \"{}\"{}", visible(name), hint(nearest))]
    NoSchema {
        name: String,
        /// Existing schemas with similar names.
        nearest: Vec<String>,
    },
    /// The schema belongs to PostgreSQL or to the ledger.
    #[error("the schema \"{0}\" belongs to the system or to the ledger: no tool may write there")]
    System(String),
    /// No schema has a table of this name.
    #[error("{} table \"{}\"{}", listed(schemas), visible(name), hint(nearest))]
    NoTable {
        schemas: Vec<String>,
        name: String,
        /// Tables of the schemas with similar names.
        nearest: Vec<String>,
    },
    /// The schema has no tables.
    #[error("the schema \"{}\" has no table", visible(.0))]
    Empty(String),
    /// The catalog cannot be read.
    #[error(transparent)]
    Database(#[from] ReadError),
    /// The result of the catalog query has an unexpected form.
    #[error("the catalog answered something else: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// The end of a message about a name that does not exist.
fn hint(nearest: &[String]) -> String {
    let names: Vec<String> = nearest.iter().map(|name| visible(name)).collect();
    if names.is_empty() { String::new() } else { format!("; the nearest names are: {}", names.join(", ")) }
}

/// The beginning of a message about tables of schemas.
fn listed(schemas: &[String]) -> String {
    match schemas {
        [schema] => format!("the schema \"{}\" has no", visible(schema)),
        schemas => {
            let names: Vec<String> = schemas.iter().map(|schema| format!("\"{}\"", visible(schema))).collect();
            format!("none of the schemas {} has a", names.join(", "))
        }
    }
}

/// The tables of a schema for which a manifest is written.
#[derive(Debug)]
pub struct SchemaTables {
    pub(crate) schema: String,
    /// In the order of their names.
    pub(crate) tables: Vec<Table>,
    pub(crate) followers: Vec<Follower>,
}

/// Reads the tables of these schemas: those with these names, or all.
pub async fn discover(
    target: &ConnectOptions,
    schemas: &[String],
    names: &[String],
) -> Result<Vec<SchemaTables>, DiscoverError> {
    let catalog = CatalogReader::new(target);
    let mut found = Vec::new();
    for schema in schemas {
        found.push(of_schema(&catalog, schema).await?);
    }
    let has_table = |name: &str| found.iter().flat_map(|of| &of.tables).any(|table| has_name(table, name));
    if let Some(unknown) = names.iter().find(|name| !has_table(name)) {
        let known: Vec<String> = found.into_iter().flat_map(|of| of.tables).map(|table| table.name).collect();
        let wanted = schemas.iter().find_map(|schema| unknown.strip_prefix(&format!("{schema}."))).unwrap_or(unknown);
        let nearest = nearest_names(wanted, &known);
        return Err(DiscoverError::NoTable { schemas: schemas.to_vec(), name: unknown.clone(), nearest });
    }
    if !names.is_empty() {
        found.iter_mut().for_each(|of| of.tables.retain(|table| names.iter().any(|name| has_name(table, name))));
    }
    Ok(found)
}

async fn of_schema(catalog: &CatalogReader, schema: &str) -> Result<SchemaTables, DiscoverError> {
    if schema == read::LEDGER_SCHEMA || schema == "information_schema" || schema.starts_with("pg_") {
        return Err(DiscoverError::System(schema.to_owned()));
    }
    let tables: Vec<Table> = catalog.rows(TABLES, &[json!(schema)]).await?;
    if tables.is_empty() {
        let schemas: Vec<SchemaName> = catalog.rows(SCHEMAS, &[]).await?;
        let schemas: Vec<String> = schemas.into_iter().map(|schema| schema.name).collect();
        if schemas.iter().any(|known| known == schema) {
            return Err(DiscoverError::Empty(schema.to_owned()));
        }
        return Err(DiscoverError::NoSchema { name: schema.to_owned(), nearest: nearest_names(schema, &schemas) });
    }
    let followers = catalog.rows(FOLLOWERS, &[json!(schema)]).await?;
    Ok(SchemaTables { schema: schema.to_owned(), tables, followers })
}

/// Whether the name is that of the table: unquoted, quoted as in SQL, or with the schema.
fn has_name(table: &Table, name: &str) -> bool {
    [&table.name, &table.sql_name, &table.quoted].iter().any(|known| *known == name)
}

#[derive(Deserialize)]
struct SchemaName {
    name: String,
}

/// Reads the catalog over the read path. The queries are constant text, so the functions that they call are not
/// inspected.
struct CatalogReader(Reader);

impl CatalogReader {
    fn new(target: &ConnectOptions) -> Self {
        let limits = ReadLimits { sessions: 1, max_rows: MAX_ROWS, max_bytes: MAX_BYTES, ..ReadLimits::default() };
        Self(Reader::new(target.clone(), &SearchPath::default(), limits).for_trusted_sql())
    }

    async fn rows<T: DeserializeOwned>(&self, sql: &str, params: &[Value]) -> Result<Vec<T>, DiscoverError> {
        let request = ReadRequest { row_limit: Some(MAX_ROWS), ..ReadRequest::new(sql, params, RowFormat::Object) };
        let result = self.0.read(&request).await?;
        Ok(result.rows.deserialize()?)
    }
}
