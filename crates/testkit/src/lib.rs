//! For tests only: real PostgreSQL, the built binary, real MCP clients.
//!
//! `cluster` starts one PostgreSQL for each test binary and gives every test a database of its own; `server` starts the
//! built `countersign`; `standby` makes a streaming standby; `pgbouncer` is one in between; `proxy` loses its connections to PostgreSQL; `raw` speaks JSON-RPC lines to it, for what a proper
//! client would never send; `front_end` is the agent-first
//! command line; `golden` compares with checked-in files. A helper hides plumbing, never an assertion.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed, and says where"
)]

pub mod audit;
mod background;
mod cluster;
mod command;
mod config_dir;
mod exclusive;
pub mod external;
mod front_end;
mod golden;
mod haproxy;
mod http;
mod idle_connection;
mod issuer;
pub mod long_form;
mod manifest;
mod pgbouncer;
pub mod poll;
mod process;
mod proxy;
mod raw;
mod server;
pub mod social;
mod standby;

pub use cluster::{Database, cluster, database, lone_database};
pub use command::{CommandOutput, run_countersign, startup_error};
pub use config_dir::ConfigDir;
pub use exclusive::exclusive;
pub use external::{External, skip_without};
pub use front_end::{Pipe, Told, bare_front_end, front_end, is_terminal};
pub use golden::assert_golden;
pub use haproxy::HaProxy;
pub use http::{HttpAnswer, HttpServer, Visitor};
pub use issuer::{KeyServer, SigningKey, now_s};
pub use manifest::TestManifest;
pub use mcp::{Client, Era, UserAnswer};
pub use pgbouncer::PgBouncer;
pub use process::{ProcessMemory, send_signal};
pub use proxy::{Proxy, What, When};
pub use raw::RawServer;
pub use server::{Server, arguments, countersign, repository};
pub use standby::Standby;
