//! What is shown of a write, whoever looks: the differences of its rows, and the masks of the person or agent who looks.
//!
//! The tools of agents, the console and the command line give it a form; what it says is decided here. `reader` reads records for people
//! and gives out none without its masks. `row_diff` compares the rows before and after, `decision` says who may approve, and `sentences` has
//! what every face says in the same words. Nothing here prints, and nothing knows MCP or HTML.

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
