//! Writes of agents: acknowledged, carried out once, answered again, refused.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{Check, Identity, identity, identity_of_call, is_write, lines_of};
use crate::history::{FinalState, History, Numbered, Operation};
use crate::line::{Id, Outcome, Record, Request, Row, Status};

pub(super) fn acknowledged(history: &History, end: &FinalState) -> Check {
    let mut check = Check::default();
    let texts: HashSet<&String> = end.rows.iter().filter_map(|row| row.of.text.as_ref()).collect();
    let mut seen = HashSet::new();
    for operation in &history.operations {
        let lines = operation.lines();
        let (receipts, data) = match operation.outcome() {
            Some(Outcome::Done { receipt, data } | Outcome::Repeated { original: receipt, data, .. }) => {
                (std::slice::from_ref(receipt), Some(data))
            }
            Some(Outcome::Ended { undone, .. }) => (undone.as_slice(), None),
            _ => continue,
        };
        for receipt in receipts {
            check.cases += usize::from(seen.insert(receipt));
            let Some(Numbered { line, of: record }) = end.record(receipt) else {
                check.breach(lines.clone(), format!("{} was acknowledged, and has no record", receipt.as_str()));
                continue;
            };
            let lines = lines.iter().copied().chain([*line]);
            if record.status != Status::Success {
                check.breach(lines, format!("{} was acknowledged, and its record is no success", receipt.as_str()));
            } else if data.is_some_and(|data| record.data.as_ref() != Some(data)) {
                check.breach(lines, format!("{} was answered with other data than its record has", receipt.as_str()));
            } else if let Request::Write { tool, arguments, .. } = &operation.call.request {
                let is_lost = arguments.text.as_ref().is_some_and(|text| !texts.contains(text));
                if record.tool != *tool || record.arguments != *arguments {
                    check.breach(lines, format!("{} is the record of another call", receipt.as_str()));
                } else if is_lost && end.stands(record) {
                    check.breach(lines, format!("{} was acknowledged, and its row is not there", receipt.as_str()));
                }
            }
        }
    }
    for Sum { expected, found, lines, of } in sums(end) {
        if expected > found {
            check.breach(lines, format!("{of} is {found}, and the standing writes make {expected}"));
        }
    }
    check
}

pub(super) fn once(history: &History, end: &FinalState) -> Check {
    let mut check = Check::default();
    let mut carried_out: BTreeMap<Identity, Vec<&Numbered<Record>>> = BTreeMap::new();
    for record in end.records.iter().filter(|record| record.of.status == Status::Success && is_write(&record.of)) {
        if let Some(identity) = identity(&record.of.tool, record.of.key.as_ref(), &record.of.arguments) {
            carried_out.entry(identity).or_default().push(record);
        }
    }
    check.cases = carried_out.len();
    for ((tool, call), records) in carried_out.iter().filter(|(_, records)| records.len() > 1) {
        let calls = history.operations.iter().filter(|operation| identity_of_call(operation) == Some((*tool, *call)));
        let lines = calls.flat_map(Operation::lines).chain(lines_of(records.iter().copied()));
        check.breach(lines, format!("{tool} {call} was carried out {} times", records.len()));
    }
    let mut texts: BTreeMap<(&str, &str), Vec<&Numbered<Row>>> = BTreeMap::new();
    for row in &end.rows {
        if let Some(text) = &row.of.text {
            texts.entry((&row.of.table, text)).or_default().push(row);
        }
    }
    for ((table, text), rows) in texts.into_iter().filter(|(_, rows)| rows.len() > 1) {
        check.breach(lines_of(rows.iter().copied()), format!("{table} has {} rows with {text}", rows.len()));
    }
    for Sum { expected, found, lines, of } in sums(end) {
        if expected < found {
            check.breach(lines, format!("{of} is {found}, and the standing writes make {expected}"));
        }
    }
    check
}

/// What the standing writes add up to, and what is there.
struct Sum {
    of: String,
    expected: i64,
    found: i64,
    lines: Vec<usize>,
}

