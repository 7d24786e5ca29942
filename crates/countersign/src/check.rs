//! `countersign check`: every mistake of every manifest, without serving.

use ledger::Ledger;
use ledger::read::SearchPath;
use manifest::{Catalog, Tier};

use crate::settings::Settings;
use crate::terminal::say;
use crate::{connection, wiring};

pub(crate) async fn run(settings: &Settings) -> anyhow::Result<()> {
    anyhow::ensure!(
        !settings.manifests.is_empty(),
        "there is no manifest to check: give --manifest FILE, COUNTERSIGN_MANIFEST, or manifests in the configuration file"
    );
    settings.authenticator()?;
    let sources = wiring::read_manifests(&settings.manifests)?;
    let target = connection::configured(settings)?;
    ledger::check(&target).await?;
    let ledger = Ledger::new(target.clone(), settings.ledger.clone());
    let catalog = wiring::compile(&sources, &settings.profiles, &ledger).await?;
    say(&summary(&catalog));
    // Whether the reader can log in is not for this command to say.
    if let Ok(reader) = ledger::reader_login(&target).await {
        for schema in SearchPath::of_login(&reader).await.unwrap_or_default().untrusted {
            say(&format!("warning: {}", wiring::not_searched(&schema)));
        }
    }
    Ok(())
}

/// What is said of manifests that fit: compiling them has made sure of every executor (promise C5-07).
pub(crate) fn summary(catalog: &Catalog) -> String {
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
