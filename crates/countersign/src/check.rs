//! `countersign check`: every mistake of every manifest, without serving.

use ledger::{Ledger, Settings};

use crate::cli::CheckArgs;
use crate::terminal::say;
use crate::{connection, wiring};

pub(crate) async fn run(arguments: CheckArgs) -> anyhow::Result<()> {
    let sources = wiring::read_manifests(&arguments.manifest)?;
    let target = connection::configured(&arguments.database)?;
    ledger::check(&target).await?;
    let catalog = wiring::compile(&sources, &Ledger::new(target, Settings::default())).await?;
    let writes = catalog.tools.iter().filter(|tool| tool.access.writes()).count();
    say(&format!("{} tools fit the database, {writes} of them write.", catalog.tools.len()));
    Ok(())
}
