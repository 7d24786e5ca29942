//! Differences between the rows before and after a write. Both the text for agents and users (`proposal_text`) and
//! the reviewer's terminal show them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use types::{ChangeKind, Effects};

/// A row, compared with the other image. A value that is not an object counts as a row without columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowChange<'a> {
    /// The row is equal in both images.
    Unchanged(&'a Value),
    /// The row before and after the write.
    Changed(&'a Value, &'a Value),
    /// The row is only in the image before the write.
    Removed(&'a Value),
    /// The row is only in the image after the write.
    Added(&'a Value),
}

/// A column of a changed row: its name, and its values before and after. `None` if the row lacks the column.
pub type ColumnPair<'a> = (&'a str, Option<&'a Value>, Option<&'a Value>);

/// The rows of two images, matched with each other.
#[derive(Debug)]
pub struct RowDiff<'a> {
    /// The columns that identify rows in both images; empty if no column does.
    pub key: Vec<String>,
    /// The rows before the write in their order, then the added rows.
    pub changes: Vec<RowChange<'a>>,
}

impl<'a> RowDiff<'a> {
    /// Compares two images. `row_key` has the columns of the table's key, or is empty. If the images lack these
    /// columns, the key is the column with distinct values that has most of its values in both images.
    #[must_use]
    pub fn new(before: &'a Value, after: &'a Value, row_key: &[String]) -> Self {
        let (before, after) = (image_rows(before), image_rows(after));
        let has_key = |row: &&Value| row_key.iter().all(|column| row.get(column).is_some());
        let key = if !row_key.is_empty() && before.iter().chain(&after).all(has_key) {
            row_key.to_vec()
        } else {
            guess_key(&before, &after).into_iter().collect()
        };
        let mut changes = match_rows(&key, &before, &after);
        let unmatched = |change: &RowChange<'_>| matches!(change, RowChange::Removed(_) | RowChange::Added(_));
        let left: Vec<usize> = (0..changes.len()).filter(|&at| changes.get(at).is_some_and(unmatched)).collect();
        if let &[removed, added] = left.as_slice()
            && (key.is_empty() || before.len() == 1 && after.len() == 1)
            && let (Some(&RowChange::Removed(old)), Some(&RowChange::Added(new))) =
                (changes.get(removed), changes.get(added))
        {
            changes.truncate(added);
            changes.splice(removed..=removed, [RowChange::Changed(old, new)]);
        }
        Self { key, changes }
    }

    /// The rows that are only in the image before the write.
    #[must_use]
    pub fn removed(&self) -> Vec<&'a Value> {
        let removed = |change: &RowChange<'a>| if let RowChange::Removed(row) = *change { Some(row) } else { None };
        self.changes.iter().filter_map(removed).collect()
    }

    /// The rows that are only in the image after the write.
    #[must_use]
    pub fn added(&self) -> Vec<&'a Value> {
        let added = |change: &RowChange<'a>| if let RowChange::Added(row) = *change { Some(row) } else { None };
        self.changes.iter().filter_map(added).collect()
    }

    /// Whether the effects, which are all listed and as many as the statements count, know better: the images lack a row
    /// that was not deleted or not inserted. A query that selects by a column that the write changes reads it once only.
    #[must_use]
    pub fn is_refuted(&self, effects: Option<&Effects<Value>>, counted: Option<u64>) -> bool {
        let (Some(effects), Some(counted)) = (effects, counted) else { return false };
        let own = effects.rows.iter().filter(|row| !row.by_trigger).count() as u64;
        let of_kind = |kind: ChangeKind| effects.rows.iter().filter(|row| row.change == kind).count();
        effects.count == effects.rows.len() as u64
            && own >= counted
            && (self.removed().len() > of_kind(ChangeKind::Delete) || self.added().len() > of_kind(ChangeKind::Insert))
    }

    /// The number of rows that are equal in both images.
    #[must_use]
    pub fn unchanged(&self) -> usize {
        self.changes.iter().filter(|change| matches!(change, RowChange::Unchanged(_))).count()
    }
}

