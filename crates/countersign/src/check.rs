//! `countersign check`: every mistake of every manifest, without serving.

use ledger::Ledger;

use crate::settings::Settings;
use crate::terminal::say;
use crate::{connection, wiring};

pub(crate) async fn run(settings: &Settings) -> anyhow::Result<()> {
    anyhow::ensure!(
        !settings.manifests.is_empty(),
        "there is no manifest to check: give --manifest FILE, COUNTERSIGN_MANIFEST, or manifests in the configuration file"
    );
    let sources = wiring::read_manifests(&settings.manifests)?;
    let target = connection::configured(settings)?;
    ledger::check(&target).await?;
    let catalog = wiring::compile(&sources, &settings.profiles, &Ledger::new(target, settings.ledger.clone())).await?;
    let writes = catalog.tools.iter().filter(|tool| tool.access.writes()).count();
    say(&format!("{} tools fit the database, {writes} of them write.", catalog.tools.len()));
    Ok(())
}
