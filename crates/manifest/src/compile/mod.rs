//! Compilation of texts to a catalog: parse, check the files alone, ask the database, check against it, build.

mod build;

use std::sync::Arc;

use types::DescribeStatement;

use crate::missing_privileges::MissingPrivileges;
use crate::parse::{ParsedManifest, parse};
use crate::{Diagnostics, Source, ToolCatalog, ToolSpec, check, infer, notes, policy};

/// The names that a server has besides its manifests.
#[derive(Debug, Clone, Copy)]
pub struct ServerNames<'a> {
    /// Built-in tools, served or not. Manifests must not use their names.
    pub builtin: &'a [&'a str],
    /// Rust executors that tools can name.
    pub executors: &'a [&'a str],
}

/// Returns the names of the tools that the manifests declare, valid or not.
#[must_use]
pub fn declared_names(sources: &[Source]) -> Vec<String> {
    let mut manifest = ParsedManifest::default();
    for source in sources {
        parse(source, &mut manifest, &mut Diagnostics::default());
    }
    manifest.tools.into_iter().filter_map(|parsed| parsed.label).collect()
}

/// Compiles the manifests against a database.
///
/// The database is asked to describe every statement; nothing is executed.
///
/// # Errors
/// All mistakes of all tools of all files, sorted by file and position.
pub async fn compile(
    sources: &[Source],
    server: &ServerNames<'_>,
    database: &impl DescribeStatement,
) -> Result<ToolCatalog, Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    let ParsedManifest { tools: parsed_tools, notes: declared, builtin, instructions } =
        parse_all(sources, server, &mut diagnostics);
    let builtin = check::builtin(&builtin, server.builtin, &mut diagnostics);
    let instructions = check::instructions(&instructions, &mut diagnostics);

    let mut inferred = Vec::with_capacity(parsed_tools.len());
    let mut denied = MissingPrivileges::default();
    let mut reachable = true;
    for parsed in &parsed_tools {
        let statements =
            if reachable { infer::infer(parsed, database, &mut diagnostics, &mut denied).await } else { Ok(None) };
        reachable &= statements.is_ok();
        let statements = statements.unwrap_or(None);
        if let Some(statements) = &statements {
            reachable &= policy::check_rules(parsed, statements, database, &mut diagnostics).await.is_ok();
        }
        inferred.push(statements);
    }
    let notes =
        if reachable { notes::check(&declared, database, &mut diagnostics, &mut denied).await } else { Vec::new() };
    for (parsed, inferred) in parsed_tools.iter().zip(&inferred) {
        if let Some(inferred) = inferred {
            check::against_database(parsed, inferred, &mut diagnostics);
            denied.note_plans(parsed, inferred.all());
        }
    }
    denied.report(&mut diagnostics);
    check::undo(&parsed_tools, &inferred, &mut diagnostics);

    if diagnostics.0.is_empty() {
        let tools =
            parsed_tools.into_iter().zip(inferred).filter_map(|(parsed, inferred)| build::spec(parsed, inferred?));
        let tools: Vec<Arc<ToolSpec>> = tools.map(Arc::new).collect();
        let warnings = check::warnings(&tools);
        return Ok(ToolCatalog { tools, notes, builtin, instructions, warnings, ..ToolCatalog::default() });
    }
    Err(diagnostics.sorted())
}

/// Checks the files alone, without a database. The catalog contains only the settings of the server itself: built-in
/// tools and instructions.
///
/// # Errors
/// All mistakes, sorted by file and position.
pub fn check_files(sources: &[Source], server: &ServerNames<'_>) -> Result<ToolCatalog, Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    let ParsedManifest { builtin, instructions, .. } = parse_all(sources, server, &mut diagnostics);
    let builtin = check::builtin(&builtin, server.builtin, &mut diagnostics);
    let instructions = check::instructions(&instructions, &mut diagnostics);
    if diagnostics.0.is_empty() {
        Ok(ToolCatalog { builtin, instructions, ..ToolCatalog::default() })
    } else {
        Err(diagnostics.sorted())
    }
}

fn parse_all<'s>(sources: &'s [Source], server: &ServerNames<'_>, diagnostics: &mut Diagnostics) -> ParsedManifest<'s> {
    let mut manifest = ParsedManifest::default();
    for source in sources {
        parse(source, &mut manifest, diagnostics);
    }
    check::names(&manifest.tools, server.builtin, diagnostics);
    for parsed in &manifest.tools {
        check::declaration(parsed, server.executors, diagnostics);
    }
    manifest
}
