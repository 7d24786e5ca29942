//! Judges the history of a chaos run: what clients and people asked for and were told, the faults, and what is in the
//! database in the end. It knows the promises and nothing of how countersign keeps them.
//!
//! ```text
//! line       the lines of a history, which `tests/chaos` writes
//! history    a history as it was read: operations with their answers, and the final state
//! promises   one verdict for each promise
//! report     the verdicts and the figures as text
//! ```

mod history;
mod line;
mod promises;
mod report;

pub use history::{History, Operation};
pub use line::{
    Answer, Arguments, Call, Effect, End, FORMAT, Fault, Header, Id, Leaf, Line, Machine, Outcome, Record, Request,
    Row, Status,
};
pub use promises::{Breach, Promise, Verdict, judge};
pub use report::report;
