//! The demo's database: a private PostgreSQL with the ledger and the social schema in it.

use std::path::PathBuf;

use anyhow::Context;
use embedded::{Cluster, Options};
use ledger::{SchemaError, Target};
use manifest::Source;

const MANIFEST: &str = include_str!("../../../manifests/social.toml");
const SCHEMA: &str = include_str!("../../../manifests/social/schema.sql");
const SEED: &str = include_str!("../../../manifests/social/seed.sql");

/// The name of the private cluster, and the database in it.
const NAME: &str = "demo";
const DATABASE: &str = "postgres";

/// A private PostgreSQL that runs as long as this value lives (and as long as other processes use it).
pub(crate) struct DemoDatabase {
    cluster: Cluster,
}

impl DemoDatabase {
    fn owner(&self) -> anyhow::Result<Target> {
        Ok(Target::parse(&self.cluster.connection_string(DATABASE))?)
    }

    /// The database, as the login that `init` made for servers.
    pub(crate) fn target(&self) -> anyhow::Result<Target> {
        Ok(self.owner()?.as_role(ledger::DEFAULT_WRITER, None))
    }
}

/// The manifest that the demo serves.
pub(crate) fn manifest() -> Source {
    Source { path: PathBuf::from("manifests/social.toml"), text: MANIFEST.to_owned() }
}

/// Starts or joins the demo's PostgreSQL and makes sure that everything is in it. `progress` gets a line for each step.
pub(crate) async fn prepare(fresh: bool, progress: impl Fn(&str) + Send + 'static) -> anyhow::Result<DemoDatabase> {
    let (cluster, progress) = tokio::task::spawn_blocking(move || {
        let home = std::env::var_os("COUNTERSIGN_DEMO_DIR").map(PathBuf::from);
        let options = home.map_or_else(|| Options::persistent(NAME), Options::persistent_at).fresh(fresh);
        let cluster = Cluster::start(options, &mut |step| progress(&step.to_string()));
        cluster.map(|cluster| (cluster, progress))
    })
    .await
    .context("starting PostgreSQL")??;
    let database = DemoDatabase { cluster };
    let target = database.owner()?;
    ledger::init(&target, ledger::DEFAULT_WRITER).await.map_err(|error| match error {
        SchemaError::Migration(_) => anyhow::Error::from(error)
            .context("the demo's data were made by another version; `countersign demo --fresh` starts anew"),
        error => error.into(),
    })?;
    progress("the ledger is in place");
    if load(&target).await? {
        progress("the demo's data are loaded");
    } else {
        progress("the demo's data are there from an earlier run");
    }
    Ok(database)
}

/// Loads the demo's schema and data, unless they are there; whether it did. Safe when several processes start at once.
pub(crate) async fn load(target: &Target) -> anyhow::Result<bool> {
    ledger::load_once(target, "social", &[SCHEMA, SEED]).await.context("the demo's data cannot be loaded")
}
