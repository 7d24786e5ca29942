//! Records and the log: nothing is missing, nothing is there without a record, and the order is that of the writes.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Check, is_write};
use crate::history::{FinalState, History, Numbered};
use crate::line::{Effect, Outcome, Request, Status};

pub(super) fn check(history: &History, end: &FinalState) -> Check {
    let mut check = Check { cases: end.records.len(), ..Check::default() };
    for Numbered { line, of: record } in &end.records {
        if record.status == Status::Pending {
            check.breach([*line], "the record is still pending");
        }
        if (record.status == Status::Success) == record.effects.is_empty() {
            check.breach([*line], "a success has no effects, or what is no success has some");
        }
    }
    for stray in &end.strays {
        check.breach([stray.line], "a change of a row has no record");
    }
    rows(end, &mut check);
    log(end, &mut check);
    order(history, end, &mut check);
    for operation in history.operations.iter().filter(|operation| operation.call.request == Request::Verify) {
        if let Some(Outcome::Ended { code: Some(1), .. }) = operation.outcome() {
            check.breach(operation.lines(), "`audit verify` has found a disagreement");
        }
    }
    check
}

/// Each row is what its last effect left, and a text is there because a record wrote it.
fn rows(end: &FinalState, check: &mut Check) {
    let mut last: BTreeMap<(&str, &str), (usize, &Effect)> = BTreeMap::new();
    for Numbered { line, of: record } in &end.records {
        for effect in &record.effects {
            let found = last.entry((&effect.table, &effect.key)).or_insert((*line, effect));
            if found.1.position <= effect.position {
                *found = (*line, effect);
            }
        }
    }
    let written: HashSet<&String> = end
        .records
        .iter()
        .filter(|record| record.of.status == Status::Success && is_write(&record.of))
        .filter_map(|record| record.of.arguments.text.as_ref())
        .collect();
    for Numbered { line, of: row } in &end.rows {
        match last.remove(&(&row.table, &row.key)) {
            None => check.breach([*line], "no record has written this row"),
            Some((_, effect)) if effect.after.as_ref() == Some(&row.image) => {}
            Some((record, _)) => check.breach([record, *line], "the row is not what its last recorded change left"),
        }
        if row.text.as_ref().is_some_and(|text| !written.contains(text)) {
            check.breach([*line], "no record has written this text");
        }
    }
    for ((table, key), (line, _)) in last.into_iter().filter(|(_, (_, effect))| effect.after.is_some()) {
        check.breach([line], format!("{table} {key} is not there, and no record has deleted it"));
    }
}

/// The log has each record once, in the order of their numbers.
fn log(end: &FinalState, check: &mut Check) {
    let mut records: HashMap<u64, _> = end.records.iter().filter_map(|record| Some((record.of.id?, record))).collect();
    let mut newest = None;
    for (index, Numbered { line, of: leaf }) in (0..).zip(&end.leaves) {
        if leaf.index != index {
            check.breach([*line], format!("the entry {index} of the log is missing"));
            return;
        }
        let Some(id) = leaf.record else { continue };
        match records.remove(&id) {
            None => check.breach([*line], format!("the log has the record {id} twice, or it is missing")),
            Some(Numbered { of: record, line: other }) => {
                if leaf.receipt.as_ref() != Some(&record.receipt) || leaf.status != Some(record.status) {
                    check.breach([*line, *other], "the entry of the log is another one than the record");
                }
            }
        }
        if newest.is_some_and(|(newest, _)| id < newest) {
            let other = newest.map(|(_, line)| line);
            check.breach(other.into_iter().chain([*line]), "the log has two records in the wrong order");
        }
        newest = Some((id, *line));
    }
    for record in records.into_values() {
        check.breach([record.line], "the log lacks the record");
    }
}

/// A write that was acknowledged before another one was asked for has the smaller number.
fn order(history: &History, end: &FinalState, check: &mut Check) {
    let mut moments = Vec::new();
    for operation in &history.operations {
        let (Some(Outcome::Done { receipt, .. }), Some(answer)) = (operation.outcome(), &operation.answer) else {
            continue;
        };
        if let Some(id) = end.record(receipt).and_then(|record| record.of.id) {
            moments.push((operation.line, id, None));
            moments.push((answer.line, id, Some(operation)));
        }
    }
    moments.sort_by_key(|(line, ..)| *line);
    let mut newest = (0, 0);
    for (line, id, ended) in moments {
        if ended.is_some() {
            newest = newest.max((id, line));
        } else if id < newest.0 {
            check.breach(
                [line, newest.1],
                "a write has a smaller number than one that was acknowledged before it began",
            );
        }
    }
}
