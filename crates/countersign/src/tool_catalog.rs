//! Compiles the tools of manifests against the live database: those that fit it, and the reasons why the others do
//! not.
//!
//! A tool that does not fit is not served; everything else is. A write whose declared undo does not fit is served
//! only if its recorded changes can undo it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use catalog::CatalogNames;
use ledger::read::{ReadLimits, Reader, SearchPath};
use ledger::{ConnectOptions, Coverage, CoveredTable, Gap, Ledger, ReaderRoleError};
use manifest::{
    Compilation, Diagnostic, Diagnostics, OutdatedTool, ServerNames, Source, ToolCatalog, ToolSpec, UndoSpec,
};
use types::{ConditionShape, DescribeError, DescribeStatement, Requirements, RequirementsCheck, StatementShape};

use crate::connection;
use crate::settings::{DatabaseSettings, ProfileConfig, Settings};

pub(crate) fn read_manifests(paths: &[PathBuf]) -> anyhow::Result<Vec<Source>> {
    paths
        .iter()
        .map(|path| Source::read(path).with_context(|| format!("the manifest {} cannot be read", path.display())))
        .collect()
}

/// Describes statements like the ledger, and adds the hints that a query also gets.
struct HintingDescriber<'a> {
    ledger: &'a Ledger,
    /// Reads the catalog with the privileges of the servers' login.
    names: CatalogNames,
    /// The login of reads, if it is not the one that `init` has made.
    reader: Option<&'a str>,
}

impl DescribeStatement for HintingDescriber<'_> {
    async fn describe(&self, sql: &str, param_types: &[u32]) -> Result<StatementShape, DescribeError> {
        let answer = self.ledger.describe(sql, param_types).await;
        let Err(error @ DescribeError::Refused { .. }) = &answer else { return answer };
        let found = catalog::statement_hint(&self.names, sql, error).await;
        answer.map_err(|error| match error {
            DescribeError::Refused { message, sqlstate, hint, position } => {
                DescribeError::Refused { message, sqlstate, hint: found.or(hint), position }
            }
            unavailable @ DescribeError::Unavailable(_) => unavailable,
        })
    }

    async fn check_requirements(&self, requirements: &Requirements) -> Result<RequirementsCheck, DescribeError> {
        let unavailable = |error: ReaderRoleError| DescribeError::Unavailable(error.to_string());
        let own = match self.reader {
            Some(reader) => reader.to_owned(),
            None => self.ledger.reader_login().await.map_err(unavailable)?.user,
        };
        self.ledger.check_requirements_of(requirements, Some(&own)).await
    }

    async fn describe_condition(&self, sql: &str, param_types: &[u32]) -> Result<ConditionShape, DescribeError> {
        self.ledger.describe_condition(sql, param_types).await
    }
}

/// What the tools of a database must fit to, besides the database.
#[derive(Default)]
pub(crate) struct ServerTools<'a> {
    /// What the names of the database's tools begin with.
    prefix: &'a str,
    profiles: &'a [ProfileConfig],
    /// The tools of the manifests of other databases.
    elsewhere: Vec<String>,
    /// The login of reads, if it is configured.
    reader: Option<String>,
}

impl<'a> ServerTools<'a> {
    pub(crate) fn new(settings: &'a Settings, database: &'a DatabaseSettings) -> Self {
        let others = settings.databases.iter().filter(|other| other.name() != database.name());
        // What is wrong with the manifests of another database is reported there.
        let declared = |other: &DatabaseSettings| {
            manifest::declared(&read_manifests(&other.manifests).unwrap_or_default(), &other.prefix)
        };
        let elsewhere = others.flat_map(declared).map(|tool| tool.name).collect();
        // A mistake in the connection string is reported where it is used.
        let reader = database.read.as_ref().and_then(|read| connection::parse(read, database).ok());
        let reader = reader.map(|target| target.user);
        Self { prefix: &database.prefix, profiles: &settings.profiles, elsewhere, reader }
    }
}

/// Compiles manifests against the live database, all or nothing, and checks that the tools named in profiles exist.
///
/// # Errors
/// Contains [`Diagnostics`] with all errors if manifests or profiles are wrong.
pub(crate) async fn compile(
    sources: &[Source],
    server: &ServerTools<'_>,
    ledger: &Ledger,
    target: &ConnectOptions,
) -> anyhow::Result<ToolCatalog> {
    let catalog = compile_fitting(sources, server, ledger, target).await?;
    if catalog.misfits.is_empty() { Ok(catalog) } else { Err(not_fitting(catalog.misfits)) }
}

