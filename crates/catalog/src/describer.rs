//! The content of `describe_database` and of the resources.

use std::sync::Arc;

use manifest::ToolCatalog;
use read::{ReadError, Reader};
use types::{CallerContext, ErrorCode, Failure, Masks, nearest};

use crate::annotations::CatalogAnnotations;
use crate::names::CatalogNames;
use crate::queries;
use crate::read_failure::read_failure;
use crate::responses::{DescribeData, TableData};
use crate::served::ServedTools;
use crate::suggestion::{listed, nearest_tables};
use crate::truncate::{fit, fit_one, fitting};

/// The size limit of an overview, in bytes of JSON: about 4,000 tokens.
const MAX_OVERVIEW_BYTES: usize = 16 << 10;

/// The size limit of the descriptions of several tables together, in bytes of JSON: about 10,000 tokens.
const MAX_TABLES_BYTES: usize = 40 << 10;

/// The maximum number of tables and of columns in a search result.
const MAX_FOUND: usize = 50;

/// How an agent reads what did not fit.
const REST_OF_DATABASE: &str =
    "Not every schema and table is described: ask for one schema, or search a part of a name.";
const REST_OF_SCHEMA: &str =
    "Not every table of the schema is described: search a part of its name, or ask for a table.";
const REST_OF_FOUND: &str = "More names contain this: search a longer part, or in one schema.";

/// Reads the catalog and adds the manifests' annotations.
#[derive(Debug, Clone)]
pub struct DatabaseDescriber {
    names: CatalogNames,
    annotations: Arc<CatalogAnnotations>,
    masks: Option<Arc<Masks>>,
}

impl DatabaseDescriber {
    /// A describer that reads with the login of `names`, and adds the notes and tools of the manifests.
    #[must_use]
    pub fn new(names: CatalogNames, catalog: &ToolCatalog) -> Self {
        Self { names, annotations: Arc::new(CatalogAnnotations::new(catalog)), masks: None }
    }

    /// A describer for a caller with these masks: it marks masked columns and shows no values of them.
    #[must_use]
    pub fn with_masks(&self, masks: Option<Arc<Masks>>) -> Self {
        Self { masks, ..self.clone() }
    }

    /// A describer of what a caller with this role may read.
    #[must_use]
    pub fn for_caller(&self, context: &Arc<CallerContext>) -> Self {
        Self { names: self.names.for_caller(context), ..self.clone() }
    }

    pub(crate) fn reader(&self) -> &Reader {
        self.names.reader()
    }

    /// The notes of the manifests in a text form, to detect that they have changed.
    pub(crate) fn change_key(&self) -> Vec<String> {
        self.annotations.change_key()
    }

    /// Describes all schemas, or one, with as many of their tables as fit.
    pub async fn overview(&self, schema: Option<&str>) -> Result<DescribeData, Failure> {
        let schemas = queries::overview(self.reader(), schema).await;
        let mut schemas = schemas.map_err(|error| self.failure(error))?;
        self.annotations.annotate_schemas(&mut schemas);
        let (schemas, truncated) = match schema {
            None => fit(schemas, MAX_OVERVIEW_BYTES),
            Some(name) => {
                let Some(schema) = schemas.pop() else { return Err(self.no_such_schema(name).await) };
                let (schema, truncated) = fit_one(schema, MAX_OVERVIEW_BYTES);
                (vec![schema], truncated)
            }
        };
        let hint = truncated.then_some(if schema.is_some() { REST_OF_SCHEMA } else { REST_OF_DATABASE });
        Ok(DescribeData { schemas: Some(schemas), truncated, hint, ..DescribeData::default() })
    }

    /// Finds tables and columns whose name, comment or note contains `word`.
    pub async fn search(&self, schema: Option<&str>, word: &str) -> Result<DescribeData, Failure> {
        let found = queries::search(self.reader(), schema, word, MAX_FOUND, &self.annotations).await;
        let mut found = found.map_err(|error| self.failure(error))?;
        found.iter_mut().for_each(|found| self.annotations.annotate_found(found));
        let truncated = found.as_ref().is_some_and(|found| found.truncated);
        Ok(DescribeData { found, truncated, hint: truncated.then_some(REST_OF_FOUND), ..DescribeData::default() })
    }

