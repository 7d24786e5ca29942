//! What a write would come to: shown to whoever is asked, and compared with what it does come to.
//!
//! The write is tried twice, in two transactions that see the same snapshot and are rolled back. What differs between the
//! two is made anew by the database each time (a number of a sequence, the time, a random value): such values cannot be
//! promised, so they are shown as `(generated)` and named, and everything else must be the same again when the write is
//! carried out.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use types::{ErrorCode, Failure, Rollback};

use crate::canonical_json;
use crate::definitions::Definition;
use crate::effects::MOST_SHOWN;
use crate::executor::WriteOutput;
use crate::preview::Trial;

/// What a preview shows in place of a value that the database makes anew each time.
const GENERATED: &str = "(generated)";

/// What a write would come to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Preview {
    /// How many rows it would touch; `None` of a write that was not tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_affected: Option<u64>,
    /// What it would be answered with; `(generated)` in place of the values of [`Preview::generated`].
    pub result: Value,
    /// The rows before it, if the tool looks at them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The same rows after it; those that would be gone are absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// Every row of tracked tables that it would change, by table and key, with `(generated)` in place of what the database makes anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<Value>,
    /// The columns that tell the rows of `before` and `after` apart; empty if that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub row_key: Vec<String>,
    /// What the database makes when the write is carried out: `result.id`, `after.created_at`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generated: Vec<String>,
    /// Whether and how it could be undone; without parameters, which only the write itself has.
    pub rollback: Rollback,
    /// What it depends on: when one of these has changed, the write is not carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub definitions: Vec<Definition>,
    /// What a person should look at before they agree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The parts that are compared, by the names that [`Preview::generated`] uses.
const PARTS: [&str; 3] = ["result", "before", "after"];

impl Preview {
    /// Of a write that was not tried, but looked at.
    #[must_use]
    pub(crate) fn without_run(trial: Trial) -> Self {
        Self { rows_affected: None, ..Self::of(trial) }
    }

    fn of(Trial { work, effects, definitions }: Trial) -> Self {
        let rollback = Rollback { undo_params: None, undo_calls: Vec::new(), ..work.rollback };
        Self {
            rows_affected: Some(work.rows_affected),
            result: work.data,
            before: work.before,
            after: work.after,
            effects,
            row_key: Vec::new(),
            generated: Vec::new(),
            rollback,
            definitions,
            warnings: Vec::new(),
        }
    }

    /// Of a write that was tried twice; `None` if the two differ in more than what the database makes anew.
    #[must_use]
    pub(crate) fn from_two_runs(trial: Trial, second: &Trial) -> Option<Self> {
        let effects = trial.effects.as_ref().zip(second.effects.as_ref());
        let effects = effects.map(|(first, second)| without_generated(first, second));
        let (first, second) = (&trial.work, &second.work);
        if first.rows_affected != second.rows_affected || !same(part(first, "before"), part(second, "before"), &[]) {
            return None;
        }
        let mut generated = Vec::new();
        for name in PARTS {
            generated.extend(
                differing(part(first, name), part(second, name))?.into_iter().map(|key| format!("{name}.{key}")),
            );
        }
        let mut preview = Self { generated, effects, ..Self::of(trial) };
        for name in PARTS {
            let keys = preview.generated_in(name);
            let blanked = |value: &mut Value| rows_mut(value).into_iter().for_each(|row| blank(row, &keys));
            match name {
                "result" => blanked(&mut preview.result),
                "before" => preview.before.iter_mut().for_each(blanked),
                _ => preview.after.iter_mut().for_each(blanked),
            }
        }
        Some(preview)
    }

