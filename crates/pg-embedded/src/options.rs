//! The options of a cluster.

use std::path::PathBuf;

use crate::search::Search;

/// Folder and configuration of a cluster.
///
/// ```no_run
/// use countersign_pg_embedded::{Cluster, Options};
/// # fn main() -> Result<(), countersign_pg_embedded::Error> {
/// let options = Options::persistent("demo").setting("log_min_duration_statement", "250ms");
/// let cluster = Cluster::start(options, &mut |step| tracing(step.to_string()))?;
/// let url = cluster.connection_string("postgres");
/// # Ok(()) }
/// # fn tracing(_: String) {}
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) home: ClusterHome,
    pub(crate) fresh: bool,
    pub(crate) copy_of: Option<PathBuf>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) search: Search,
}

/// The folder of a cluster.
#[derive(Debug, Clone)]
pub(crate) enum ClusterHome {
    /// Below the user's data folder.
    Named(String),
    At(PathBuf),
    /// A temporary folder that is removed with the cluster: below this folder, or in the system's default place.
    Temporary(Option<PathBuf>),
}

impl Options {
    /// A cluster that is kept between runs, in the user's data folder: `$XDG_DATA_HOME/countersign/<name>`,
    /// `~/.local/share/countersign/<name>`, on macOS `~/Library/Application Support/countersign/<name>`, as root
    /// `/var/lib/countersign/<name>`. The name is made of `a-z`, `0-9`, `-` and `_`.
    pub fn persistent(name: impl Into<String>) -> Self {
        Self::of(ClusterHome::Named(name.into()))
    }

    /// A cluster that is kept between runs, in this folder, which is created if it is missing.
    pub fn persistent_at(folder: impl Into<PathBuf>) -> Self {
        Self::of(ClusterHome::At(folder.into()))
    }

    /// A cluster for a test: in a temporary folder that is removed at the end, without fsync, with little memory. Its
    /// data survive crashes of its processes, but not of the machine. No other process attaches to it.
    pub fn ephemeral() -> Self {
        Self::of(ClusterHome::Temporary(None))
    }

    /// Like [`Options::ephemeral`], but below this folder, which may be in memory. If the server's user cannot enter
    /// it, the default place is used.
    pub fn ephemeral_below(folder: impl Into<PathBuf>) -> Self {
        Self::of(ClusterHome::Temporary(Some(folder.into())))
    }

    fn of(home: ClusterHome) -> Self {
        Self { home, fresh: false, copy_of: None, settings: Vec::new(), search: Search::default() }
    }

    /// Deletes the data of an earlier run first. An error if another process uses the cluster.
    #[must_use]
    pub fn fresh(mut self, fresh: bool) -> Self {
        self.fresh = fresh;
        self
    }

    /// If the cluster has no data, it begins with a copy of this data folder, whose server must have been shut down
    /// cleanly, instead of a new one of `initdb`. Copying is faster than `initdb`.
    #[must_use]
    pub fn copy_of(mut self, data: impl Into<PathBuf>) -> Self {
        self.copy_of = Some(data.into());
        self
    }

    /// A server setting, as in `postgresql.conf`. A later setting of the same name takes precedence, also over the
    /// defaults of this crate. It has no effect if the server is already running. The listen addresses cannot be set.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Several server settings.
    #[must_use]
    pub fn settings(mut self, settings: &[(&str, &str)]) -> Self {
        self.settings.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        self
    }

    /// Where to look for PostgreSQL's programs, instead of the default places.
    #[must_use]
    pub fn search(mut self, search: Search) -> Self {
        self.search = search;
        self
    }
}
