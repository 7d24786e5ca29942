//! For tests only: real PostgreSQL, the built binary, real MCP clients.
//!
//! | modules | what a test gets |
//! |---|---|
//! | `cluster`, `standby`, `pgbouncer`, `proxy` | a database per test; a streaming standby; a pooler; lost connections |
//! | `fake_server` | a server that misbehaves |
//! | `server`, `http`, `raw_stdio`, `haproxy`, `issuer`, `oidc_provider` | the built server with an MCP client, over HTTP, with lines as they are |
//! | `web_browser` | Chromium, driven by `tests/browser` |
//! | `front_end`, `command`, `audit` | the commands of the binary and what they print |
//! | `manifest`, `config_dir`, `social`, `golden` | manifests, configuration, the demo's tools, checked-in files |
//! | `poll`, `exclusive`, `external`, `process`, `small_disk` | waiting, being alone, programs that may be missing, signals and memory, full disks |
//!
//! A helper hides setup, never an assertion.
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
mod standby;
mod web_browser;

pub use cluster::{Database, cluster, database, lone_database};
pub use command::{CommandOutput, config_home, run, run_countersign, startup_error};
pub use config_dir::ConfigDir;
pub use exclusive::exclusive;
pub use external::{External, GO_PACKAGES, node_script, run_without_externals, skip_without};
pub use fake_server::{FakeServer, Misbehaviour};
pub use front_end::{FrontEndOutput, Pipe, bare_front_end, front_end, is_terminal};
pub use golden::{assert_golden, assert_page, wrapped};
pub use haproxy::HaProxy;
pub use http::{HttpAnswer, HttpClient, HttpServer};
pub use issuer::{KeyServer, SigningKey, now_s};
pub use long_form::say;
pub use manifest::TestManifest;
pub use mcp::{Client, ProtocolGeneration, UserAnswer};
pub use oidc_provider::{OidcProvider, ProviderBehaviour};
pub use pgbouncer::PgBouncer;
pub use process::{ProcessMemory, send_signal};
pub use proxy::{ConnectionFault, FaultPoint, Proxy};
pub use raw_stdio::RawStdioServer;
pub use receiver::{ReceivedRequest, Reception, WebhookReceiver};
pub use repository::repository;
pub use server::{Server, arguments, countersign};
pub use small_disk::SmallDisk;
pub use standby::Standby;
pub use web_browser::{Focused, Tab, WebBrowser};