    /// Why this work is not what was shown; `None` if it is.
    #[must_use]
    pub fn difference(&self, work: &WriteOutput) -> Option<String> {
        let shown = self.rows_affected.unwrap_or_default();
        if shown != work.rows_affected {
            return Some(format!("it would touch {} row(s) now, and {shown} were shown", work.rows_affected));
        }
        let shown = [Some(&self.result), self.before.as_ref(), self.after.as_ref()];
        let words =
            ["its result would be another one", "the rows have changed", "the rows would be left in another state"];
        // What was there before says most.
        [1, 0, 2].into_iter().find_map(|index| {
            let (name, shown, words) = (PARTS.get(index)?, *shown.get(index)?, words.get(index)?);
            let is_same = same(shown, part(work, name), &self.generated_in(name));
            (!is_same).then(|| (*words).to_owned())
        })
    }

    /// Why these are not the effects that were shown; `None` if they are. The same rows have to be changed in the same columns, and what is
    /// inserted or deleted has to be the same. What an update finds in a row that the tool does not show may be another value by now,
    /// such as a total that a trigger keeps.
    #[must_use]
    pub(crate) fn difference_of_effects(&self, effects: Option<&Value>) -> Option<String> {
        let count =
            |effects: Option<&Value>| effects.and_then(|effects| effects.get("count")?.as_u64()).unwrap_or_default();
        let rows = |effects: Option<&Value>| {
            let rows = effects.and_then(|effects| effects.get("rows")?.as_array());
            rows.into_iter().flatten().cloned().collect::<Vec<_>>()
        };
        let (shown, now) = (count(self.effects.as_ref()), count(effects));
        if shown != now {
            return Some(format!("it would change {now} row(s) of tracked tables now, and {shown} were shown"));
        }
        // Beyond the most that are shown, others may be the first ones now.
        if shown > u64::from(MOST_SHOWN) {
            return None;
        }
        let mut left = rows(effects);
        for row in rows(self.effects.as_ref()) {
            match left.iter().position(|other| is_same_change(&row, other)) {
                Some(place) => left.swap_remove(place),
                None => {
                    let table = row.get("table").and_then(Value::as_str).unwrap_or_default();
                    return Some(format!("other rows or columns of {table} would be changed"));
                }
            };
        }
        None
    }

    fn generated_in(&self, part: &str) -> Vec<String> {
        let key = |name: &String| name.split_once('.').filter(|(of, _)| *of == part).map(|(_, key)| key.to_owned());
        self.generated.iter().filter_map(key).collect()
    }
}

/// Whether two effects change the same row in the same way. What the database makes anew is the same as anything.
fn is_same_change(shown: &Value, now: &Value) -> bool {
    fn fits(shown: &Value, now: &Value) -> bool {
        match (shown, now) {
            (Value::String(mark), _) if mark == GENERATED => true,
            (Value::Object(one), Value::Object(other)) => {
                one.len() == other.len()
                    && one.iter().all(|(name, value)| other.get(name).is_some_and(|now| fits(value, now)))
            }
            (one, other) => one == other,
        }
    }
    let columns = |row: &Value| row.get("columns").and_then(Value::as_object).cloned().unwrap_or_default();
    let (one, other) = (columns(shown), columns(now));
    ["table", "change", "key"]
        .iter()
        .all(|name| fits(shown.get(name).unwrap_or(&Value::Null), now.get(name).unwrap_or(&Value::Null)))
        && match shown.get("change").and_then(Value::as_str) {
            Some("update") => one.len() == other.len() && one.keys().all(|name| other.contains_key(name)),
            _ => fits(&Value::Object(one), &Value::Object(other)),
        }
}

/// The first value with a mark wherever the second one has another.
fn without_generated(first: &Value, second: &Value) -> Value {
    match (first, second) {
        (Value::Object(one), Value::Object(other)) => {
            let value = |(key, value): (&String, &Value)| {
                (key.clone(), without_generated(value, other.get(key).unwrap_or(&Value::Null)))
            };
            one.iter().map(value).collect()
        }
        (Value::Array(one), Value::Array(other)) => {
            let others = other.iter().chain(std::iter::repeat(&Value::Null));
            one.iter().zip(others).map(|(value, other)| without_generated(value, other)).collect()
        }
        (one, other) if one == other => one.clone(),
        _ => GENERATED.into(),
    }
}