    /// Describes one table, and those of `tools` that use it.
    pub async fn table(
        &self,
        schema: Option<&str>,
        table: &str,
        tools: ServedTools<'_>,
    ) -> Result<DescribeData, Failure> {
        let table = self.one_table(schema, table, tools).await?;
        let truncated = table.truncated;
        Ok(DescribeData { table: Some(table), truncated, ..DescribeData::default() })
    }

    /// Describes as many of these tables as fit, but at least the first one.
    pub async fn tables(
        &self,
        schema: Option<&str>,
        names: &[String],
        tools: ServedTools<'_>,
    ) -> Result<DescribeData, Failure> {
        let mut tables = Vec::with_capacity(names.len());
        for name in names {
            tables.push(self.one_table(schema, name, tools).await?);
        }
        let shown = fitting(&tables, MAX_TABLES_BYTES).max(1);
        tables.truncate(shown);
        let left_out: Vec<String> = names.iter().skip(shown).cloned().collect();
        let truncated = !left_out.is_empty() || tables.iter().any(|table| table.truncated);
        Ok(DescribeData { tables: Some(tables), left_out, truncated, ..DescribeData::default() })
    }

    async fn one_table(&self, schema: Option<&str>, table: &str, tools: ServedTools<'_>) -> Result<TableData, Failure> {
        let found = queries::tables(self.reader(), schema, table, &self.annotations).await;
        let found = found.map_err(|error| self.failure(error))?;
        let schemas: Vec<String> = found.iter().map(|it| it.schema.clone()).collect();
        let mut found = found.into_iter();
        let Some(mut first) = found.next() else { return Err(self.no_such_table(schema, table).await) };
        // Within one schema, an exact match has precedence over a table that is only spelled like it (`"a.b"` for b
        // in schema a).
        if schema.is_none() && schemas.len() > 1 {
            let message = format!("several schemas have a table named \"{table}\"");
            let hint = format!("Give one of these as schema: {}.", schemas.join(", "));
            return Err(Failure::new(ErrorCode::InvalidParams, message).hint(hint));
        }
        self.annotations.annotate_table(&mut first, tools);
        if let Some(masks) = &self.masks {
            let masked = self.reader().masked_columns(masks).await.map_err(|error| self.failure(error))?;
            first.mask(&masked);
        }
        Ok(first)
    }

    async fn no_such_schema(&self, schema: &str) -> Failure {
        let existing = queries::schema_names(self.reader()).await.unwrap_or_default();
        let near = nearest(schema, &existing, |it| &it.name);
        let hint = listed("The nearest schemas that exist", near.into_iter().map(|it| it.shown.clone()));
        not_found(&format!("schema \"{schema}\""), hint)
    }

    async fn no_such_table(&self, schema: Option<&str>, table: &str) -> Failure {
        let (written_schema, name) = table.split_once('.').map_or((None, table), |(schema, name)| (Some(schema), name));
        let schema = schema.or(written_schema);
        let existing = self.names.tables(name).await.unwrap_or_default();
        let near = nearest_tables(schema, name, &existing);
        let hint = listed("The nearest tables that exist", near.into_iter().map(|it| it.shown.clone()));
        let in_schema = schema.filter(|_| written_schema.is_none()).map(|schema| format!(" in schema \"{schema}\""));
        not_found(&format!("table or view \"{table}\"{}", in_schema.unwrap_or_default()), hint)
    }

    pub(crate) fn failure(&self, error: ReadError) -> Failure {
        let failure = read_failure(error, self.reader().limits().deadline);
        let asks_for_much = matches!(failure.code, ErrorCode::ResultTooLarge | ErrorCode::Timeout);
        if asks_for_much { failure.hint("Ask for less: one schema, one table, or a search.") } else { failure }
    }
}

fn not_found(what: &str, hint: Option<String>) -> Failure {
    Failure::new(ErrorCode::NotFound, format!("{what} does not exist or is not readable"))
        .hint(hint.unwrap_or_else(|| "describe_database without arguments lists what there is.".to_owned()))
}