/// Compiles manifests against the live database. The catalog has the tools that fit, and the reasons why the others
/// do not.
///
/// # Errors
/// Contains [`Diagnostics`] with all errors if a file or a profile is wrong regardless of the database.
pub(crate) async fn compile_fitting(
    sources: &[Source],
    server: &ServerTools<'_>,
    ledger: &Ledger,
    target: &ConnectOptions,
) -> anyhow::Result<ToolCatalog> {
    let compiled = describe(sources, server, ledger, target).await?;
    let declared = manifest::declared(sources, server.prefix);
    let declared = declared.iter().map(|tool| tool.name.as_str());
    let elsewhere = server.elsewhere.iter().map(String::as_str);
    let known: Vec<&str> = tools::builtin::NAMES.into_iter().chain(declared).chain(elsewhere).collect();
    let of_profiles: Vec<Diagnostic> = server.profiles.iter().flat_map(|own| own.unknown_tools(&known)).collect();
    let compiled = match compiled {
        Err(Diagnostics(mut mistakes)) => {
            mistakes.extend(of_profiles);
            return Err(not_fitting(mistakes));
        }
        Ok(compiled) => compiled,
    };
    let catalog = settle(ledger, compiled).await?;
    match (of_profiles.is_empty(), catalog.misfits.is_empty()) {
        (true, _) => Ok(catalog),
        (false, true) => Err(profile_error(of_profiles)),
        (false, false) => Err(not_fitting(catalog.misfits.into_iter().chain(of_profiles).collect())),
    }
}

/// Compiles manifests without profiles and undo: only the statements, and the tables that they use.
///
/// # Errors
/// Contains [`Diagnostics`] with all errors if manifests are wrong.
pub(crate) async fn compile_statements(
    sources: &[Source],
    ledger: &Ledger,
    target: &ConnectOptions,
) -> anyhow::Result<ToolCatalog> {
    let Compilation { catalog, undo_mistakes } = describe(sources, &ServerTools::default(), ledger, target)
        .await?
        .map_err(|Diagnostics(mistakes)| not_fitting(mistakes))?;
    let mistakes: Vec<Diagnostic> = catalog.misfits.iter().cloned().chain(undo_mistakes).collect();
    if mistakes.is_empty() { Ok(catalog) } else { Err(not_fitting(mistakes)) }
}

async fn describe(
    sources: &[Source],
    tools: &ServerTools<'_>,
    ledger: &Ledger,
    target: &ConnectOptions,
) -> anyhow::Result<Result<Compilation, Diagnostics>> {
    let native = tools::native::executors()?;
    let executors: Vec<&str> = native.names().collect();
    let server = ServerNames { builtin: &tools::builtin::NAMES, executors: &executors, prefix: tools.prefix };
    let limits = ReadLimits { sessions: 1, ..ReadLimits::default() };
    let names = CatalogNames::new(Reader::new(target.clone(), &SearchPath::default(), limits));
    let describer = HintingDescriber { ledger, names, reader: tools.reader.as_deref() };
    Ok(manifest::compile_fitting(sources, &server, &describer).await)
}

fn not_fitting(mut mistakes: Vec<Diagnostic>) -> anyhow::Error {
    mistakes.sort();
    mistakes.dedup();
    anyhow::Error::new(Diagnostics(mistakes)).context("the manifests do not fit the database")
}

/// Determines how the writes are undone: by recorded changes, by a tool, or not at all. A write is outdated if it
/// declares no undo and its changes are not all recorded, or if its declared undo does not fit.
async fn settle(ledger: &Ledger, compiled: Compilation) -> anyhow::Result<ToolCatalog> {
    let Compilation { mut catalog, mut undo_mistakes } = compiled;
    let tracking = ledger.tracking();
    let mut unrecorded = Vec::new();
    for tool in catalog.tools.iter().filter(|tool| tool.access.writes()) {
        let coverage =
            tracking.coverage(tool.written_tables()).await.context("which tables are tracked cannot be asked")?;
        catalog.warnings.extend(recorded_in_clear(tool, &coverage));
        if coverage.is_undoable() {
            catalog.recorded.insert(tool.name.clone());
            if !coverage.reaches_others {
                catalog.self_contained.insert(tool.name.clone());
            }
        } else if tool.undo == UndoSpec::None {
            unrecorded.push((tool.name.clone(), not_recorded(tool, &coverage)));
        }
    }
    for (name, mistake) in unrecorded {
        withdraw(&mut catalog, &name, vec![mistake]);
    }
    // A withdrawn tool may be the declared undo of another one.
    while let Some((name, mistakes)) = without_undo(&catalog, &undo_mistakes) {
        if catalog.recorded.contains(&name) {
            drop_undo(&mut catalog, &name, mistakes);
        } else {
            withdraw(&mut catalog, &name, mistakes);
        }
        undo_mistakes.retain(|mistake| mistake.tool.as_ref() != Some(&name));
    }
    catalog.misfits.sort();
    catalog.misfits.dedup();
    Ok(catalog)
}