/// What is told when the two tries never agree.
pub(super) fn concurrent_changes() -> Failure {
    let message =
        "the rows of this write are being changed by others right now, so it cannot be shown; nothing was written";
    let failure = Failure { retryable: true, ..Failure::new(ErrorCode::ProposalStale, message) };
    failure.hint("Nothing was proposed: call the tool again.")
}

/// What is told when other previews have used up the time of this one.
pub(super) fn too_many() -> Failure {
    let message = "all sessions for previews were in use until the deadline of the call; nothing was written";
    let failure = Failure::new(ErrorCode::DatabaseUnavailable, message);
    failure.hint("Nothing was proposed: call the tool again. The operator can raise write_sessions.")
}

fn part<'a>(work: &'a WriteOutput, name: &str) -> Option<&'a Value> {
    match name {
        "result" => Some(&work.data),
        "before" => work.before.as_ref(),
        _ => work.after.as_ref(),
    }
}

/// The rows in it: those of a list, or of `{"rows": [..], "row_count": n}` and nothing else, else the value itself.
fn rows(value: &Value) -> Vec<&Value> {
    match value.pointer(rows_place(value)) {
        Some(Value::Array(rows)) => rows.iter().collect(),
        _ => vec![value],
    }
}

fn rows_place(value: &Value) -> &'static str {
    let is_list = value.as_object().is_some_and(|object| {
        object.len() == 2 && object.contains_key("row_count") && object.get("rows").is_some_and(Value::is_array)
    });
    if is_list { "/rows" } else { "" }
}

fn rows_mut(value: &mut Value) -> Vec<&mut Map<String, Value>> {
    let place = rows_place(value);
    match value.pointer_mut(place) {
        Some(Value::Array(rows)) => rows.iter_mut().filter_map(Value::as_object_mut).collect(),
        Some(single) => single.as_object_mut().into_iter().collect(),
        None => Vec::new(),
    }
}

fn blank(row: &mut Map<String, Value>, keys: &[String]) {
    for key in keys {
        if let Some(value) = row.get_mut(key) {
            *value = GENERATED.into();
        }
    }
}

/// The same rows, in any order, apart from these keys.
fn same(one: Option<&Value>, other: Option<&Value>, apart_from: &[String]) -> bool {
    let sorted = |value: Option<&Value>| {
        value.map(|value| {
            let mut rows: Vec<String> = rows(value)
                .into_iter()
                .map(|row| {
                    let mut row = row.clone();
                    row.as_object_mut().into_iter().for_each(|row| blank(row, apart_from));
                    canonical_json(&row)
                })
                .collect();
            rows.sort_unstable();
            rows
        })
    };
    sorted(one) == sorted(other)
}

