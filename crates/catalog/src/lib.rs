//! Describes the database, its schemas, tables and columns, to agents that do not know it, and finds hints for
//! queries that name objects which do not exist.
//!
//! [`DatabaseDescriber`] answers `describe_database` and provides the content of the resources
//! ([`ResourceRegistry`]). [`corrected`] adds hints to the failure of a query, and [`statement_hint`] to the
//! diagnostic of a manifest. [`read_failure`] converts the error of a read to the failure for the agent. This crate
//! only reads. It must not depend on a protocol or on the registry of tools.
//!
//! ```text
//! description  `describer`, also for `resources`, which clients read by URI
//! rows         `queries` asks for them (the `.sql` files), `responses` has their types
//! manifests    `annotations` adds the operators' notes and the tools, of those that the caller has (`served`)
//! size         `truncate` omits details of the largest schemas
//!
//! failure      `read_failure`, then `hints`
//! cause        `form` of the query, or the name at the `error_position`
//! names        `names` caches those that exist, `suggestion` finds the nearest; `qualify` completes those of a write
//! ```
//!
//! Each answer of `describe_database` is one statement, so one snapshot, and has at most 16 KiB: the largest schema
//! loses detail first. Output schemas name `data` and nothing deeper, since clients send them to their model.

mod annotations;
mod describer;
mod error_position;
mod form;
mod hints;
mod names;
mod qualify;
mod queries;
mod read_failure;
mod resources;
mod responses;
mod served;
mod suggestion;
mod truncate;

pub use describer::DatabaseDescriber;
pub use hints::{HINT_TIMEOUT, corrected, statement_hint};
pub use names::CatalogNames;
pub use qualify::qualified;
pub use read_failure::{RowsPage, Truncation, ledger_failure, read_failure};
pub use resources::{
    CompletionRequest, Completions, ResourceEntry, ResourcePage, ResourceRegistry, ResourceUri, UriTemplate,
};
pub use responses::DescribeData;
pub use served::ServedTools;

/// The name of the tool that returns the same content as the resources.
pub const DESCRIBE_TOOL: &str = "describe_database";
