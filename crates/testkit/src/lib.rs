//! For tests only: real PostgreSQL, the built binary, real MCP clients. A helper hides setup, never an assertion. No
//! crate depends on this one but for its tests.
//!
//! ```text
//! database    `cluster`: one for each test; `idle_connection` for statements; `standby`, a streaming one; `patroni`, a cluster of three nodes
//! between     `proxy` loses connections, `pgbouncer` pools them; `sshd` is a bastion; `fake_server` misbehaves as PostgreSQL never does
//! server      `server`, with an MCP client; `http`, over HTTP; `raw_stdio`, with raw lines; `haproxy` before them
//! identities  `issuer` of JWTs, `oidc_provider` for sign-in
//! receivers   `receiver` of webhooks; `witness` of a log; `collector` of OpenTelemetry; `web_browser`: Chromium, driven by `tests/browser`
//! commands    `command`, the binary and what it printed; `front_end`: `query`, `pipe`, `psql`; `audit`
//! files       `manifest`, `config_dir`, `social` (the demo's tools), `golden` (checked-in answers), `repository`
//! time        `poll` waits; `successes` measures gaps; `exclusive`: tests that measure time are alone; `background` outlives a test; `long_form`
//! machine     `external` programs that may be missing, `process` (signals, memory), `small_disk`
//! ```
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
mod collector;
mod command;
mod config_dir;
mod exclusive;
pub mod external;
mod fake_server;
mod front_end;
mod golden;
mod haproxy;
mod http;
mod idle_connection;
mod issuer;
pub mod long_form;
mod manifest;
mod oidc_provider;
mod patroni;
mod pgbouncer;
pub mod poll;
mod process;
mod proxy;
mod raw_stdio;
mod receiver;
mod repository;
mod server;
mod small_disk;
pub mod social;
mod sshd;
mod standby;
mod successes;
mod web_browser;
mod witness;

pub use cluster::{
    Database, TableLock, cluster, connect, database, lone_database, lone_database_on_disk, lone_database_with,
    start as start_cluster,
};
pub use collector::{Collector, Observed};
pub use command::{CommandOutput, config_home, run, run_countersign, startup_error};
pub use config_dir::ConfigDir;
pub use exclusive::exclusive;
pub use external::{External, GO_PACKAGES, node_script, run_without_externals, skip_without};
pub use fake_server::{FakeServer, Misbehaviour};
pub use front_end::{FrontEndOutput, Pipe, bare_front_end, front_end, is_terminal};
pub use golden::{assert_golden, assert_page, wrapped};
pub use haproxy::HaProxy;
pub use http::{HttpAnswer, HttpClient, HttpServer, newest_meta};
pub use issuer::{KeyServer, SigningKey, now_s};
pub use long_form::say;
pub use manifest::TestManifest;
pub use mcp::{Client, ProtocolGeneration, UserAnswer};
pub use oidc_provider::{OidcProvider, ProviderBehaviour};
pub use patroni::{Patroni, Role, skip_without_patroni};
pub use pgbouncer::PgBouncer;
pub use process::{ProcessMemory, command_line, descendants, send_signal};
pub use proxy::{ConnectionFault, FaultPoint, Proxy};
pub use raw_stdio::RawStdioServer;
pub use receiver::{ReceivedRequest, Reception, WebhookReceiver};
pub use repository::repository;
pub use server::{READING_TIME, Server, arguments, countersign};
pub use small_disk::SmallDisk;
pub use sshd::Sshd;
pub use standby::Standby;
pub use successes::Successes;
pub use web_browser::{Focused, Tab, WebBrowser};
pub use witness::Witness;
