//! Compares effects: those of the two runs of a preview, and those that were shown with those of the write. A generated
//! value equals any value.

use std::collections::{HashMap, HashSet, VecDeque};

use serde::Serialize;
use serde_json::Value;
use types::{ChangeKind, ColumnEffect, Columns, Effects, RowEffect};

use crate::evidence::effects::MAX_SHOWN;

/// The placeholder for a value that the database generates at each execution.
pub const GENERATED: &str = "(generated)";

/// The first effects, with `(generated)` wherever the second effects have another value.
pub(super) fn without_generated(first: Effects<Value>, second: &Effects<Value>) -> Effects<Value> {
    let others = counterparts(&first.rows, &second.rows);
    Effects { rows: first.rows.into_iter().zip(others).map(|(row, other)| marked(row, other)).collect(), ..first }
}

/// What two effects of a table and kind have in common.
type Feature<'a> = &'a dyn Fn(&RowEffect<Value>) -> String;
type Condition<'a> = &'a dyn Fn(&RowEffect<Value>) -> bool;

/// For each row the effect of the other run on the same row, or on an inserted row in its place. The order of the rows
/// may differ, and so may the first ones of many: then there is none.
fn counterparts<'a>(rows: &[RowEffect<Value>], others: &'a [RowEffect<Value>]) -> Vec<Option<&'a RowEffect<Value>>> {
    let place = |row: &RowEffect<Value>| (row.table.clone(), row.key.as_ref().map(canonical));
    let is_insert = |row: &&RowEffect<Value>| row.change == ChangeKind::Insert;
    let inserted: HashSet<_> = rows.iter().filter(is_insert).map(place).collect();
    let mut taken = vec![false; others.len()];
    let mut found = vec![None; rows.len()];
    let same_row = |row: &RowEffect<Value>| canonical(row);
    let same_key = |row: &RowEffect<Value>| canonical(&row.key);
    // The key of an inserted row may be generated, also where a trigger then updates the row.
    let same_kind = |_: &RowEffect<Value>| String::new();
    let is_any = |_: &RowEffect<Value>| true;
    let is_inserted = |row: &RowEffect<Value>| inserted.contains(&place(row));
    let rules: [(Feature<'_>, Condition<'_>); 3] =
        [(&same_row, &is_any), (&same_key, &is_any), (&same_kind, &is_inserted)];
    for (feature, applies) in rules {
        let of = |row: &RowEffect<Value>| (row.table.clone(), row.change, feature(row));
        let mut left: HashMap<_, VecDeque<usize>> = HashMap::new();
        for (at, other) in others.iter().enumerate().filter(|(at, _)| taken.get(*at) == Some(&false)) {
            left.entry(of(other)).or_default().push_back(at);
        }
        for (row, found) in rows.iter().zip(&mut found).filter(|(row, found)| found.is_none() && applies(row)) {
            let Some(at) = left.get_mut(&of(row)).and_then(VecDeque::pop_front) else { continue };
            *found = others.get(at);
            taken.get_mut(at).into_iter().for_each(|taken| *taken = true);
        }
    }
    found
}

fn canonical(part: &impl Serialize) -> String {
    serde_json::to_string(part).unwrap_or_default()
}

/// The row with `(generated)` in place of what is not the same in its counterpart. The key of a row without one is kept,
/// because both runs changed the same rows.
fn marked(row: RowEffect<Value>, other: Option<&RowEffect<Value>>) -> RowEffect<Value> {
    let mark = |value: Value, other: Option<&Value>| if other == Some(&value) { value } else { GENERATED.into() };
    let part = |(name, part): (String, Value)| {
        let marked = match other {
            Some(other) => mark(part, other.key.as_ref().and_then(|key| key.get(&name))),
            None => part,
        };
        (name, marked)
    };
    let key = row.key.map(|key| key.into_iter().map(part).collect());
    let column = |(name, effect): (String, ColumnEffect<Value>)| {
        let effect = match (effect, other.and_then(|other| other.columns.get(&name))) {
            (ColumnEffect::Changed { before, after }, Some(ColumnEffect::Changed { before: old, after: new })) => {
                ColumnEffect::Changed { before: mark(before, Some(old)), after: mark(after, Some(new)) }
            }
            (ColumnEffect::Whole(value), Some(ColumnEffect::Whole(other))) => {
                ColumnEffect::Whole(mark(value, Some(other)))
            }
            _ => ColumnEffect::Whole(GENERATED.into()),
        };
        (name, effect)
    };
    let shown = row.columns.clone();
    let columns: Columns<ColumnEffect<Value>> = row.columns.into_iter().map(column).collect();
    let is_marked = |name: &&String| columns.get(*name) != shown.get(*name);
    let generated = columns.keys().filter(is_marked).cloned().collect();
    RowEffect { key, columns, generated, ..row }
}

