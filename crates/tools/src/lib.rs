//! What an agent can call: the built-in tools, the tools of the manifests, and the registry that both are in.
//!
//! A call goes through the [`Registry`] only: it finds the tool, checks the arguments against the tool's schema, runs
//! it, and makes one [`contract::Envelope`] of what comes back. Tools know neither MCP nor a connection: they read
//! through [`ledger::read`] and write through [`ledger::Gate`]. `discovery` asks what there is in the database, for
//! `describe_database` and for the hints of failed queries. What is served can change while calls run: `toolbox`.
//! What became of the calls is counted for Prometheus: `metrics`. Before the database was reached: `unavailable`.
//!
//! A write tool above tier `auto` proposes (`proposing`, in the words of `words`); `recovery` carries out what people have
//! approved. What carries a write out is an executor: `manifest_executor`, `builtin::execute_sql`, or one of `native`.
//!
//! To add a built-in tool: a file in `builtin/` with its arguments (their schema is derived), its result and its
//! [`Tool`] implementation, and one line in [`builtin::all`]. Schema, docs, `tools/list` and profiles follow from there.
//! To add a manifest tool: no Rust at all. To add an executor in Rust: `native`. To add a resource (the same data, read by its address): `resources`.

mod arguments;
pub mod builtin;
mod discovery;
mod drift;
mod images;
mod instructions;
mod manifest_executor;
mod manifest_read;
mod manifest_write;
pub mod metrics;
pub mod native;
mod profile;
mod proposal_data;
mod proposing;
mod recovery;
mod registry;
mod resources;
mod scripts;
mod tool;
mod toolbox;
mod unavailable;
mod words;

pub use builtin::{Backends, ExecuteSqlSettings};
pub use discovery::correction::statement_hint;
pub use ledger::read::Room;
pub use metrics::Metrics;
pub use profile::Profile;
pub use proposing::{Question, Said, UserAnswer};
pub use recovery::run_proposal_worker;
pub use registry::{Registry, RegistryError, Reply};
pub use resources::{Address, Completions, Listed, Page, Template, Typed};
pub use tool::{Answer, Call, Caller, Hints, Outcome, Refused, Success, TIER, Tool, ToolInfo};
pub use toolbox::{Change, Shelves, Toolbox, Toolset};
pub use unavailable::Unavailable;
