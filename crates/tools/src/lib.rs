//! Tools that agents can call: the built-in tools, the tools of the manifests, and their registry.
//!
//! Every call goes through the [`Registry`]. It finds the tool, validates the arguments against the tool's schema, runs
//! the tool, and wraps the result in one [`types::Envelope`]. Tools do not depend on MCP or on a connection: they read
//! through [`ledger::read`] and write through [`ledger::Gate`]. `live_registry` changes the served tools while calls
//! run. `metrics` records the results of calls for Prometheus. `unavailable` serves until the database is reached.
//! The crate `catalog` describes the database for `describe_database` and for the hints of failed queries.
//!
//! A write tool above tier `auto` creates a proposal (`approval_flow`, texts in `proposal_text`, its rows compared by `review::row_diff`). `proposal_worker`
//! executes approved proposals. Executors run the writes: `manifest_tools::executor`, `builtin::execute_sql`, or
//! `native`.
//!
//! To add a built-in tool: a file in `builtin/` with its arguments (their schema is derived), its result and its
//! [`Tool`] implementation, and one line in `builtin::all`. Schema, docs, `tools/list` and profiles follow from there.
//! To add a manifest tool: no Rust is needed. To add an executor in Rust: see `native`. To add a resource (the same
//! data, read by its URI): see `resources` of the crate `catalog`.

mod approval_flow;
mod arguments;
pub mod builtin;
mod instructions;
mod listed_numbers;
mod live_registry;
mod manifest_tools;
mod mask_policy;
pub mod metrics;
mod mixed_script;
pub mod native;
mod policy_text;
mod profile;
mod proposal_data;
mod proposal_text;
mod proposal_worker;
mod registry;
mod row_images;
mod row_masking;
mod schema;
mod schema_drift;
mod services;
mod shown_proposal;
mod tool;
mod unavailable;
mod unfit_tool;

pub use ledger::read::ResponsePermit;
pub use live_registry::{ListChange, LiveRegistry, ProfileRegistries, ProfileView};
pub use mask_policy::{MaskPolicy, MaskRule};
pub use metrics::Metrics;
pub use profile::Profile;
pub use proposal_worker::run_proposal_worker;
pub use registry::{CallResult, Registry, RegistryError};
pub use services::{ConsoleLinks, ExecuteSqlSettings, Services};
pub use tool::{
    Annotations, Call, Caller, Disposition, PageRequest, Question, TIER, Tool, ToolError, ToolInfo, ToolLookup,
    ToolOutput, ToolResult, UserAnswer, UserDecision,
};
pub use unavailable::Unavailable;
pub use unfit_tool::UnfitTool;