/// The columns of a row. A value that is not an object is one column with an empty name.
pub fn columns(row: &Value) -> Box<dyn Iterator<Item = (&str, &Value)> + '_> {
    match row {
        Value::Object(object) => Box::new(object.iter().map(|(name, value)| (name.as_str(), value))),
        other => Box::new(std::iter::once(("", other))),
    }
}

/// The columns of a changed row: first those of the row before the write, in their order, then the others.
#[must_use]
pub fn column_pairs<'a>(before: &'a Value, after: &'a Value) -> Vec<ColumnPair<'a>> {
    let find = |row: &'a Value, wanted: &str| columns(row).find(|(name, _)| *name == wanted).map(|(_, value)| value);
    let old = columns(before).map(|(name, value)| (name, Some(value), find(after, name)));
    let new = columns(after).filter(|(name, _)| find(before, name).is_none());
    old.chain(new.map(|(name, value)| (name, None, Some(value)))).collect()
}

pub(crate) fn image_rows(image: &Value) -> Vec<&Value> {
    image.as_array().map_or_else(|| vec![image], |rows| rows.iter().collect())
}

/// Matches rows with equal keys or, without a key, equal rows.
fn match_rows<'a>(key: &[String], before: &[&'a Value], after: &[&'a Value]) -> Vec<RowChange<'a>> {
    let identity = |row: &Value| match key {
        [] => row.to_string(),
        key => key.iter().map(|column| row.get(column).cloned().unwrap_or_default()).collect::<Value>().to_string(),
    };
    let mut left: BTreeMap<String, Vec<&'a Value>> = BTreeMap::new();
    for &row in after.iter().rev() {
        left.entry(identity(row)).or_default().push(row);
    }
    let mut changes = Vec::new();
    for &row in before {
        changes.push(match left.get_mut(&identity(row)).and_then(Vec::pop) {
            Some(new) if new == row => RowChange::Unchanged(row),
            Some(new) => RowChange::Changed(row, new),
            None => RowChange::Removed(row),
        });
    }
    for &row in after {
        changes.extend(left.get_mut(&identity(row)).and_then(Vec::pop).map(RowChange::Added));
    }
    changes
}

fn guess_key(before: &[&Value], after: &[&Value]) -> Option<String> {
    let distinct = |rows: &[&Value], name: &str| {
        let values = rows.iter().map(|row| row.get(name).filter(|value| !value.is_null()).map(Value::to_string));
        values.collect::<Option<BTreeSet<String>>>().filter(|values| values.len() == rows.len())
    };
    let mut best: Option<(usize, &str)> = None;
    for name in before.first()?.as_object()?.keys() {
        let (Some(old), Some(new)) = (distinct(before, name), distinct(after, name)) else { continue };
        let shared = old.intersection(&new).count();
        if shared > best.map_or(0, |(most, _)| most) {
            best = Some((shared, name));
        }
    }
    best.map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_row_left_on_each_side_is_one_changed_row() {
        let (before, after) = (json!([{"a": 1}, {"a": 1}, {"a": 2}]), json!([{"a": 1}, {"a": 1}, {"a": 3}]));
        let diff = RowDiff::new(&before, &after, &[]);
        assert_eq!(diff.key, [""; 0]);
        assert_eq!((diff.unchanged(), diff.removed().len(), diff.added().len()), (2, 0, 0));
        assert_eq!(diff.changes.last(), Some(&RowChange::Changed(&json!({"a": 2}), &json!({"a": 3}))));
    }

    #[test]
    fn rows_with_another_key_of_the_table_are_other_rows() {
        let (before, after) =
            (json!([{"id": 1, "a": 1}, {"id": 2, "a": 1}]), json!([{"id": 2, "a": 1}, {"id": 3, "a": 1}]));
        let diff = RowDiff::new(&before, &after, &["id".to_owned()]);
        assert_eq!((diff.removed(), diff.added()), (vec![&before[0]], vec![&after[1]]));
        let (before, after) = (json!([{"id": 1}]), json!([{"id": 2}]));
        let diff = RowDiff::new(&before, &after, &["id".to_owned()]);
        assert_eq!(diff.changes, [RowChange::Changed(&before[0], &after[0])], "a single row has a new key");
    }
}
