//! No private PostgreSQL on Windows: it needs Unix sockets, signals and users.

use std::path::Path;

/// A private cluster, of which there are none.
pub(super) enum Cluster {}

impl Cluster {
    pub(super) fn connection_string(&self, _: &str) -> String {
        match *self {}
    }

    pub(super) fn data_dir(&self) -> &Path {
        match *self {}
    }
}

/// # Errors
/// Always.
pub(super) fn start(_: bool, _: &impl Fn(&str)) -> anyhow::Result<Cluster> {
    anyhow::bail!(
        "the demo starts a PostgreSQL of its own, which it cannot on Windows: run it in WSL, or load the demo's data into a \
         database with `countersign init --demo`"
    )
}
