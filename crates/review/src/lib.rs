//! What people and agents see of a write: the differences of its rows, with the masks of the viewer. The tools of
//! agents, the console and the command line format this content; this crate determines it. Entry points:
//! [`RecordReader`], [`RowMasks`], [`undecidable`]. This crate prints nothing and does not depend on MCP or HTML.
//!
//! ```text
//! reader     reads records for people, and returns rows only with masks applied
//! masks      the masks of results, records, previews, conflicts and proposals
//! row_diff   the rows before and after a write; `row_key` is the key of a row as people type it
//! decision   who may approve a proposal
//! sentences  the texts that all front ends share
//! finding    what the check of a ledger and of its servers found
//! ```

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
