//! Tools that agents can call: the built-in tools, the tools of the manifests, and their registry.
//!
//! Every call goes through the [`Registry`]. The registry finds the tool, validates the arguments against the tool's
//! schema, runs the tool, and wraps the result in a [`types::Envelope`]. Tools do not depend on MCP or on a
//! connection: they read through [`ledger::read`] and write through [`ledger::Gate`]. `live_registry` replaces the
//! served tools while calls run. `metrics` counts calls for Prometheus. `unavailable` answers calls until the
//! database is reachable. The crate `catalog` describes the database for `describe_database` and for the hints of
//! failed queries.
//!
//! A call of a write tool above tier `auto` creates a proposal (`approval_flow`; `proposal_text` has the texts, and
//! `review::row_diff` compares the rows). `proposal_worker` executes approved proposals. Executors run the writes:
//! `manifest_tools::executor`, `builtin::execute_sql`, or `native`.
//!
//! To add a built-in tool, add a file to `builtin/` with its arguments (whose schema is derived), its result and its
//! [`Tool`] implementation, and one line to `builtin::all`. The schema, the docs, `tools/list` and profiles follow. A
//! manifest tool needs no Rust code. To add an executor in Rust, see `native`. To add a resource, which offers the
//! data of a tool by URI, see `resources` in the crate `catalog`.

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