/// The keys whose values differ between two results of the same write; `None` if it is not values of keys that differ.
fn differing(one: Option<&Value>, other: Option<&Value>) -> Option<Vec<String>> {
    let (one, other) = (one.map(rows).unwrap_or_default(), other.map(rows).unwrap_or_default());
    if one.len() != other.len() {
        return None;
    }
    let keys: BTreeSet<&String> =
        one.iter().chain(&other).filter_map(|row| row.as_object()).flat_map(|row| row.keys()).collect();
    let values = |rows: &[&Value], key: &str| {
        let mut values: Vec<Option<String>> = rows.iter().map(|row| row.get(key).map(canonical_json)).collect();
        values.sort_unstable();
        values
    };
    let keys: Vec<String> = keys.into_iter().filter(|key| values(&one, key) != values(&other, key)).cloned().collect();
    let list = |rows: Vec<&Value>| Value::Array(rows.into_iter().cloned().collect());
    same(Some(&list(one)), Some(&list(other)), &keys).then_some(keys)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn work(data: Value, before: Value, after: Value) -> WriteOutput {
        WriteOutput {
            data,
            rows_affected: 1,
            before: Some(before),
            after: Some(after),
            rollback: Rollback::irreversible("no"),
        }
    }

    fn from_two_runs(first: WriteOutput, second: &WriteOutput) -> Option<Preview> {
        let trial = |work| Trial { work, effects: None, definitions: Vec::new() };
        Preview::from_two_runs(trial(first), &trial(second.clone()))
    }

    #[test]
    fn what_the_database_makes_anew_is_named_and_not_compared() {
        let first = work(json!({"id": 7, "name": "a"}), json!([]), json!([{"id": 7, "name": "a", "at": "09:00"}]));
        let second = work(json!({"id": 8, "name": "a"}), json!([]), json!([{"id": 8, "name": "a", "at": "09:01"}]));
        let preview = from_two_runs(first, &second).unwrap();
        assert_eq!(preview.generated, ["result.id", "after.at", "after.id"]);
        assert_eq!(preview.result, json!({"id": "(generated)", "name": "a"}));
        assert_eq!(preview.after, Some(json!([{"id": "(generated)", "name": "a", "at": "(generated)"}])));
        let third = |name: &str| {
            work(json!({"id": 9, "name": name}), json!([]), json!([{"id": 9, "name": name, "at": "09:02"}]))
        };
        assert_eq!(preview.difference(&third("a")), None);
        assert_eq!(preview.difference(&third("b")).as_deref(), Some("its result would be another one"));
    }

    #[test]
    fn rows_in_another_order_are_the_same_and_values_that_changed_rows_are_not() {
        let rows = |first: &str, second: &str| json!([{"id": 1, "name": first}, {"id": 2, "name": second}]);
        let one = work(json!({"rows": rows("a", "b"), "row_count": 2}), rows("a", "b"), json!([]));
        let preview = from_two_runs(one.clone(), &one).unwrap();
        let turned = json!([{"id": 2, "name": "b"}, {"id": 1, "name": "a"}]);
        let other = work(json!({"rows": turned.clone(), "row_count": 2}), turned, json!([]));
        assert_eq!(preview.difference(&other), None);
        let transitioned = work(one.data.clone(), rows("b", "a"), json!([]));
        assert_eq!(preview.difference(&transitioned).as_deref(), Some("the rows have changed"));
    }

    #[test]
    fn a_row_with_a_column_named_rows_is_a_row_and_every_column_of_it_counts() {
        let one = |price: u32| work(json!({"rows": [1, 2], "price": price}), json!([]), json!([]));
        let preview = from_two_runs(one(5), &one(5)).unwrap();
        assert_eq!(preview.difference(&one(5)), None);
        assert!(preview.difference(&one(500)).is_some());
    }

    #[test]
    fn rows_that_change_between_the_two_tries_are_no_preview() {
        let one = work(json!({}), json!([{"id": 1, "name": "a"}]), json!([]));
        assert_eq!(from_two_runs(one.clone(), &work(json!({}), json!([{"id": 1, "name": "b"}]), json!([]))), None);
        assert_eq!(from_two_runs(one.clone(), &work(json!({}), json!([{"id": 1, "name": "a"}]), json!([{}]))), None);
        assert_eq!(from_two_runs(one.clone(), &WriteOutput { rows_affected: 2, ..one }), None);
    }

    #[test]
    fn a_preview_that_was_stored_is_the_same_preview() {
        let exact: Value = serde_json::from_str(r#"{"n": 1.10, "big": 12345678901234567890123}"#).unwrap();
        let one = work(exact, json!([{"id": 1}]), json!([]));
        let preview = from_two_runs(one.clone(), &one).unwrap();
        let stored: Preview = serde_json::from_str(&serde_json::to_string(&preview).unwrap()).unwrap();
        assert_eq!(stored, preview);
        assert_eq!(stored.difference(&one), None);
    }
}
