//! `countersign://database`: the schema of the database, in the form of `describe_database`.

use std::sync::Arc;

use serde_json::Value;
use types::{CallerContext, DatabaseName, ErrorCode, Failure};

use super::{
    CompletionRequest, Completions, Resource, ResourceEntry, ResourceFuture, ResourceInfo, ResourceUri, UriTemplate,
};
use crate::describer::DatabaseDescriber;
use crate::queries::{self, CatalogEntry};
use crate::served::ServedTools;

const NAME: &str = "database";

fn info(name: Option<&DatabaseName>) -> ResourceInfo {
    let root = ResourceUri::new(NAME, &name.into_iter().map(DatabaseName::as_str).collect::<Vec<_>>());
    let templates = vec![
        UriTemplate {
            uri: format!("{root}/{{schema}}"),
            name: "schema",
            title: "A schema",
            description: "The tables and views of a schema, as describe_database answers them.",
        },
        UriTemplate {
            uri: format!("{root}/{{schema}}/{{table}}"),
            name: "table",
            title: "A table or view",
            description: "Everything of a table or view, as describe_database answers it: columns, keys, references, \
                indexes, notes, and the tools that read or write it.",
        },
    ];
    ResourceInfo { root, tool: crate::DESCRIBE_TOOL, templates }
}

pub(super) struct Database {
    describer: DatabaseDescriber,
    info: ResourceInfo,
}

impl Database {
    /// `name` is the database's, where the server has several.
    pub(super) fn new(describer: DatabaseDescriber, name: Option<&DatabaseName>) -> Self {
        Self { describer, info: info(name) }
    }

    /// The URI of a part of the database.
    fn uri(&self, path: &[&str]) -> ResourceUri {
        let mut uri = self.info.root.clone();
        uri.path.extend(path.iter().map(|&part| part.to_owned()));
        uri
    }

    async fn listed(&self, after: Option<&[String]>, max: usize) -> Result<Vec<ResourceEntry>, Failure> {
        let after = match after {
            None | Some([]) => Ok(None),
            Some([schema]) => Ok(Some((schema.as_str(), None))),
            Some([schema, table]) => Ok(Some((schema.as_str(), Some(table.as_str())))),
            Some(_) => Err(Failure::new(ErrorCode::InvalidParams, "invalid pagination cursor")),
        };
        let is_first = matches!(after, Ok(None));
        let found = queries::listing(self.describer.reader(), after?, max).await;
        let found = found.map_err(|error| self.describer.failure(error))?;
        let overview = is_first.then(|| self.overview());
        Ok(overview.into_iter().chain(found.into_iter().map(|entry| self.entry(entry))).collect())
    }

    async fn described(
        &self,
        path: &[String],
        context: &Arc<CallerContext>,
        tools: ServedTools<'_>,
    ) -> Result<Value, Failure> {
        let describer = self.describer.for_caller(context);
        let data = match path {
            [] => describer.overview(None).await,
            [schema] => describer.overview(Some(schema)).await,
            [schema, table] => describer.table(Some(schema), table, tools).await,
            _ => {
                let root = &self.info.root;
                let message = format!("an address has at most a schema and a table: {root}/{{schema}}/{{table}}");
                Err(Failure::new(ErrorCode::NotFound, message).hint("Write a / within a name as %2F."))
            }
        }?;
        serde_json::to_value(data).map_err(|error| {
            tracing::error!(%error, "a description cannot be serialized");
            Failure::new(ErrorCode::InternalError, "the description cannot be written as JSON")
        })
    }

    async fn completed(&self, typed: &CompletionRequest) -> Result<Completions, Failure> {
        let (reader, max) = (self.describer.reader(), typed.max);
        let found = match typed.variable.as_str() {
            "schema" => queries::schemas_like(reader, &typed.value, max + 1).await,
            "table" => {
                let schema = typed.known.get("schema").map(String::as_str);
                queries::tables_like(reader, schema, &typed.value, max + 1).await
            }
            _ => Ok(Vec::new()),
        };
        let mut values = found.map_err(|error| self.describer.failure(error))?;
        let more = values.len() > max;
        values.truncate(max);
        Ok(Completions { values, more })
    }

    fn overview(&self) -> ResourceEntry {
        let description = "What there is in the database: schemas and their tables, as describe_database answers \
                           without arguments.";
        let name = self.info.root.path.last().map_or(NAME, String::as_str);
        ResourceEntry { uri: self.info.root.clone(), name: name.to_owned(), description: description.to_owned() }
    }

    /// An entry of the list. It has no comments; the description of a table has them.
    fn entry(&self, CatalogEntry { schema, table, kind }: CatalogEntry) -> ResourceEntry {
        match table {
            None => ResourceEntry { uri: self.uri(&[&schema]), name: schema, description: kind },
            Some(table) => ResourceEntry {
                uri: self.uri(&[&schema, &table]),
                name: format!("{schema}.{table}"),
                description: kind,
            },
        }
    }
}

impl Resource for Database {
    fn info(&self) -> &ResourceInfo {
        &self.info
    }

    fn change_key(&self) -> Vec<String> {
        self.describer.change_key()
    }

    fn list<'a>(&'a self, after: Option<&'a [String]>, max: usize) -> ResourceFuture<'a, Vec<ResourceEntry>> {
        Box::pin(self.listed(after, max))
    }

    fn read<'a>(
        &'a self,
        path: &'a [String],
        context: &'a Arc<CallerContext>,
        tools: ServedTools<'a>,
    ) -> ResourceFuture<'a, Value> {
        Box::pin(self.described(path, context, tools))
    }

    fn complete<'a>(&'a self, typed: &'a CompletionRequest) -> ResourceFuture<'a, Completions> {
        Box::pin(self.completed(typed))
    }
}
