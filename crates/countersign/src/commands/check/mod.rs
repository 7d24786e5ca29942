//! `countersign check`: reports every error of every manifest, and what the tools do, without serving.

mod approvers;
mod changed;
pub(crate) mod grants;
mod listing;
mod rounding;
mod unseen;

use std::process::ExitCode;

use anyhow::Context;
use ledger::read::{ReadLimits, ReadRequest, Reader, RowFormat, SearchPath};
use ledger::{ConnectOptions, Ledger};
use manifest::ToolCatalog;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use types::{TableAccess, Tier, visible};

use crate::commands::bootstrap;
use crate::commands::cli::CheckArgs;
use crate::commands::several::{done, on_each};
use crate::connection;
use crate::settings::{DatabaseSettings, Settings};
use crate::terminal::{print_error, print_line, print_lines, width};
use crate::tool_catalog::{self, ServerTools};

pub(crate) async fn run(arguments: &CheckArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    bootstrap::check_several(settings, false)?;
    let run = async |own| done(connection::answered(own, one(arguments, own, settings)).await);
    on_each(settings, false, run).await
}

async fn one(arguments: &CheckArgs, database: &DatabaseSettings, settings: &Settings) -> anyhow::Result<()> {
    anyhow::ensure!(
        !database.manifests.is_empty(),
        "there is no manifest to check: give --manifest FILE, COUNTERSIGN_MANIFEST, or manifests in the configuration file"
    );
    settings.authenticator()?;
    let sources = tool_catalog::read_manifests(&database.manifests)?;
    let target = connection::configured(database)?;
    let ledger = Ledger::new(target.clone(), database.ledger.clone());
    ledger.check().await?;
    connection::check_search_path(&target, database).await?;
    let catalog = tool_catalog::compile(&sources, &ServerTools::new(settings, database), &ledger, &target).await?;
    let questions = CatalogQueries::new(&target);
    bootstrap::masks(database, Some(&questions.0)).await?;
    if let Some(role) = &arguments.grants {
        print_lines(grants::missing(&questions, &catalog, role).await?);
        return Ok(());
    }
    let tell = |text: &str| print_lines(listing::sentence(text, width()));
    print_lines(listing::lines(&catalog, width()));
    tell(&summary(&catalog));
    for missing in &catalog.left_out {
        tell(&format!("left out: {missing}"));
    }
    for warning in &catalog.warnings {
        tell(&format!("warning: {warning}"));
    }
    match approvers::warnings(&questions, &catalog).await {
        Ok(warnings) => warnings.iter().for_each(|warning| tell(warning)),
        Err(error) => print_error(&format!("the groups of approvers could not be looked up: {error:#}")),
    }
    match unseen::notes(&questions, &catalog).await {
        Ok(notes) => notes.iter().for_each(|note| tell(note)),
        Err(error) => print_error(&format!("triggers and foreign keys could not be looked up: {error:#}")),
    }
    match rounding::notes(&questions, &catalog).await {
        Ok(notes) => notes.iter().for_each(|note| tell(note)),
        Err(error) => print_error(&format!("the digits of columns could not be looked up: {error:#}")),
    }
    match changed::lines(&ledger, &catalog).await {
        Ok(lines) => lines.iter().for_each(|line| print_line(&visible(line))),
        Err(error) => print_error(&format!("whether tables are tracked could not be looked up: {error:#}")),
    }
    // Whether the reader can log in is not what this command reports.
    if let Ok(reader) = ledger.reader_login().await {
        for schema in SearchPath::load(&reader).await.unwrap_or_default().untrusted {
            tell(&format!("warning: {}", bootstrap::not_searched(&schema)));
        }
    }
    Ok(())
}

/// The summary of valid manifests. Compiling them has already checked every executor.
pub(crate) fn summary(catalog: &ToolCatalog) -> String {
    let writes = catalog.tools.iter().filter(|tool| tool.access.writes()).count();
    let of = |tier: Tier| catalog.tools.iter().filter(|tool| tool.tier == tier).count();
    let (confirm, approve) = (of(Tier::Confirm), of(Tier::Approve));
    format!(
        "{} tools fit the database, {writes} of them write. Tools that need agreement: {} ({confirm} confirm, {approve} approve); \
         every executor is there.",
        catalog.tools.len(),
        confirm + approve
    )
}

/// A table, as the queries take it.
#[derive(Serialize)]
struct TableName<'a> {
    schema_name: &'a str,
    table_name: &'a str,
}

impl<'a> From<&'a TableAccess> for TableName<'a> {
    fn from(table: &'a TableAccess) -> Self {
        Self { schema_name: &table.schema, table_name: &table.table }
    }
}

/// Queries on the catalog, over the read path.
pub(crate) struct CatalogQueries(Reader);

impl CatalogQueries {
    pub(crate) fn new(target: &ConnectOptions) -> Self {
        let limits = ReadLimits { sessions: 1, ..ReadLimits::default() };
        Self(Reader::new(target.clone(), &SearchPath::default(), limits))
    }

    async fn ask<T: DeserializeOwned>(&self, sql: &str, params: &[Value]) -> anyhow::Result<Vec<T>> {
        let request = ReadRequest { row_limit: Some(10_000), ..ReadRequest::new(sql, params, RowFormat::Object) };
        let result = self.0.read(&request).await?;
        result.rows.deserialize().context("the catalog answered something else")
    }
}
