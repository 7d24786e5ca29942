//! The demo's PostgreSQL: a private cluster.

use std::path::PathBuf;

pub(super) use pg_embedded::Cluster;
use pg_embedded::Options;

/// The name of the cluster.
const NAME: &str = "demo";

/// Starts or joins the cluster. `fresh`: with new data. `progress` receives a line for each step.
pub(super) fn start(fresh: bool, progress: &impl Fn(&str)) -> anyhow::Result<Cluster> {
    let home = std::env::var_os("COUNTERSIGN_DEMO_DIR").map(PathBuf::from);
    let options = home.map_or_else(|| Options::persistent(NAME), Options::persistent_at).fresh(fresh);
    Ok(Cluster::start(options, &mut |step| progress(&step.to_string()))?)
}
