//! The demo's database: a private PostgreSQL with the ledger and the demo's schemas in it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use ledger::audit::Signing;
use ledger::{ConnectOptions, InitOptions, Ledger, LedgerOptions, SchemaError, TableNames, TrackOptions};
use manifest::Source;

use super::cluster::{self, Cluster};
use crate::commands::audit::log_keys;

const SOCIAL: &str = include_str!("../../../../../manifests/social.toml");
const STUDIO: &str = include_str!("../../../../../manifests/studio.toml");

const PEOPLE: &str = include_str!("people.sql");

/// Each schema of the demo, with the SQL that makes it and the SQL that fills it.
const SCHEMAS: [(&str, [&str; 2]); 2] = [
    (
        "social",
        [
            include_str!("../../../../../manifests/social/schema.sql"),
            include_str!("../../../../../manifests/social/seed.sql"),
        ],
    ),
    (
        "studio",
        [
            include_str!("../../../../../manifests/studio/schema.sql"),
            include_str!("../../../../../manifests/studio/seed.sql"),
        ],
    ),
];

/// The database in the private cluster.
const DATABASE: &str = "postgres";

/// A private PostgreSQL. It runs while this value or another process uses it.
pub(crate) struct DemoDatabase {
    cluster: Cluster,
    key_file: PathBuf,
}

impl DemoDatabase {
    pub(crate) fn owner(&self) -> anyhow::Result<ConnectOptions> {
        owner(&self.cluster)
    }

    pub(crate) fn owner_url(&self) -> String {
        self.cluster.connection_string(DATABASE)
    }

    /// The target for the servers' login, which `init` creates.
    pub(crate) fn target(&self) -> anyhow::Result<ConnectOptions> {
        self.as_login(ledger::DEFAULT_WRITER)
    }

    pub(crate) fn as_login(&self, login: &str) -> anyhow::Result<ConnectOptions> {
        Ok(self.owner()?.as_role(login, None))
    }

    /// The private key of the log, a file beside the data.
    pub(crate) fn key_file(&self) -> &Path {
        &self.key_file
    }

    /// Adds the logins of the console.
    pub(crate) async fn add_people(&self) -> anyhow::Result<()> {
        let added = ledger::load_once(&self.owner()?, "demo_people", &[PEOPLE]).await;
        added.context("the logins of the demo's console cannot be made")?;
        Ok(())
    }
}

pub(crate) fn manifests() -> [Source; 2] {
    let source = |path: &str, text: &str| Source { path: PathBuf::from(path), text: text.to_owned() };
    [source("manifests/social.toml", SOCIAL), source("manifests/studio.toml", STUDIO)]
}

/// Starts or joins the demo's PostgreSQL and creates what is missing in it. `progress` receives a line for each step.
pub(crate) async fn prepare(fresh: bool, progress: impl Fn(&str) + Send + 'static) -> anyhow::Result<DemoDatabase> {
    let (cluster, progress) = tokio::task::spawn_blocking(move || {
        let cluster = cluster::start(fresh, &progress);
        cluster.map(|cluster| (cluster, progress))
    })
    .await
    .context("starting PostgreSQL")??;
    let target = owner(&cluster)?;
    ledger::init(&target, &InitOptions::default()).await.map_err(|error| match error {
        SchemaError::Migration(_) => anyhow::Error::from(error)
            .context("the demo's data were made by another version; `countersign demo --fresh` starts anew"),
        error => error.into(),
    })?;
    let key_file = ensure_key(&cluster, &target).await.context("the log of the demo's ledger has no key")?;
    progress("the ledger is in place, and its log has a key");
    for (schema, loaded) in load(&target).await? {
        let how = if loaded { "are loaded" } else { "are there from an earlier run" };
        progress(&format!("the demo's data in schema {schema} {how}"));
    }
    Ok(DemoDatabase { cluster, key_file })
}

fn owner(cluster: &Cluster) -> anyhow::Result<ConnectOptions> {
    Ok(ConnectOptions::parse(&cluster.connection_string(DATABASE))?)
}

/// Makes a key for the log unless the log has one. Returns its file. Fresh data belong to a new ledger, which needs a
/// new key.
async fn ensure_key(cluster: &Cluster, target: &ConnectOptions) -> anyhow::Result<PathBuf> {
    let audit = Ledger::new(target.clone(), LedgerOptions::default()).audit();
    let signing = Signing { directory: Some(cluster.data_dir().with_file_name("keys")), ..Signing::default() };
    log_keys::ensure_key(&audit, &signing).await?;
    signing.default_key_file(&audit.ledger_id().await?).context("the key has no folder")
}

/// Loads the demo's schemas and data unless they exist, and tracks their tables. Returns, for each schema, whether it
/// was loaded. Safe if several processes start at once.
pub(crate) async fn load(target: &ConnectOptions) -> anyhow::Result<Vec<(&'static str, bool)>> {
    let mut schemas = Vec::new();
    for (schema, texts) in SCHEMAS {
        let loaded = ledger::load_once(target, schema, &texts).await.context("the demo's data cannot be loaded")?;
        if loaded {
            let tables = TableNames { tables: Vec::new(), schema: Some(schema.to_owned()), changed: false };
            let tracked = ledger::track(target, &tables, &TrackOptions::default(), &|_, _| ()).await;
            tracked.context("the demo's tables cannot be tracked")?;
        }
        schemas.push((schema, loaded));
    }
    Ok(schemas)
}
