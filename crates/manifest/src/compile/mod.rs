//! Compiles manifests to a catalog: parse, check the files alone, describe the statements, check against the
//! database, build.

mod build;

use std::sync::Arc;

use types::DescribeStatement;

use crate::missing_privileges::MissingPrivileges;
use crate::parse::{ParsedManifest, ParsedTool, parse};
use crate::{
    DeclaredTool, Diagnostic, Diagnostics, OutdatedTool, Source, ToolCatalog, check, infer, notes, policy, requirements,
};

/// The names of a server that do not come from manifests.
#[derive(Debug, Clone, Copy)]
pub struct ServerNames<'a> {
    /// The built-in tools, served or not. No manifest may use their names.
    pub builtin: &'a [&'a str],
    /// The Rust executors that tools can name.
    pub executors: &'a [&'a str],
    /// What the name of each tool of the manifests begins with, besides its name there.
    pub prefix: &'a str,
}

/// The tools that the manifests declare, valid or not, with this prefix of their names.
#[must_use]
pub fn declared(sources: &[Source], prefix: &str) -> Vec<DeclaredTool> {
    let mut manifest = ParsedManifest::default();
    for source in sources {
        parse(source, &mut manifest, &mut Diagnostics::default());
    }
    manifest.add_prefix(prefix);
    declared_tools(&manifest)
}

/// Compiles the manifests against a database. The result has all tools, or there is none.
///
/// PostgreSQL describes every statement; nothing is executed.
///
/// # Errors
/// All mistakes of all tools in all files, sorted by file and position.
pub async fn compile(
    sources: &[Source],
    server: &ServerNames<'_>,
    database: &impl DescribeStatement,
) -> Result<ToolCatalog, Diagnostics> {
    let Compilation { catalog, undo_mistakes } = compile_fitting(sources, server, database).await?;
    let mut mistakes = Diagnostics(catalog.misfits);
    mistakes.0.extend(undo_mistakes);
    if mistakes.0.is_empty() {
        return Ok(ToolCatalog { misfits: Vec::new(), ..catalog });
    }
    Err(mistakes.sorted())
}

/// The tools that fit the database, and the mistakes of the others.
#[derive(Debug, Default)]
pub struct Compilation {
    /// The tools and notes that fit. `outdated` has the other tools, and `misfits` every mistake.
    pub catalog: ToolCatalog,
    /// The mistakes in undo declarations of tools that are in the catalog, because their statements fit.
    pub undo_mistakes: Vec<Diagnostic>,
}