/// The error for a write that declares no undo and whose changes are not all recorded.
fn not_recorded(tool: &ToolSpec, coverage: &Coverage) -> Diagnostic {
    let gap = |(table, gap): (&CoveredTable, Gap)| format!("{} ({})", table.name, gap.words());
    let gaps: Vec<String> = coverage.gaps().map(gap).collect();
    let why = if gaps.is_empty() { "its plan shows none".to_owned() } else { gaps.join(", ") };
    Diagnostic {
        at: tool.declared_at.clone(),
        tool: Some(tool.name.clone()),
        message: format!(
            "a write says how it is undone ([tool.undo] with tool and params), or that it cannot be (undo = {{ irreversible = \"why\" }}), \
             unless all tables that it changes are tracked (`countersign track`): {why}"
        ),
    }
}

/// The first tool whose declared undo does not fit or is not served, and the reasons.
fn without_undo(catalog: &ToolCatalog, undo_mistakes: &[Diagnostic]) -> Option<(String, Vec<Diagnostic>)> {
    let served: BTreeSet<&str> = catalog.tools.iter().map(|tool| tool.name.as_str()).collect();
    catalog.tools.iter().find_map(|tool| {
        let own = |mistake: &&Diagnostic| mistake.tool.as_ref() == Some(&tool.name);
        let mut mistakes: Vec<Diagnostic> = undo_mistakes.iter().filter(own).cloned().collect();
        if let UndoSpec::Calls { tool: called, .. } = &tool.undo
            && mistakes.is_empty()
            && !served.contains(called.as_str())
        {
            mistakes.push(Diagnostic {
                at: tool.declared_at.clone(),
                tool: Some(tool.name.clone()),
                message: format!("undo: its tool {called} does not fit the database"),
            });
        }
        (!mistakes.is_empty()).then(|| (tool.name.clone(), mistakes))
    })
}

/// Moves a tool from the served ones to those that do not fit.
fn withdraw(catalog: &mut ToolCatalog, name: &str, mistakes: Vec<Diagnostic>) {
    if let Some(index) = catalog.tools.iter().position(|tool| tool.name == name) {
        let tool = catalog.tools.remove(index);
        catalog.misfits.extend(mistakes.iter().cloned());
        catalog.outdated.push(OutdatedTool::without_undo(&tool, mistakes));
    }
}

/// Drops the declared undo of a tool, whose recorded changes can undo it.
fn drop_undo(catalog: &mut ToolCatalog, name: &str, mistakes: Vec<Diagnostic>) {
    if let Some(tool) = catalog.tools.iter_mut().find(|tool| tool.name == name) {
        Arc::make_mut(tool).undo = UndoSpec::None;
        catalog.misfits.extend(mistakes);
    }
}

/// The warning that the value of a sensitive parameter may be recorded with the rows of a tracked table, since no
/// column of the table is sensitive.
fn recorded_in_clear(tool: &ToolSpec, coverage: &Coverage) -> Option<Diagnostic> {
    let param = tool.sensitive_params().next()?;
    let table = coverage.tables.iter().find(|table| table.gap.is_none_or(Gap::closes_itself) && !table.hides)?;
    let (name, table) = (&param.name, &table.name);
    Some(Diagnostic {
        at: tool.declared_at.clone(),
        tool: Some(tool.name.clone()),
        message: format!(
            "\"{name}\" is sensitive, and {table} is tracked without a sensitive column: if the tool stores the value there, the ledger records \
             it with the row. Track the table again with --sensitive and the column"
        ),
    })
}

/// The error for invalid profiles.
pub(crate) fn profile_error(mistakes: Vec<Diagnostic>) -> anyhow::Error {
    anyhow::Error::new(Diagnostics(mistakes)).context("the profiles do not fit the tools")
}