/// The totals, and the likes of each tweet.
fn sums(end: &FinalState) -> Vec<Sum> {
    let mut sums: BTreeMap<(&str, String), Sum> = BTreeMap::new();
    let mut add = |table: &'static str, key: String, expected: i64, found: i64, line: usize| {
        let of = format!("{table} {key}");
        let sum = sums.entry((table, key)).or_insert_with(|| Sum { of, expected: 0, found: 0, lines: Vec::new() });
        sum.expected += expected;
        sum.found += found;
        sum.lines.push(line);
    };
    for Numbered { line, of: record } in &end.records {
        let (table, amount) = match record.tool.as_str() {
            "add_to_total" => ("chaos.total", record.arguments.amount.unwrap_or_default()),
            "like_tweet" => ("social.tweet_like", 1),
            "unlike_tweet" => ("social.tweet_like", -1),
            _ => continue,
        };
        if let (Some(id), true) = (record.arguments.id, end.stands(record)) {
            add(table, id.to_string(), amount, 0, *line);
        }
    }
    for Numbered { line, of: row } in &end.rows {
        match row.table.as_str() {
            "chaos.total" => add("chaos.total", row.key.clone(), 0, row.amount.unwrap_or_default(), *line),
            "social.tweet_like" => add("social.tweet_like", row.key.clone(), 0, 1, *line),
            _ => {}
        }
    }
    sums.into_values().collect()
}

pub(super) fn repeated(history: &History) -> Check {
    let mut check = Check::default();
    let mut answers: BTreeMap<Identity, Vec<&Operation>> = BTreeMap::new();
    let (mut undone, mut redone): (HashMap<&Id, (usize, &Id)>, HashSet<&Id>) = (HashMap::new(), HashSet::new());
    for operation in &history.operations {
        if let (Some(identity), Some(_)) = (identity_of_call(operation), operation.acknowledged()) {
            answers.entry(identity).or_default().push(operation);
        }
        if let Request::Undo { of, .. } = &operation.call.request {
            redone.insert(of);
            if let (Some(undo), Some(answer)) = (operation.acknowledged(), &operation.answer) {
                undone.entry(of).or_insert((answer.line, undo));
            }
        }
    }
    for ((tool, call), operations) in answers.iter().filter(|(_, operations)| operations.len() > 1) {
        check.cases += 1;
        let distinct: BTreeSet<&Id> = operations.iter().filter_map(|operation| operation.acknowledged()).collect();
        let mut data = operations.iter().filter_map(|operation| data(operation));
        let first = data.next();
        if distinct.len() > 1 || data.any(|data| Some(data) != first) {
            let lines = operations.iter().flat_map(|operation| operation.lines());
            check.breach(lines, format!("{tool} {call} has several answers"));
        }
    }
    for operation in answers.into_values().flatten() {
        let undo = operation.acknowledged().and_then(|receipt| undone.get(receipt));
        // Who has back what was undone may have it back before this call.
        if let Some((line, _)) = undo.filter(|(line, undo)| *line < operation.line && !redone.contains(undo)) {
            check.breach(operation.lines().into_iter().chain([*line]), "a write was answered as done after its undo");
        }
    }
    check
}

fn data(operation: &Operation) -> Option<&serde_json::Value> {
    match operation.outcome()? {
        Outcome::Done { data, .. } | Outcome::Repeated { data, .. } => Some(data),
        _ => None,
    }
}

pub(super) fn refused(history: &History, end: &FinalState) -> Check {
    let mut check = Check::default();
    let texts: HashMap<&String, usize> =
        end.rows.iter().filter_map(|row| Some((row.of.text.as_ref()?, row.line))).collect();
    // Calls that may have been carried out: a repeated call is refused if an earlier one has succeeded.
    let may_be_done: HashSet<Identity> =
        history.operations.iter().filter(|operation| is_open(operation)).filter_map(identity_of_call).collect();
    for operation in &history.operations {
        let (receipt, is_in_doubt) = match operation.outcome() {
            Some(Outcome::Refused { receipt, .. }) => (receipt.as_ref(), false),
            Some(Outcome::InDoubt { receipt }) => (receipt.as_ref(), true),
            _ => continue,
        };
        let record = receipt.and_then(|receipt| end.record(receipt));
        let is_success = record.is_some_and(|record| record.of.status == Status::Success);
        if is_in_doubt && is_success {
            continue;
        }
        check.cases += 1;
        if let Some(record) = record.filter(|record| is_success || !record.of.effects.is_empty()) {
            let lines = operation.lines().into_iter().chain([record.line]);
            check.breach(lines, "the call was refused, and its record has written");
        }
        let Request::Write { arguments, .. } = &operation.call.request else { continue };
        let row = arguments.text.as_ref().and_then(|text| texts.get(text));
        let is_refused = identity_of_call(operation).is_some_and(|call| !may_be_done.contains(&call));
        if let (Some(line), true) = (row, is_refused) {
            check.breach(
                operation.lines().into_iter().chain([*line]),
                "every such call was refused, and its row is there",
            );
        }
    }
    check
}

/// Whether an operation was not refused for certain.
fn is_open(operation: &Operation) -> bool {
    !matches!(operation.outcome(), Some(Outcome::Refused { .. }))
}
