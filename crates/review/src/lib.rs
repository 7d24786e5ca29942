//! What people and agents see of a write: the differences of its rows, with the masks of the viewer. The tools of
//! agents, the console and the command line format this content; this crate determines it. Entry points:
//! [`RecordReader`], [`RowMasks`], [`Sheet`], [`Summary`], [`undecidable`]. This crate prints nothing and does not depend on MCP or HTML.
//!
//! ```text
//! reader     reads records for people, and returns rows only with masks applied
//! masks      the masks of results, records, previews, conflicts and proposals
//! row_diff   the rows before and after a write; `row_key` is the key of a row as people type it
//! sheet      what a person has to know before they agree, for every face
//! call_text  the statement of a write as text, and its parameters
//! summary    the rows of a write by table and kind, and what they become; `word_diff` is for long texts
//! since      what has changed since a proposal was made, and who changed it
//! risk       the risks of a write, the worst first
//! decision   who may approve a proposal, and who has decided
//! sentences  the texts that all front ends share; `ago` is for times
//! finding    what the check of a ledger and of its servers found
//! ```

pub mod ago;
mod call_text;
mod decision;
mod finding;
mod masks;
mod reader;
mod risk;
pub mod row_diff;
mod row_key;
pub mod sentences;
mod sheet;
mod since;
pub mod summary;
mod word_diff;

pub use call_text::CallText;
pub use decision::{Decidable, Decider, Undecidable, decided_by, is_same_person, undecidable, waits_for_reviewer};
pub use finding::{Finding, FindingLevel};
pub use masks::{RowMasks, hide_error, masked_error};
pub use reader::{LoginMasks, RecordReader};
pub use risk::{Risk, RiskLevel, count_line, marks, outline_line};
pub use row_key::RowKey;
pub use sheet::Sheet;
pub use since::Since;
pub use summary::Summary;
pub use word_diff::{TextPart, word_diff};
