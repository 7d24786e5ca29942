//! Writes a manifest from a live database: for each table the tools to insert, update and delete a row by its key.
//! [`discover`] reads the tables of schemas from the system catalog, and [`manifest`] writes the TOML. The result is
//! a draft that an operator edits; `countersign check` decides whether it fits the database. This crate only
//! reads the catalog. It must not depend on the registry of tools or on a protocol.
//!
//! ```text
//! discover    reads the catalog (the `.sql` files); `table` has its rows
//! write       the whole manifest: which tables have tools
//! tools       the tools of one table, with their statements; `names` of tools and parameters
//! columns     how a tool accepts a column
//! constraint  rules of simple check constraints; `expression` splits what PostgreSQL printed, `pattern` finds patterns
//! text        the TOML
//! ```
//!
//! How to add
//! - a form of check constraint that becomes a rule: `constraint`, with a test of PostgreSQL's own spelling of it;
//! - a kind of tool: `tools`.
//!
//! No tool declares an undo, which would repeat what triggers and foreign keys do: the tables are tracked. A CHECK
//! constraint becomes a rule only if all of it is understood, since too strict a rule would refuse what the database
//! accepts. Values of bytes are neither returned nor kept as images. A parameter of a domain has the type below it,
//! because PostgreSQL makes no plan for one of a domain that is NOT NULL. A table that others inherit from is left out:
//! an undo that looks for a key would find rows of both.

mod columns;
mod constraint;
mod discover;
mod expression;
mod names;
mod pattern;
mod table;
mod text;
mod tools;
mod write;

pub use discover::{DiscoverError, SchemaTables, discover};
pub use write::{Scaffold, ToolKind, UnknownKindError, manifest};
