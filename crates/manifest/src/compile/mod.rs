//! From texts to a catalog: read, check what the files alone say, ask the database, check against it, build.

mod build;
mod infer;

use std::sync::Arc;

use contract::Describe;

pub(crate) use build::limits;
pub(crate) use infer::Inferred;

use crate::{Catalog, Mistakes, Source, check, notes, read};

/// Compiles the manifests against a database.
///
/// `reserved` are the names of the built-in tools, which no manifest may take. The database is asked to describe every
/// statement; nothing is executed.
///
/// # Errors
/// Every mistake of every tool of every file, sorted by file and position.
pub async fn compile(sources: &[Source], reserved: &[&str], database: &impl Describe) -> Result<Catalog, Mistakes> {
    let mut mistakes = Mistakes::default();
    let read::Drafts { tools: drafts, notes: declared } = drafts(sources, reserved, &mut mistakes);

    let mut inferred = Vec::with_capacity(drafts.len());
    let mut reachable = true;
    for draft in &drafts {
        let statements = if reachable { infer::infer(draft, database, &mut mistakes).await } else { Ok(None) };
        reachable &= statements.is_ok();
        inferred.push(statements.unwrap_or(None));
    }
    let notes = if reachable { notes::check(&declared, database, &mut mistakes).await } else { Vec::new() };
    for (draft, inferred) in drafts.iter().zip(&inferred) {
        if let Some(inferred) = inferred {
            check::against_database(draft, inferred, &mut mistakes);
        }
    }
    check::undo(&drafts, &inferred, &mut mistakes);

    if mistakes.0.is_empty() {
        let tools = drafts.into_iter().zip(inferred).filter_map(|(draft, inferred)| build::spec(draft, inferred?));
        return Ok(Catalog { tools: tools.map(Arc::new).collect(), notes });
    }
    Err(mistakes.sorted())
}

/// Checks what the files alone say, without a database.
///
/// # Errors
/// Every mistake, sorted by file and position.
pub fn check_files(sources: &[Source], reserved: &[&str]) -> Result<(), Mistakes> {
    let mut mistakes = Mistakes::default();
    drafts(sources, reserved, &mut mistakes);
    if mistakes.0.is_empty() { Ok(()) } else { Err(mistakes.sorted()) }
}

fn drafts<'s>(sources: &'s [Source], reserved: &[&str], mistakes: &mut Mistakes) -> read::Drafts<'s> {
    let mut drafts = read::Drafts::default();
    for source in sources {
        read::read(source, &mut drafts, mistakes);
    }
    check::names(&drafts.tools, reserved, mistakes);
    for draft in &drafts.tools {
        check::declaration(draft, mistakes);
    }
    drafts
}
