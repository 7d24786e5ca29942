//! What an agent can call: the built-in tools, the tools of the manifests, and the registry that both are in.
//!
//! A call goes through the [`Registry`] only: it finds the tool, checks the arguments against the tool's schema, runs
//! it, and makes one [`types::Envelope`] of what comes back. Tools know neither MCP nor a connection: they read
//! through [`ledger::read`] and write through [`ledger::Gate`]. `discovery` asks what there is in the database, for
//! `describe_database` and for the hints of failed queries. What is served can change while calls run: `live_registry`.
//! What became of the calls is counted for Prometheus: `metrics`. Before the database was reached: `unavailable`.
//!
//! A write tool above tier `auto` proposes (`approval_flow`, in the words of `proposal_text`); `proposal_worker` carries out what people have
//! approved. What carries a write out is an executor: `manifest_tools::executor`, `builtin::execute_sql`, or one of `native`.
//!
//! To add a built-in tool: a file in `builtin/` with its arguments (their schema is derived), its result and its
//! [`Tool`] implementation, and one line in `builtin::all`. Schema, docs, `tools/list` and profiles follow from there.
//! To add a manifest tool: no Rust at all. To add an executor in Rust: `native`. To add a resource (the same data, read by its address): `resources`.

mod approval_flow;
mod arguments;
pub mod builtin;
mod instructions;
mod live_registry;
mod manifest_tools;
pub mod metrics;
mod mixed_script;
pub mod native;
mod profile;
mod proposal_data;
mod proposal_text;
mod proposal_worker;
mod registry;
mod row_images;
mod schema;
mod schema_drift;
mod services;
mod tool;
mod unavailable;

pub use ledger::read::ResponsePermit;
pub use live_registry::{ListChange, LiveRegistry, ProfileRegistries, ProfileView};
pub use metrics::Metrics;
pub use profile::Profile;
pub use proposal_worker::run_proposal_worker;
pub use registry::{CallResult, Registry, RegistryError};
pub use services::{ExecuteSqlSettings, Services};
pub use tool::{
    Annotations, Call, Caller, Disposition, Question, TIER, Tool, ToolError, ToolInfo, ToolLookup, ToolOutput,
    ToolResult, UserAnswer, UserDecision,
};
pub use unavailable::Unavailable;
