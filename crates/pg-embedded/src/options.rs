//! What a caller chooses about a cluster.

use std::path::PathBuf;

use crate::search::Search;

/// Where a cluster lives and how it is configured.
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
    pub(crate) home: Home,
    pub(crate) fresh: bool,
    pub(crate) copy_of: Option<PathBuf>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) search: Search,
}

/// Which folder.
#[derive(Debug, Clone)]
pub(crate) enum Home {
    /// Below the user's data folder.
    Named(String),
    /// Exactly this one.
    At(PathBuf),
    /// A temporary one that ends with the cluster.
    Temporary,
}

impl Options {
    /// A cluster that is kept between runs, in the user's data folder: `$XDG_DATA_HOME/countersign/<name>`,
    /// `~/.local/share/countersign/<name>`, on macOS `~/Library/Application Support/countersign/<name>`, as root
    /// `/var/lib/countersign/<name>`. The name is made of `a-z`, `0-9`, `-` and `_`.
    pub fn persistent(name: impl Into<String>) -> Self {
        Self::of(Home::Named(name.into()))
    }

    /// A cluster that is kept between runs, in this folder, which is created if it is missing.
    pub fn persistent_at(folder: impl Into<PathBuf>) -> Self {
        Self::of(Home::At(folder.into()))
    }

    /// A cluster for a test: in a temporary folder that is removed at the end, without fsync, with little memory. It
    /// survives crashes of its processes, not of the machine. Nobody attaches to it.
    pub fn ephemeral() -> Self {
        Self::of(Home::Temporary)
    }

    fn of(home: Home) -> Self {
        Self { home, fresh: false, copy_of: None, settings: Vec::new(), search: Search::default() }
    }

    /// Deletes the data of an earlier run first. Refused while another process uses the cluster.
    #[must_use]
    pub fn fresh(mut self, fresh: bool) -> Self {
        self.fresh = fresh;
        self
    }

    /// A cluster without data begins with a copy of this data folder, whose server was stopped in order, instead of with
    /// what `initdb` makes. A test that needs a cluster of its own copies one in less time than it makes one.
    #[must_use]
    pub fn copy_of(mut self, data: impl Into<PathBuf>) -> Self {
        self.copy_of = Some(data.into());
        self
    }

    /// A server setting, as in `postgresql.conf`; a later one of the same name wins, also over ours. It has no effect
    /// when the cluster already runs. Where the server listens is not a caller's choice.
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

    /// Where PostgreSQL's programs are looked for, instead of the usual places.
    #[must_use]
    pub fn search(mut self, search: Search) -> Self {
        self.search = search;
        self
    }
}
