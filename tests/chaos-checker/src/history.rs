//! A history as it was read: operations with their answers, and the final state, each with its line number.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};

use anyhow::{Context, bail, ensure};
use flate2::read::MultiGzDecoder;

use crate::line::{Answer, Call, Effect, End, FORMAT, Fault, Header, Id, Leaf, Line, Outcome, Record, Row, Status};

/// Something with the number of its line, from 1.
#[derive(Debug)]
pub struct Numbered<T> {
    pub line: usize,
    pub of: T,
}

#[derive(Debug)]
pub struct Operation {
    pub line: usize,
    pub call: Call,
    /// None: the history ends before the answer.
    pub answer: Option<Numbered<Answer>>,
}

impl Operation {
    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        self.answer.as_ref().map(|answer| &answer.of.outcome)
    }

    /// The lines of the call and of its answer.
    pub(crate) fn lines(&self) -> Vec<usize> {
        std::iter::once(self.line).chain(self.answer.as_ref().map(|answer| answer.line)).collect()
    }

    /// The write that was acknowledged: this call's, or the one that it repeats.
    pub(crate) fn acknowledged(&self) -> Option<&Id> {
        match self.outcome()? {
            Outcome::Done { receipt, .. } => Some(receipt),
            Outcome::Repeated { original, .. } => Some(original),
            _ => None,
        }
    }
}

/// What was in the database when nobody wrote any more.
#[derive(Debug, Default)]
pub struct FinalState {
    pub records: Vec<Numbered<Record>>,
    pub strays: Vec<Numbered<Effect>>,
    pub leaves: Vec<Numbered<Leaf>>,
    pub rows: Vec<Numbered<Row>>,
    of_receipt: HashMap<Id, usize>,
}

impl FinalState {
    pub(crate) fn record(&self, receipt: &Id) -> Option<&Numbered<Record>> {
        self.records.get(*self.of_receipt.get(receipt)?)
    }

    /// Whether a write has happened and is not undone. An undo may be undone itself.
    pub(crate) fn stands(&self, record: &Record) -> bool {
        let mut stands = record.status == Status::Success;
        let mut undo = record.reversed_by.as_ref();
        // Each undo is younger than what it undoes; a history that says otherwise still ends here.
        for _ in 0..self.records.len() {
            let Some(record) = undo.and_then(|undo| self.record(undo)) else { break };
            stands = !stands;
            undo = record.of.reversed_by.as_ref();
        }
        stands
    }

    fn count(&self) -> End {
        let Self { records, strays, leaves, rows, .. } = self;
        End { records: records.len(), strays: strays.len(), leaves: leaves.len(), rows: rows.len() }
    }
}

#[derive(Debug)]
pub struct History {
    pub header: Header,
    pub operations: Vec<Operation>,
    pub faults: Vec<Fault>,
    /// None: the history ends early, after `lines`.
    pub end: Option<FinalState>,
    pub lines: usize,
}

impl History {
    /// Reads a history, which may be compressed with gzip.
    pub fn read(source: impl Read) -> anyhow::Result<Self> {
        let mut source = BufReader::new(source);
        let is_compressed = source.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        if is_compressed { Self::parse(BufReader::new(MultiGzDecoder::new(source))) } else { Self::parse(source) }
    }

    fn parse(mut source: impl BufRead) -> anyhow::Result<Self> {
        let mut text = String::new();
        source.read_line(&mut text).context("line 1")?;
        let first: Line = serde_json::from_str(&text).context("line 1 is not the header of a history")?;
        let Line::Header(header) = first else { bail!("line 1 is not the header of a history") };
        let format = header.format;
        ensure!(format == FORMAT, "the history has the format {format}; this program reads the format {FORMAT}");
        let mut history = Self { header, operations: Vec::new(), faults: Vec::new(), end: None, lines: 1 };
        let (mut state, mut open) = (FinalState::default(), HashMap::new());
        loop {
            text.clear();
            source.read_line(&mut text)?;
            // A run that was killed may have left a part of a line.
            if !text.ends_with('\n') {
                return Ok(history);
            }
            let line = history.lines + 1;
            history.lines = line;
            let parsed: Line = serde_json::from_str(&text).with_context(|| format!("line {line}"))?;
            ensure!(history.end.is_none(), "line {line} is behind the end of the history");
            match parsed {
                Line::Header(_) => bail!("line {line} is a second header"),
                Line::Call(call) => {
                    let earlier = open.insert(call.op, history.operations.len());
                    ensure!(earlier.is_none(), "line {line}: the operation {} has begun before", call.op);
                    history.operations.push(Operation { line, call, answer: None });
                }
                Line::Answer(answer) => {
                    let call = open.get(&answer.op).and_then(|at| history.operations.get_mut(*at));
                    let call = call.filter(|call| call.answer.is_none());
                    let call = call.with_context(|| format!("line {line} answers no open operation"))?;
                    call.answer = Some(Numbered { line, of: answer });
                }
                Line::Fault(fault) => history.faults.push(fault),
                Line::Record(of) => {
                    let earlier = state.of_receipt.insert(of.receipt.clone(), state.records.len());
                    ensure!(earlier.is_none(), "line {line}: another record has the same receipt");
                    state.records.push(Numbered { line, of });
                }
                Line::Stray(of) => state.strays.push(Numbered { line, of }),
                Line::Leaf(of) => state.leaves.push(Numbered { line, of }),
                Line::Row(of) => state.rows.push(Numbered { line, of }),
                Line::End(end) => {
                    let there = state.count();
                    ensure!(there == end, "line {line}: the final state has {there:?}, and should have {end:?}");
                    history.end = Some(std::mem::take(&mut state));
                }
            }
        }
    }
}
