//! The PostgreSQL client: connections, sessions and pools. Statements and rows are text here.
//!
//! - `connect_options` parses connection strings, `session_settings` has the settings that a session starts with.
//! - `unix_socket` connects to a socket of PostgreSQL.
//! - `wire` speaks the protocol: start-up, requests, and one loop that assigns each answer to its request.
//! - `session` runs pipelines of statements; `pool` lends sessions and takes only clean ones back.
//! - `pooler` probes for a connection pooler, `search_path` finds the schemas that are safe to search.

pub(crate) mod connect_options;
pub(crate) mod error;
pub(crate) mod limits;
pub(crate) mod literal;
pub(crate) mod pool;
pub(crate) mod pooler;
pub(crate) mod search_path;
pub(crate) mod session;
pub(crate) mod session_settings;
#[cfg(unix)]
pub(crate) mod unix_socket;
pub(crate) mod wire;

#[cfg(windows)]
pub(crate) mod no_unix_socket;
#[cfg(windows)]
pub(crate) use no_unix_socket as unix_socket;
