//! What people and agents see of a write: the differences of its rows, with the masks of the viewer.
//!
//! The tools of agents, the console and the command line format this content; this crate determines it. `reader`
//! reads records for people, and returns rows only with masks applied. `row_diff` compares the rows before and after
//! a write, `decision` says who may approve, and `sentences` has the texts that all front ends share. This crate
//! prints nothing and does not depend on MCP or HTML.

mod decision;
mod finding;
mod masks;
mod reader;
pub mod row_diff;
mod row_key;
pub mod sentences;

pub use decision::{Undecidable, is_same_person, undecidable};
pub use finding::{Finding, FindingLevel};
pub use masks::RowMasks;
pub use reader::{LoginMasks, RecordReader};
pub use row_key::RowKey;
