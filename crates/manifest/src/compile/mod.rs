//! From texts to a catalog: read, check what the files alone say, ask the database, check against it, build.

mod build;
mod infer;

use std::sync::Arc;

use types::DescribeStatement;

pub(crate) use build::limits;
pub(crate) use infer::Inferred;

use crate::{Catalog, Mistakes, Source, ToolSpec, check, notes, read};

/// What a server has beside its manifests, by name.
#[derive(Debug, Clone, Copy)]
pub struct ServerNames<'a> {
    /// The built-in tools, served or not: no manifest may take their names.
    pub builtin: &'a [&'a str],
    /// The executors in Rust that tools can name.
    pub executors: &'a [&'a str],
}

/// The names of the tools that the manifests declare, whether they are right or not.
#[must_use]
pub fn declared_names(sources: &[Source]) -> Vec<String> {
    let mut drafts = read::Drafts::default();
    for source in sources {
        read::read(source, &mut drafts, &mut Mistakes::default());
    }
    drafts.tools.into_iter().filter_map(|draft| draft.label).collect()
}

/// Compiles the manifests against a database.
///
/// The database is asked to describe every statement; nothing is executed.
///
/// # Errors
/// Every mistake of every tool of every file, sorted by file and position.
pub async fn compile(
    sources: &[Source],
    server: &ServerNames<'_>,
    database: &impl DescribeStatement,
) -> Result<Catalog, Mistakes> {
    let mut mistakes = Mistakes::default();
    let read::Drafts { tools: drafts, notes: declared, builtin, instructions } = drafts(sources, server, &mut mistakes);
    let builtin = check::builtin(&builtin, server.builtin, &mut mistakes);
    let instructions = check::instructions(&instructions, &mut mistakes);

    let mut inferred = Vec::with_capacity(drafts.len());
    let mut denied = check::Denied::default();
    let mut reachable = true;
    for draft in &drafts {
        let statements =
            if reachable { infer::infer(draft, database, &mut mistakes, &mut denied).await } else { Ok(None) };
        reachable &= statements.is_ok();
        inferred.push(statements.unwrap_or(None));
    }
    let notes =
        if reachable { notes::check(&declared, database, &mut mistakes, &mut denied).await } else { Vec::new() };
    for (draft, inferred) in drafts.iter().zip(&inferred) {
        if let Some(inferred) = inferred {
            check::against_database(draft, inferred, &mut mistakes);
            denied.note_plans(draft, inferred);
        }
    }
    denied.tell(&mut mistakes);
    check::undo(&drafts, &inferred, &mut mistakes);

    if mistakes.0.is_empty() {
        let tools = drafts.into_iter().zip(inferred).filter_map(|(draft, inferred)| build::spec(draft, inferred?));
        let tools: Vec<Arc<ToolSpec>> = tools.map(Arc::new).collect();
        let warnings = check::warnings(&tools);
        return Ok(Catalog { tools, notes, builtin, instructions, warnings, ..Catalog::default() });
    }
    Err(mistakes.sorted())
}

/// Checks what the files alone say, without a database. The catalog has what they say of the server itself: its built-in
/// tools and its instructions.
///
/// # Errors
/// Every mistake, sorted by file and position.
pub fn check_files(sources: &[Source], server: &ServerNames<'_>) -> Result<Catalog, Mistakes> {
    let mut mistakes = Mistakes::default();
    let read::Drafts { builtin, instructions, .. } = drafts(sources, server, &mut mistakes);
    let builtin = check::builtin(&builtin, server.builtin, &mut mistakes);
    let instructions = check::instructions(&instructions, &mut mistakes);
    if mistakes.0.is_empty() {
        Ok(Catalog { builtin, instructions, ..Catalog::default() })
    } else {
        Err(mistakes.sorted())
    }
}

fn drafts<'s>(sources: &'s [Source], server: &ServerNames<'_>, mistakes: &mut Mistakes) -> read::Drafts<'s> {
    let mut drafts = read::Drafts::default();
    for source in sources {
        read::read(source, &mut drafts, mistakes);
    }
    check::names(&drafts.tools, server.builtin, mistakes);
    for draft in &drafts.tools {
        check::declaration(draft, server.executors, mistakes);
    }
    drafts
}
