//! Undos: by tools, by commands, and by plans.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Check, is_write};
use crate::history::{FinalState, History, Numbered, Operation};
use crate::line::{Effect, Id, Outcome, Record, Request, Status};

pub(super) fn check(history: &History, end: &FinalState) -> Check {
    let mut check = Check::default();
    let mut undone_by: HashMap<&Id, usize> = HashMap::new();
    let asked = Asked::of(history);
    let undos = end.records.iter().filter(|undo| undo.of.status == Status::Success && !is_write(&undo.of));
    for Numbered { line, of: undo } in undos {
        check.cases += 1;
        for write in &undo.undo_of {
            if let Some(other) = undone_by.insert(write, *line) {
                check.breach([other, *line], format!("{} was undone twice", write.as_str()));
            }
            let marked = end.record(write).filter(|write| write.of.reversed_by.as_ref() != Some(&undo.receipt));
            if let Some(write) = marked {
                check.breach([write.line, *line], "an undo has not marked what it undid");
            }
        }
        if let Some((lines, what)) = differs(undo, end) {
            check.breach(lines.into_iter().chain([*line]), what);
        }
        if !asked.covers(undo) {
            check.breach([*line], "nobody has asked for this undo");
        }
    }
    for Numbered { line, of: write } in &end.records {
        let Some(undo) = write.reversed_by.as_ref() else { continue };
        let by = end.record(undo);
        if !by.is_some_and(|undo| undo.of.status == Status::Success && undo.of.undo_of.contains(&write.receipt)) {
            let lines = by.map(|undo| undo.line).into_iter().chain([*line]);
            check.breach(lines, "a write is marked as undone by what is not its undo");
        }
    }
    still_there(end, &mut check);
    for (subject, runs) in commands(history) {
        told(subject, &runs, &asked, end, &mut check);
    }
    check
}

/// What was asked for: the writes that were to be undone one by one, and the parts of the plans that were run.
#[derive(Default)]
struct Asked<'h> {
    alone: BTreeSet<&'h Id>,
    plans: HashMap<&'h Id, &'h [Vec<Id>]>,
}

impl<'h> Asked<'h> {
    fn of(history: &'h History) -> Self {
        let mut asked = Self::default();
        let mut planned = HashMap::new();
        for operation in &history.operations {
            match (&operation.call.request, operation.outcome()) {
                (Request::Undo { of, .. }, _) => drop(asked.alone.insert(of)),
                (_, Some(Outcome::Planned { plan: Some(plan), parts })) => drop(planned.insert(plan, parts.as_slice())),
                (Request::RunPlan { plan }, _) => {
                    asked.plans.extend(planned.get(plan).map(|parts| (plan, *parts)));
                }
                _ => {}
            }
        }
        asked
    }

    fn covers(&self, undo: &Record) -> bool {
        match (&undo.plan, undo.undo_of.as_slice()) {
            (Some(plan), _) => self.plans.get(plan).is_some_and(|parts| parts.contains(&undo.undo_of)),
            (None, [write]) => self.alone.contains(write),
            (None, _) => false,
        }
    }
}

/// The first and the last image of each row that effects change.
type Changes<'h> = BTreeMap<(&'h str, &'h str), (Option<&'h String>, Option<&'h String>)>;

fn changes<'h>(effects: impl IntoIterator<Item = &'h Effect>) -> Changes<'h> {
    let mut effects: Vec<&Effect> = effects.into_iter().collect();
    effects.sort_by_key(|effect| effect.position);
    let mut changes = Changes::new();
    for Effect { table, key, before, after, .. } in effects {
        let (_, last) = changes.entry((table, key)).or_insert((before.as_ref(), None));
        *last = after.as_ref();
    }
    changes.retain(|_, (before, after)| before != after);
    changes
}

/// How the changes of an undo are not the inverse of what it undoes.
fn differs(undo: &Record, end: &FinalState) -> Option<(Vec<usize>, String)> {
    let writes: Vec<&Numbered<Record>> = undo.undo_of.iter().filter_map(|write| end.record(write)).collect();
    let lines = || writes.iter().map(|write| write.line).collect();
    if writes.len() < undo.undo_of.len() {
        return Some((lines(), "an undo is of a write that has no record".to_owned()));
    }
    let forth = changes(writes.iter().flat_map(|write| &write.of.effects));
    let back = changes(&undo.effects);
    let inverse: Changes = back.iter().map(|(row, (before, after))| (*row, (*after, *before))).collect();
    let row = forth.keys().chain(inverse.keys()).find(|row| forth.get(*row) != inverse.get(*row))?;
    Some((lines(), format!("the undo did not put back {} {}, or changed more than what it undoes", row.0, row.1)))
}

/// Rows whose writes are all undone.
fn still_there(end: &FinalState, check: &mut Check) {
    let mut by_text: HashMap<&String, Vec<&Numbered<Record>>> = HashMap::new();
    for record in end.records.iter().filter(|record| record.of.status == Status::Success && is_write(&record.of)) {
        if let Some(text) = &record.of.arguments.text {
            by_text.entry(text).or_default().push(record);
        }
    }
    for row in &end.rows {
        let records = row.of.text.as_ref().and_then(|text| by_text.get(text));
        let Some(records) = records.filter(|records| !records.iter().any(|record| end.stands(&record.of))) else {
            continue;
        };
        check.breach(
            records.iter().map(|record| record.line).chain([row.line]),
            "a write was undone, and its row is there",
        );
    }
}

/// The commands that undo, by the plan or the write that they are about.
fn commands(history: &History) -> BTreeMap<&Id, Vec<&Operation>> {
    let mut commands: BTreeMap<&Id, Vec<&Operation>> = BTreeMap::new();
    for operation in &history.operations {
        let (Request::RunPlan { plan: subject } | Request::Undo { of: subject, .. }) = &operation.call.request else {
            continue;
        };
        if operation.call.server.is_none() {
            commands.entry(subject).or_default().push(operation);
        }
    }
    commands
}

/// Compares what the commands about one plan or write have said with the records.
fn told(subject: &Id, runs: &[&Operation], asked: &Asked, end: &FinalState, check: &mut Check) {
    let (mut told, mut is_in_doubt, mut is_complete) = (Vec::new(), false, false);
    for run in runs {
        if let Some(Outcome::Ended { undone, in_doubt, complete, .. }) = run.outcome() {
            told.extend(undone);
            is_in_doubt |= in_doubt;
            is_complete |= complete;
        } else {
            is_in_doubt = true;
        }
    }
    let lines = || runs.iter().flat_map(|run| run.lines());
    let distinct: BTreeSet<&Id> = told.iter().copied().collect();
    if distinct.len() < told.len() {
        check.breach(lines(), "two commands have reported the same undo");
    }
    let is_of =
        |undo: &Record| undo.plan.as_ref() == Some(subject) || undo.plan.is_none() && undo.undo_of == [subject.clone()];
    let recorded: BTreeSet<&Id> = end
        .records
        .iter()
        .filter(|undo| undo.of.status == Status::Success && is_of(&undo.of))
        .map(|undo| &undo.of.receipt)
        .collect();
    if !distinct.is_subset(&recorded) || !is_in_doubt && distinct != recorded {
        check.breach(lines(), "the commands have reported other undos than the records have");
    }
    let mut writes =
        asked.plans.get(subject).into_iter().copied().flatten().flatten().filter_map(|write| end.record(write));
    if let (Some(write), true) = (writes.find(|write| write.of.reversed_by.is_none()), is_complete) {
        check
            .breach(lines().chain([write.line]), "the plan is said to be carried out, and a write of it is not undone");
    }
}