/// The difference between the listed rows and these, in words.
pub(super) fn difference_of_rows(shown: Option<&Effects<Value>>, now: Option<&Effects<Value>>) -> Option<String> {
    let count = |effects: Option<&Effects<Value>>| effects.map_or(0, |effects| effects.count);
    let counts = (count(shown), count(now));
    if counts.0 != counts.1 {
        return Some(format!("it would change {} row(s) of tracked tables now, and {} were shown", counts.1, counts.0));
    }
    // Only the first rows are stored, and another execution may change the rows in another order. `agreed_rows` covers
    // all.
    if counts.0 > u64::from(MAX_SHOWN) {
        return None;
    }
    let mut left: Vec<_> = now.into_iter().flat_map(|now| &now.rows).collect();
    for row in shown.into_iter().flat_map(|shown| &shown.rows) {
        match left.iter().position(|other| is_same_change(row, other)) {
            Some(place) => left.swap_remove(place),
            None => return Some(format!("other rows or columns of {} would be changed", row.table)),
        };
    }
    None
}

/// The difference between the listed values of the updated rows and these, in words.
pub(super) fn difference_of_values(
    shown: Option<&Effects<Value>>,
    now: Option<&Effects<Value>>,
    is_compared: impl Fn(&RowEffect<Value>) -> bool,
) -> Option<String> {
    let now: Vec<_> = now.into_iter().flat_map(|now| &now.rows).collect();
    // Several rows of a table without a key may be changed in the same columns.
    let differs = |row: &&RowEffect<Value>| {
        let mut same = now.iter().filter(|other| is_same_change(row, other)).peekable();
        same.peek().is_some() && !same.any(|other| has_same_values(row, other))
    };
    let row = shown.into_iter().flat_map(|shown| &shown.rows).filter(|row| is_compared(row)).find(differs)?;
    Some(format!("the rows of {} are not as they were shown", row.table))
}

/// Whether two effects change the same row in the same way. A generated value equals any value.
fn is_same_change(shown: &RowEffect<Value>, now: &RowEffect<Value>) -> bool {
    let is_same_key = match (&shown.key, &now.key) {
        (Some(one), Some(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, part)| other.get(name).is_some_and(|now| fits(part, now)))
        }
        (one, other) => one == other,
    };
    let is_same_column = |(name, effect): (&String, &ColumnEffect<Value>)| match (effect, now.columns.get(name)) {
        (_, None) => false,
        // The values of an updated row are compared by `difference_of_values`.
        _ if shown.change == ChangeKind::Update => true,
        (ColumnEffect::Whole(shown), Some(ColumnEffect::Whole(now))) => fits(shown, now),
        (shown, Some(now)) => shown == now,
    };
    shown.table == now.table
        && shown.change == now.change
        && is_same_key
        && shown.columns.len() == now.columns.len()
        && shown.columns.iter().all(is_same_column)
}

/// Whether the columns of an updated row have the same values before and after. A generated value equals any value.
fn has_same_values(shown: &RowEffect<Value>, now: &RowEffect<Value>) -> bool {
    shown.columns.iter().all(|(name, effect)| match (effect, now.columns.get(name)) {
        (ColumnEffect::Changed { before, after }, Some(ColumnEffect::Changed { before: old, after: new })) => {
            shown.generated.contains(name) || (fits(before, old) && fits(after, new))
        }
        _ => true,
    })
}

/// A generated value equals any value.
fn fits(shown: &Value, now: &Value) -> bool {
    is_generated(shown) || shown == now
}

fn is_generated(value: &Value) -> bool {
    value == GENERATED
}