/// Compiles the manifests against a database. The catalog has each tool that fits, even if others do not.
///
/// PostgreSQL describes every statement; nothing is executed.
///
/// # Errors
/// All mistakes, sorted by file and position, if a file is invalid by itself or the database cannot be reached.
pub async fn compile_fitting(
    sources: &[Source],
    server: &ServerNames<'_>,
    database: &impl DescribeStatement,
) -> Result<Compilation, Diagnostics> {
    let mut of_files = Diagnostics::default();
    let manifest = parse_all(sources, server, &mut of_files);
    let declared_tools = declared_tools(&manifest);
    let ParsedManifest { tools: mut parsed_tools, notes: declared, builtin, instructions } = manifest;
    let builtin = check::builtin(&builtin, server.builtin, &mut of_files);
    let instructions = check::instructions(&instructions, &mut of_files);

    let mut misfits = Diagnostics::default();
    let mut inferred = Vec::with_capacity(parsed_tools.len());
    let mut denied = MissingPrivileges::default();
    let left_out = requirements::leave_out(&mut parsed_tools, database, &mut misfits).await;
    let mut reachable = left_out.is_ok();
    let left_out = left_out.unwrap_or_default();
    for parsed in &parsed_tools {
        let statements =
            if reachable { infer::infer(parsed, database, &mut misfits, &mut denied).await } else { Ok(None) };
        reachable &= statements.is_ok();
        let statements = statements.unwrap_or(None);
        if let Some(statements) = &statements {
            reachable &= policy::check_rules(parsed, statements, database, &mut misfits).await.is_ok();
        }
        inferred.push(statements);
    }
    let checked = match reachable {
        true => notes::check(&declared, database, &mut of_files, &mut misfits, &mut denied).await,
        false => Err(infer::UnavailableError),
    };
    for (parsed, inferred) in parsed_tools.iter().zip(&inferred) {
        if let Some(inferred) = inferred {
            check::against_database(parsed, inferred, &mut misfits);
            denied.note_plans(parsed, inferred.all());
        }
    }
    let mut undo_mistakes = Diagnostics::default();
    check::undo(&parsed_tools, &inferred, &mut undo_mistakes);
    let by_tool = denied.by_tool().chain(misfits.0.iter().cloned()).collect::<Vec<_>>();
    denied.report(&mut misfits);
    let notes = match checked {
        Ok(notes) if reachable && of_files.0.is_empty() => notes,
        _ => {
            of_files.0.extend(misfits.0.into_iter().chain(undo_mistakes.0));
            return Err(of_files.sorted());
        }
    };

    let (mut tools, mut outdated) = (Vec::new(), Vec::new());
    for (parsed, inferred) in parsed_tools.into_iter().zip(inferred) {
        let of_tool = |mistakes: &[Diagnostic]| -> Vec<Diagnostic> {
            mistakes.iter().filter(|mistake| mistake.tool == parsed.label).cloned().collect()
        };
        let mut mistakes = of_tool(&by_tool);
        if mistakes.is_empty() {
            mistakes = of_tool(&undo_mistakes.0);
        }
        let rest = outdated_tool(&parsed, mistakes);
        let fits = by_tool.iter().all(|mistake| mistake.tool != parsed.label);
        match inferred.filter(|_| fits).and_then(|inferred| build::spec(parsed, inferred)) {
            Some(spec) => tools.push(Arc::new(spec)),
            None => {
                // The undo declaration is so wrong that the tool cannot be built.
                let lost = |mistake: &Diagnostic| rest.as_ref().is_some_and(|rest| rest.mistakes.contains(mistake));
                let (of_it, others) = undo_mistakes.0.into_iter().partition(lost);
                misfits.0.extend::<Vec<Diagnostic>>(of_it);
                undo_mistakes = Diagnostics(others);
                outdated.extend(rest);
            }
        }
    }
    let warnings = check::warnings(&tools);
    let Diagnostics(misfits) = misfits.sorted();
    let Diagnostics(undo_mistakes) = undo_mistakes.sorted();
    let catalog = ToolCatalog {
        declared: declared_tools,
        tools,
        notes,
        builtin,
        instructions,
        warnings,
        left_out,
        outdated,
        misfits,
        ..ToolCatalog::default()
    };
    Ok(Compilation { catalog, undo_mistakes })
}

/// The tool with its mistakes; `None` if it lacks a part that every tool must have.
fn outdated_tool(parsed: &ParsedTool<'_>, mistakes: Vec<Diagnostic>) -> Option<OutdatedTool> {
    let access = *parsed.tool.as_ref()?.access.as_ref()?.get_ref();
    Some(OutdatedTool { name: parsed.label.clone()?, version: parsed.version.clone(), access, mistakes })
}

/// Checks the files without a database. The catalog contains only the declared names, the settings of built-in tools
/// and the instructions.
///
/// # Errors
/// All mistakes, sorted by file and position.
pub fn check_files(sources: &[Source], server: &ServerNames<'_>) -> Result<ToolCatalog, Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    let manifest = parse_all(sources, server, &mut diagnostics);
    let declared = declared_tools(&manifest);
    let ParsedManifest { builtin, instructions, .. } = manifest;
    let builtin = check::builtin(&builtin, server.builtin, &mut diagnostics);
    let instructions = check::instructions(&instructions, &mut diagnostics);
    if diagnostics.0.is_empty() {
        Ok(ToolCatalog { declared, builtin, instructions, ..ToolCatalog::default() })
    } else {
        Err(diagnostics.sorted())
    }
}

fn parse_all<'s>(sources: &'s [Source], server: &ServerNames<'_>, diagnostics: &mut Diagnostics) -> ParsedManifest<'s> {
    let mut manifest = ParsedManifest::default();
    for source in sources {
        parse(source, &mut manifest, diagnostics);
    }
    manifest.add_prefix(server.prefix);
    check::names(&manifest.tools, server.builtin, diagnostics);
    for parsed in &manifest.tools {
        check::declaration(parsed, server.executors, diagnostics);
    }
    manifest
}

/// The tools of the manifests, valid or not.
fn declared_tools(manifest: &ParsedManifest<'_>) -> Vec<DeclaredTool> {
    let declared = |parsed: &ParsedTool<'_>| {
        let params = parsed.tool.iter().flat_map(|tool| &tool.param);
        let params = params.map(|param| param.name.get_ref().clone()).collect();
        let span = parsed.tool.as_ref().map_or(0..0, |tool| tool.name.span());
        Some(DeclaredTool { name: parsed.label.clone()?, at: parsed.locate(span), params })
    };
    manifest.tools.iter().filter_map(declared).collect()
}
