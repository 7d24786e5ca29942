//! The promises, and whether a history keeps them.

mod proposals;
mod reads;
mod records;
mod undos;
mod writes;

use crate::history::{FinalState, History, Numbered, Operation};
use crate::line::{Arguments, Record, Request};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    Acknowledged,
    Once,
    Repeated,
    Refused,
    Undo,
    Approval,
    Reads,
    Log,
}

impl Promise {
    pub const ALL: [Self; 8] = [
        Self::Acknowledged,
        Self::Once,
        Self::Repeated,
        Self::Refused,
        Self::Undo,
        Self::Approval,
        Self::Reads,
        Self::Log,
    ];

    /// The promise, and what its cases are.
    #[must_use]
    pub fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Acknowledged => ("no acknowledged write is lost", "acknowledged writes"),
            Self::Once => ("no write is carried out twice", "calls that were carried out"),
            Self::Repeated => ("a repeated call gets the first answer", "calls with several answers"),
            Self::Refused => ("what was refused, or failed in doubt, wrote nothing", "answers"),
            Self::Undo => ("an undo takes back exactly its writes, once", "undos"),
            Self::Approval => ("a proposal is carried out at most once, and only if approved", "proposals"),
            Self::Reads => ("reads change nothing", "reads"),
            Self::Log => ("records are complete, and in the log in their order", "records"),
        }
    }
}

/// How a history contradicts a promise, and in which lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    pub lines: Vec<usize>,
    pub what: String,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Held {
        cases: usize,
    },
    Broken {
        cases: usize,
        breaches: Vec<Breach>,
    },
    /// The history has no case, or no final state to compare with.
    NotChecked,
}

/// What a promise was checked on.
#[derive(Debug, Default)]
struct Check {
    cases: usize,
    breaches: Vec<Breach>,
}

impl Check {
    fn breach(&mut self, lines: impl IntoIterator<Item = usize>, what: impl Into<String>) {
        let mut lines: Vec<usize> = lines.into_iter().collect();
        lines.sort_unstable();
        lines.dedup();
        self.breaches.push(Breach { lines, what: what.into() });
    }

    fn verdict(self) -> Verdict {
        match (self.cases, self.breaches) {
            (0, breaches) if breaches.is_empty() => Verdict::NotChecked,
            (cases, breaches) if breaches.is_empty() => Verdict::Held { cases },
            (cases, breaches) => Verdict::Broken { cases, breaches },
        }
    }
}

/// One verdict for each promise.
#[must_use]
pub fn judge(history: &History) -> Vec<(Promise, Verdict)> {
    let with_end = |check: fn(&History, &FinalState) -> Check| {
        history.end.as_ref().map_or_else(Check::default, |end| check(history, end))
    };
    let check = |promise| match promise {
        Promise::Acknowledged => with_end(writes::acknowledged),
        Promise::Once => with_end(writes::once),
        Promise::Repeated => writes::repeated(history),
        Promise::Refused => with_end(writes::refused),
        Promise::Undo => with_end(undos::check),
        Promise::Approval => with_end(proposals::check),
        Promise::Reads => with_end(reads::check),
        Promise::Log => with_end(records::check),
    };
    Promise::ALL.into_iter().map(|promise| (promise, check(promise).verdict())).collect()
}

/// What makes two calls the same: the tool, and the key or else the text.
type Identity<'h> = (&'h str, &'h str);

fn identity<'h>(tool: &'h str, key: Option<&'h String>, arguments: &'h Arguments) -> Option<Identity<'h>> {
    key.or(arguments.text.as_ref()).map(|text| (tool, text.as_str()))
}

fn identity_of_call(operation: &Operation) -> Option<Identity<'_>> {
    match &operation.call.request {
        Request::Write { tool, key, arguments } => identity(tool, key.as_ref(), arguments),
        // Only one undo of a write can be.
        Request::Undo { tool, of, .. } => Some((tool, of.as_str())),
        _ => None,
    }
}

fn lines_of<'h, T: 'h>(all: impl IntoIterator<Item = &'h Numbered<T>>) -> impl Iterator<Item = usize> {
    all.into_iter().map(|one| one.line).collect::<Vec<_>>().into_iter()
}

/// Whether this record is of a tool of agents, and no undo.
fn is_write(record: &Record) -> bool {
    record.undo_of.is_empty()
}
