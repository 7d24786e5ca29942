//! What an agent can call: the built-in tools, the tools of the manifests, and the registry that both are in.
//!
//! A call goes through the [`Registry`] only: it finds the tool, checks the arguments against the tool's schema, runs
//! it, and makes one [`contract::Envelope`] of what comes back. Tools know neither MCP nor a connection: they read
//! through [`ledger::read`] and write through [`ledger::Gate`]. `discovery` asks what there is in the database, for
//! `describe_database` and for the hints of failed queries. What is served can change while calls run: `toolbox`.
//!
//! To add a built-in tool: a file in `builtin/` with its arguments (their schema is derived), its result and its
//! [`Tool`] implementation, and one line in [`builtin::all`]. Schema, docs, `tools/list` and profiles follow from there.
//! To add a manifest tool: no Rust at all. To add a resource (the same data, read by its address): `resources`.

mod arguments;
pub mod builtin;
mod discovery;
mod drift;
mod images;
mod manifest_read;
mod manifest_write;
mod profile;
mod registry;
mod resources;
mod scripts;
mod tool;
mod toolbox;

pub use builtin::Backends;
pub use ledger::read::Room;
pub use profile::Profile;
pub use registry::{Registry, RegistryError, Reply};
pub use resources::{Address, Completions, Listed, Page, Template, Typed};
pub use tool::{Answer, Call, Hints, Outcome, Refused, Tool, ToolInfo};
pub use toolbox::{Change, Shelves, Toolbox, Toolset};
