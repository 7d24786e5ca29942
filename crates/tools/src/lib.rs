//! Tools that agents can call: the built-in tools, the tools of the manifests, and their [`Registry`]. Tools do not
//! depend on MCP or on a connection: they read through [`ledger::read`] and write through [`ledger::Gate`]. The crate
//! `catalog` describes the database for them.
//!
//! ```text
//! call       `registry` finds the `tool`; a served set is replaced while calls run (`live_registry`), and each caller
//!            has a `profile`; `unavailable`: no database yet; `unfit_tool`, `schema_drift`: it does not fit any more
//! arguments  `arguments` validates them against the `schema`; `mixed_script` finds words that look like others
//! tool       `builtin`, or `manifest_tools`, with the `services` that they share; `native` executors in Rust
//! approval   `approval_flow`, above tier `auto`: `proposal_text` for people, `proposal_data` for agents, with masks
//!            `shown_proposal`; `policy_text` has rules and limits; `proposal_worker` executes what was approved
//! record     `row_images`: rows before and after
//! answer     `row_masking` applies the masks of `mask_policy`; `listed_numbers` finds the numbers in one of
//!            `execute_sql`; the registry wraps it in an `Envelope`
//! session    `instructions`, for an agent at its start
//! metrics    `metrics`, for Prometheus
//! ```
//!
//! To add a built-in tool, add a file to `builtin/` with its arguments (whose schema is derived), its result and its
//! function `tool`, and one line to `builtin::all`. The schema, the docs, `tools/list` and profiles follow. A
//! manifest tool needs no Rust code. To add an executor in Rust, see `native`. To add a resource, which offers the
//! data of a tool by URI, see `resources` in the crate `catalog`.

mod activity;
mod approval_flow;
mod arguments;
mod bounded;
pub mod builtin;
mod call_database;
mod confirmation;
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
mod since_data;
mod tool;
mod toolset;
mod unavailable;
mod unfit_tool;

pub use activity::Activity;
pub use call_database::{CallDatabase, DATABASE};
pub use instructions::READS_ONLY;
pub use ledger::read::ResponsePermit;
pub use live_registry::{
    DatabaseHealth, ListChange, LiveDatabase, LiveRegistry, NotServed, ProfileToolsets, ProfileView, View,
};
pub use mask_policy::{MaskPolicy, MaskRule};
pub use metrics::{DatabaseGauges, LedgerScrape, Metrics};
pub use profile::Profile;
pub use proposal_worker::run_proposal_worker;
pub use registry::Registry;
pub use services::{ConsoleLinks, ExecuteSqlSettings, Services};
pub use tool::{
    Annotations, Call, Caller, Disposition, PageRequest, Question, TIER, Tool, ToolError, ToolInfo, ToolLookup,
    ToolOutput, ToolResult, UserAnswer, UserDecision,
};
pub use toolset::{CallResult, Toolset, ToolsetError, Unavailable};
pub use unfit_tool::UnfitTool;
