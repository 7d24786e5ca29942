//! Reads: also those whose statement would write.

use std::collections::HashMap;

use super::Check;
use crate::history::{FinalState, History};
use crate::line::{Outcome, Request};

/// The tool of all reads.
const TOOL: &str = "query_database";

pub(super) fn check(history: &History, end: &FinalState) -> Check {
    let mut check = Check::default();
    let texts: HashMap<&String, usize> =
        end.rows.iter().filter_map(|row| Some((row.of.text.as_ref()?, row.line))).collect();
    for operation in &history.operations {
        match &operation.call.request {
            Request::Query { .. } => check.cases += 1,
            Request::WritingQuery { text, .. } => {
                check.cases += 1;
                if let Some(Outcome::Read) = operation.outcome() {
                    check.breach(operation.lines(), "a read was answered whose statement writes");
                }
                if let Some(row) = texts.get(text) {
                    check.breach(operation.lines().into_iter().chain([*row]), "a read has left a row");
                }
            }
            _ => {}
        }
    }
    for record in end.records.iter().filter(|record| record.of.tool == TOOL) {
        check.breach([record.line], "a read has the record of a write");
    }
    check
}
