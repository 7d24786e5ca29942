//! Compiles manifest files to checked tool specifications.
//!
//! [`compile`] takes the text of every manifest and a [`DescribeStatement`](types::DescribeStatement), and returns
//! either a whole [`ToolCatalog`] or every [`Diagnostic`] of every tool. Types, columns and nullability come from the
//! database. They are never declared, and never parsed out of SQL text. This crate opens no connection and does not
//! depend on MCP. Its only I/O is [`Source::read`].
//!
//! ```text
//! text        `source` has it, with positions; `parse` makes the types of `file`, piece by piece
//! order       `compile` runs the steps below for all tools; mistakes are kept as a `diagnostic` each
//! left out    `requirements` that the database does not meet
//! statements  `set_clause` expands `{set}`, `infer` describes them: types of parameters and columns
//! checks      `check`, one file for each concern; `policy` lets PostgreSQL describe the rules
//!             `missing_privileges` reports what the login may not do, once for each object
//! result      `spec`: the tools that fit the database; `tool_schema`: the JSON Schemas of arguments and answers
//! values      `value` checks those of a manifest, `timestamp` those with a time
//! calls       `undo` builds the undo calls of a write; `summary` says what a call does
//! texts       `notes` of the operator on tables and columns
//! editors     `json_schema`: the file format as a JSON Schema
//! ```
//!
//! How to add
//! - a key to the format: a field in `file.rs` (the doc comment is its documentation), its meaning in `spec.rs`, its
//!   possible mistakes in `check/`; then regenerate `manifests/manifest.schema.json` (the test `json_schema` says
//!   how);
//! - a check: one small function in the file of `check/` for its concern, and a test that makes the mistake;
//! - a kind of type: its match arms in `tool_schema/types.rs` and in `value.rs`.

mod check;
mod compile;
mod diagnostic;
mod file;
mod infer;
mod json_schema;
mod missing_privileges;
mod notes;
mod parse;
mod policy;
mod requirements;
mod set_clause;
mod source;
mod spec;
mod summary;
mod timestamp;
mod tool_schema;
mod undo;
mod value;

pub use compile::{Compilation, ServerNames, check_files, compile, compile_fitting, declared};
pub use diagnostic::{Diagnostic, Diagnostics, Location};
pub use json_schema::manifest_schema;
pub use notes::name_parts;
pub use policy::Conditions;
pub use set_clause::SetClause;
pub use source::Source;
pub use spec::{
    Access, BuiltinTool, DeclaredTool, Limits, Note, OutdatedTool, Param, ParamSource, QueryDefaults, RowExpectation,
    StatementSpec, ToolCatalog, ToolSpec, UndoSpec, ValueSource,
};
pub use summary::Summary;
pub use timestamp::{is_timestamp, timestamp_in_utc};
pub use tool_schema::{
    any_parameter, any_scalar, any_value, decimal, element, enforced, envelope_schema, form, idempotency_key, integer,
    listed, outline, property, unsafe_numbers, with_numbers,
};
pub use undo::rollback;
pub use value::validator;
