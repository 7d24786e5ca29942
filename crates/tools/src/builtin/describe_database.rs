//! `describe_database`: what there is, for agents who do not know the schema. Small answers first, detail on demand.

use std::pin::Pin;

use contract::{ErrorCode, Failure};
use ledger::read::{ReadError, Reader};
use manifest::Access;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{read_failure, reading_info};
use crate::discovery::correction::{listed, nearest_tables};
use crate::discovery::data::DescribeData;
use crate::discovery::{self, nearest};
use crate::tool::{Answer, Call, Outcome, Tool, ToolInfo};

pub(super) const NAME: &str = "describe_database";

const DESCRIPTION: &str = "Find out what is in the database before querying it. Without arguments: every schema with its \
    tables and views (kind, estimated rows, size, comment). With schema: those of one schema. With table: everything of \
    one table: columns, keys, references both ways, checks, indexes, enum values. With search: tables and columns with \
    that word in their name or comment. Only what query_database may read.";

/// Tables that are listed, and tables and columns that a search shows.
const MAX_LISTED: usize = 500;
const MAX_FOUND: usize = 100;

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Only this schema.
    #[serde(default)]
    #[schemars(with = "String", length(min = 1))]
    schema: Option<String>,
    /// Everything of this table or view: its name, or schema.name.
    #[serde(default)]
    #[schemars(with = "String", length(min = 1))]
    table: Option<String>,
    /// Tables and columns whose name or comment has this in it, whatever the case. Not together with table.
    #[serde(default)]
    #[schemars(with = "String", length(min = 1))]
    search: Option<String>,
}

/// The tool.
pub(super) struct DescribeDatabase {
    info: ToolInfo,
    reader: Reader,
}

impl DescribeDatabase {
    pub(super) fn new(reader: Reader) -> Self {
        let info = reading_info::<Arguments, DescribeData>(NAME, "Describe the database", DESCRIPTION, Access::Read);
        Self { info, reader }
    }

    async fn describe(&self, arguments: &Arguments) -> Result<DescribeData, Failure> {
        let schema = arguments.schema.as_deref();
        match (&arguments.table, &arguments.search) {
            (Some(_), Some(_)) => {
                let message = format!("{NAME}: table and search do not go together");
                Err(Failure::new(ErrorCode::InvalidParams, message)
                    .hint("Search first, then ask for the table that was found."))
            }
            (Some(table), None) => self.table(schema, table).await,
            (None, Some(word)) => self.search(schema, word).await,
            (None, None) => self.overview(schema).await,
        }
    }

    async fn overview(&self, schema: Option<&str>) -> Result<DescribeData, Failure> {
        let schemas = discovery::overview(&self.reader, schema, MAX_LISTED).await.map_err(|it| self.failure(it))?;
        if let (Some(schema), []) = (schema, schemas.as_slice()) {
            return Err(self.no_such_schema(schema).await);
        }
        let truncated = schemas.iter().any(|schema| schema.table_count > schema.tables.len() as u64);
        Ok(DescribeData { schemas: Some(schemas), truncated, ..DescribeData::default() })
    }

    async fn search(&self, schema: Option<&str>, word: &str) -> Result<DescribeData, Failure> {
        let found = discovery::search(&self.reader, schema, word, MAX_FOUND).await.map_err(|it| self.failure(it))?;
        let truncated = found.as_ref().is_some_and(|found| found.truncated);
        Ok(DescribeData { found, truncated, ..DescribeData::default() })
    }

    async fn table(&self, schema: Option<&str>, table: &str) -> Result<DescribeData, Failure> {
        let mut tables = discovery::tables(&self.reader, schema, table).await.map_err(|it| self.failure(it))?;
        match (tables.pop(), tables.as_slice()) {
            (Some(table), []) => Ok(DescribeData { table: Some(table), ..DescribeData::default() }),
            (None, _) => Err(self.no_such_table(schema, table).await),
            (Some(last), others) => {
                let schemas: Vec<&str> = others.iter().chain([&last]).map(|it| it.schema.as_str()).collect();
                let message = format!("{NAME}: several schemas have a table named \"{table}\"");
                let hint = format!("Give one of these as schema: {}.", schemas.join(", "));
                Err(Failure::new(ErrorCode::InvalidParams, message).hint(hint))
            }
        }
    }

    async fn no_such_schema(&self, schema: &str) -> Failure {
        let existing = discovery::schema_names(&self.reader).await.unwrap_or_default();
        let near = nearest(schema, &existing, |it| &it.name);
        let hint = listed("The nearest schemas that exist", near.into_iter().map(|it| it.shown.clone()));
        not_found(&format!("schema \"{schema}\""), hint)
    }

    async fn no_such_table(&self, schema: Option<&str>, table: &str) -> Failure {
        let (written_schema, name) = table.split_once('.').map_or((None, table), |(schema, name)| (Some(schema), name));
        let schema = schema.or(written_schema);
        let existing = discovery::table_names(&self.reader, name).await.unwrap_or_default();
        let near = nearest_tables(schema, name, &existing);
        let hint = listed("The nearest tables that exist", near.into_iter().map(|it| it.shown.clone()));
        let place = schema.filter(|_| written_schema.is_none()).map(|schema| format!(" in schema \"{schema}\""));
        not_found(&format!("table or view \"{table}\"{}", place.unwrap_or_default()), hint)
    }

    fn failure(&self, error: ReadError) -> Failure {
        let is_too_large = matches!(error, ReadError::TooLarge(_));
        let failure = read_failure(error, self.reader.limits().deadline);
        if is_too_large { failure.hint("Ask for less: one schema, one table, or a search.") } else { failure }
    }
}

fn not_found(what: &str, hint: Option<String>) -> Failure {
    Failure::new(ErrorCode::NotFound, format!("there is no {what} that may be read"))
        .hint(hint.unwrap_or_else(|| format!("{NAME} without arguments lists what there is.")))
}

impl Tool for DescribeDatabase {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(async move {
            let arguments: Arguments = super::arguments(NAME, call.arguments)?;
            match tokio::time::timeout_at(call.deadline, self.describe(&arguments)).await {
                Ok(data) => Answer::read(&data?),
                Err(_) => Err(Failure::new(ErrorCode::Timeout, format!("{NAME} did not finish in time")).into()),
            }
        })
    }
}
