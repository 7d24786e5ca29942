//! The query layer: what statements mean, and their results as JSON.
//!
//! - `read` is the only read path. `plan` plans a statement, `referenced_objects` lists what a plan uses, and
//!   `column_origins` which columns of tables its result shows; `plan_expression` reads the expressions of a plan.
//! - `type_catalog` has the types by oid, `value` converts values, `row_writer` writes rows; `json_rows` and
//!   `row_sink` collect them.
//! - `describe` describes statements for the crate `manifest`.
//! - `modifying_statement` inspects a statement of a caller that changes rows.
//! - `sql_executor` runs statements of a front end's user; `writer_pool` is for the crate `ledger` alone.

mod column_origins;
pub(crate) mod columns;
pub(crate) mod describe;
mod events;
pub(crate) mod json_rows;
pub(crate) mod modifying_statement;
pub(crate) mod plan;
mod plan_expression;
pub(crate) mod read;
pub(crate) mod referenced_objects;
mod row_sink;
pub(crate) mod row_writer;
pub(crate) mod sql_executor;
pub(crate) mod type_catalog;
pub mod value;
pub(crate) mod writer_pool;

pub use events::{Query, QueryDescription, QueryEvent, QuerySummary, RowDelivery};
pub use row_sink::RowSink;
