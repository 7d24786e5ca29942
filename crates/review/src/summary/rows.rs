//! The rows of a preview. The tool reads rows before and after the write, and the ledger knows the changed rows of
//! tracked tables. A row that both have becomes one row.

use std::collections::HashMap;

use serde_json::Value;
use types::{ChangeKind, ColumnEffect, Effects, RowEffect, visible};

use super::{ChangedBy, Parts, RowGroup, RowOrigin, Summary, json_paths};
use crate::row_diff::{RowChange, RowDiff, column_pairs, columns, image_rows};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChangedRow {
    /// The columns that identify the row; empty if none does.
    pub key: Vec<(String, Value)>,
    /// The text by which people recognize the row, in quotes, for beside the key.
    pub label: Option<String>,
    /// The columns of an updated row that change; all columns of another row, except the key.
    pub columns: Vec<ChangedColumn>,
    /// The columns of an updated row that the tool reads and that stay as they are.
    pub same: Vec<(String, Value)>,
    /// Those of `columns` whose values the database generates when the write runs.
    pub generated: Vec<String>,
    /// Those of `columns` of which the reader sees masks.
    pub masked: Vec<String>,
    /// Whether the ledger knows every column that changes. Of other rows, only the columns that the tool reads are known.
    pub is_recorded: bool,
    /// Whether the row was too long to be recorded with its columns.
    pub is_cut: bool,
    /// Whether columns change whose values are not recorded.
    pub has_sensitive_changes: bool,
    /// Who changed the row since it was shown.
    pub changed_by: Option<ChangedBy>,
}

/// A column of a row: its values before and after the write. `None` if there is no value.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedColumn {
    /// The name; of a part of a JSON document with the path of its keys, `settings.mail.daily`.
    pub name: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

impl ChangedColumn {
    /// The parts of a JSON document that change, or the column.
    fn parts(self) -> Vec<Self> {
        let parts = self.before.as_ref().zip(self.after.as_ref());
        match parts.and_then(|(before, after)| json_paths::parts(&self.name, before, after)) {
            Some(parts) => parts.into_iter().map(|(name, before, after)| Self { name, before, after }).collect(),
            None => vec![self],
        }
    }
}

/// A row that the tool reads.
#[derive(Clone, Copy)]
struct ReadRow<'a> {
    before: Option<&'a Value>,
    after: Option<&'a Value>,
    /// The same with the masks of the reader.
    shown: [Option<&'a Value>; 2],
}

/// An effect, and the same with the masks of the reader.
#[derive(Clone, Copy)]
struct ListedEffect<'a> {
    whole: &'a RowEffect<Value>,
    shown: &'a RowEffect<Value>,
}

/// The rows of a kind with these values in the columns of a key.
type Places = HashMap<(ChangeKind, Vec<String>), Vec<usize>>;

/// The effect of the same row, for each row that the tool reads.
type Matches<'a> = HashMap<usize, ListedEffect<'a>>;

/// Rows are compared as they are and shown with the masks of the reader, since different values may have the same mask.
/// `counted` is the number of rows that the statements of the write say they have changed.
pub(super) fn summary([whole, shown]: [Parts<'_>; 2], counted: Option<u64>) -> Summary {
    let none = Value::Array(Vec::new());
    let [before, after] = whole.images(&none);
    let diff = RowDiff::new(before, after, whole.row_key);
    let images = whole.images(&none).into_iter().zip(shown.images(&none));
    let shown_rows: HashMap<*const Value, &Value> = images
        .flat_map(|(whole, shown)| image_rows(whole).into_iter().map(std::ptr::from_ref).zip(image_rows(shown)))
        .collect();
    let read: Vec<ReadRow<'_>> = diff.changes.iter().map(|change| ReadRow::new(*change, &shown_rows)).collect();
    let generated: Vec<&str> = whole.generated.iter().filter_map(|name| name.strip_prefix("after.")).collect();
    let row = |at: usize, effect: Option<ListedEffect<'_>>| {
        read.get(at).map(|read| (read.kind(), read.changed_row(&diff.key, effect, &generated)))
    };
    let mut found = Summary::default();
    let all = shown.effects;
    // A caller does not see rows that it could not read; people see them.
    let is_seen_whole = whole.rows().count() == shown.rows().count();
    let effects: Vec<ListedEffect<'_>> = whole
        .rows()
        .filter(|row| is_seen_whole || !row.is_unseen)
        .zip(shown.rows())
        .map(|(whole, shown)| ListedEffect { whole, shown })
        .filter(|row| !row.whole.is_without_change())
        .collect();
    let matched = all.and_then(|all| matching_table(&read, &effects, all));
    let (table, matches) = matched.map_or((None, Matches::new()), |(table, matches)| (Some(table), matches));
    let origin = if table.is_none() && !effects.is_empty() { RowOrigin::Tool } else { RowOrigin::Statement };
    // Of rows that the tool reads only before or only after the write, their effects say what becomes of them.
    let is_read = origin == RowOrigin::Statement
        || whole.before.is_some() == whole.after.is_some() && !diff.is_refuted(whole.effects, counted);
    for (change, one) in (0..if is_read { read.len() } else { 0 }).filter_map(|at| row(at, matches.get(&at).copied())) {
        if change == ChangeKind::Update && one.is_without_change() {
            found.unchanged += 1;
        } else {
            found.add((table, origin, change), one);
        }
    }
    for listed in &effects {
        let effect = listed.whole;
        if effect.by_trigger || Some(effect.table.as_str()) != table {
            found.add((Some(&effect.table), origin_of(effect.by_trigger), effect.change), listed.row());
        }
    }
    for one in all.into_iter().flat_map(|all| &all.by_table) {
        found.count(&one.table, origin_of(one.by_trigger), one.change, one.count);
    }
    found.mark_further(table, counted);
    found.groups.sort_by_key(|group| group.origin);
    found
}

const fn origin_of(by_trigger: bool) -> RowOrigin {
    if by_trigger { RowOrigin::Further } else { RowOrigin::Statement }
}

impl Summary {
    fn add(&mut self, place: (Option<&str>, RowOrigin, ChangeKind), mut row: ChangedRow) {
        row.columns = row.columns.into_iter().flat_map(ChangedColumn::parts).collect();
        self.change(place, |group| {
            group.rows.push(row);
            group.count = group.count.max(group.rows.len() as u64);
        });
    }

    /// Takes the number of all rows of a group.
    pub(super) fn count(&mut self, table: &str, origin: RowOrigin, change: ChangeKind, count: u64) {
        self.change((Some(table), origin, change), |group| group.count = group.count.max(count));
    }

    /// Marks the rows that are more than the statements count, if it is clear which of the tables theirs is.
    fn mark_further(&mut self, table: Option<&str>, counted: Option<u64>) {
        let Some(counted) = counted else { return };
        let own = || self.groups.iter().filter(|group| group.origin == RowOrigin::Statement);
        let read: u64 =
            own().filter(|group| table.is_some() && group.table.as_deref() == table).map(|one| one.count).sum();
        let total: u64 = own().map(|group| group.count).sum();
        let mut fitting = own().filter(|group| group.count == counted).map(|group| group.table.clone());
        let theirs = match (fitting.next(), fitting.next()) {
            _ if total <= counted => return,
            _ if read == counted => table.map(str::to_owned),
            (Some(only), None) => only,
            _ => return,
        };
        let others =
            self.groups.iter_mut().filter(|group| group.origin == RowOrigin::Statement && group.table != theirs);
        others.for_each(|group| group.origin = RowOrigin::Further);
    }

    /// Changes the group of this place; a new one, if there is none.
    fn change(
        &mut self,
        (table, origin, change): (Option<&str>, RowOrigin, ChangeKind),
        edit: impl FnOnce(&mut RowGroup),
    ) {
        let place = (table, origin, change);
        let is_it = |group: &&mut RowGroup| (group.table.as_deref(), group.origin, group.change) == place;
        if let Some(group) = self.groups.iter_mut().find(is_it) {
            return edit(group);
        }
        let mut group = RowGroup { table: table.map(str::to_owned), origin, change, count: 0, rows: Vec::new() };
        edit(&mut group);
        self.groups.push(group);
    }
}

/// The only table whose changed rows are the rows that the tool reads, by key and kind. Every listed row of it must be
/// among those that the tool reads and, if all rows are listed, the other way round.
fn matching_table<'a>(
    read: &[ReadRow<'_>],
    effects: &[ListedEffect<'a>],
    all: &Effects<Value>,
) -> Option<(&'a str, Matches<'a>)> {
    let own: Vec<ListedEffect<'_>> = effects.iter().copied().filter(|effect| !effect.whole.by_trigger).collect();
    let mut tables: Vec<&str> = own.iter().map(|effect| effect.whole.table.as_str()).collect();
    tables.sort_unstable();
    tables.dedup();
    let changed = read.iter().filter(|row| row.before != row.after).count();
    let mut found = None;
    for table in tables {
        let Some(matches) = matches_of(read, own.iter().copied().filter(|effect| effect.whole.table == table)) else {
            continue;
        };
        let covered = matches.keys().filter_map(|at| read.get(*at)).filter(|row| row.before != row.after).count();
        if covered < changed && all.count <= all.rows.len() as u64 {
            continue;
        }
        if found.replace((table, matches)).is_some() {
            return None;
        }
    }
    found
}

/// The rows that the tool reads, by the columns of the key that it reads. `None` if an effect has no row among them, or
/// if these columns do not tell the rows apart.
fn matches_of<'a>(read: &[ReadRow<'_>], effects: impl Iterator<Item = ListedEffect<'a>>) -> Option<Matches<'a>> {
    let mut effects = effects.peekable();
    let key = effects.peek()?.whole.key.as_ref()?;
    let is_read = |name: &&String| read.iter().all(|row| row.any().is_some_and(|row| row.get(*name).is_some()));
    let names: Vec<&String> = key.keys().filter(is_read).collect();
    let is_whole = names.len() == key.len();
    let mut places = Places::new();
    for (at, row) in read.iter().enumerate().rev() {
        let values = names.iter().map(|name| row.any()?.get(*name).map(text)).collect::<Option<Vec<String>>>()?;
        places.entry((row.kind(), values)).or_default().push(at);
    }
    if names.is_empty() || !is_whole && places.values().any(|rows| rows.len() > 1) {
        return None;
    }
    let mut matches = Matches::new();
    for effect in effects {
        let key = effect.whole.key.as_ref()?;
        let values = names.iter().map(|name| key.get(*name).map(text)).collect::<Option<Vec<String>>>()?;
        let at = places.get_mut(&(effect.whole.change, values)).and_then(Vec::pop)?;
        matches.insert(at, effect);
    }
    Some(matches)
}

/// A value in the text form in which PostgreSQL compares best with JSON.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl<'a> ReadRow<'a> {
    fn new(change: RowChange<'a>, shown: &HashMap<*const Value, &'a Value>) -> Self {
        let (before, after) = match change {
            RowChange::Unchanged(row) => (Some(row), Some(row)),
            RowChange::Changed(before, after) => (Some(before), Some(after)),
            RowChange::Removed(row) => (Some(row), None),
            RowChange::Added(row) => (None, Some(row)),
        };
        let shown = [before, after].map(|row| shown.get(&std::ptr::from_ref(row?)).copied());
        Self { before, after, shown }
    }

    fn any(self) -> Option<&'a Value> {
        self.before.or(self.after)
    }

    fn kind(self) -> ChangeKind {
        match (self.before, self.after) {
            (None, _) => ChangeKind::Insert,
            (_, None) => ChangeKind::Delete,
            _ => ChangeKind::Update,
        }
    }

    /// The row with the columns of its effect that the tool does not read.
    fn changed_row(self, key: &[String], effect: Option<ListedEffect<'_>>, generated: &[&str]) -> ChangedRow {
        let pairs = match (self.before, self.after) {
            (Some(before), Some(after)) => column_pairs(before, after),
            (Some(row), None) => columns(row).map(|(name, value)| (name, Some(value), None)).collect(),
            (None, Some(row)) => columns(row).map(|(name, value)| (name, None, Some(value))).collect(),
            (None, None) => Vec::new(),
        };
        let is_key = |name: &str| match effect.and_then(|effect| effect.whole.key.as_ref()) {
            Some(key) => key.contains_key(name),
            None => key.iter().any(|column| column == name),
        };
        let mut row = ChangedRow::default();
        for &(name, before, after) in &pairs {
            let shown = self.shown.map(|row| columns(row?).find(|(shown, _)| *shown == name).map(|(_, value)| value));
            let [old, new] = shown.map(Option::<&Value>::cloned);
            let value = old.clone().or_else(|| new.clone()).unwrap_or_default();
            if is_key(name) {
                row.key.push((name.to_owned(), value));
                if before.is_none() || after.is_none() || before == after {
                    continue;
                }
            } else if before == after {
                row.same.push((name.to_owned(), value));
                continue;
            } else if generated.contains(&name) {
                row.generated.push(name.to_owned());
            }
            row.masked.extend(((before, after) != shown.into()).then(|| name.to_owned()));
            row.columns.push(ChangedColumn { name: name.to_owned(), before: old, after: new });
        }
        if let Some(effect) = effect {
            let more = effect.row();
            let is_unread = |name: &str| pairs.iter().all(|(read, _, _)| *read != name);
            row.columns.extend(more.columns.into_iter().filter(|column| is_unread(&column.name)));
            row.generated.extend(more.generated.into_iter().filter(|name| is_unread(name)));
            row.masked.extend(more.masked.into_iter().filter(|name| is_unread(name)));
            (row.key, row.label, row.is_recorded) = (more.key, more.label, more.is_recorded);
            (row.is_cut, row.has_sensitive_changes) = (more.is_cut, more.has_sensitive_changes);
        }
        row
    }
}

impl ListedEffect<'_> {
    fn row(self) -> ChangedRow {
        let is_masked = |name: &&String| self.whole.columns.get(*name) != self.shown.columns.get(*name);
        ChangedRow { masked: self.shown.columns.keys().filter(is_masked).cloned().collect(), ..self.shown.into() }
    }
}

impl ChangedRow {
    fn is_without_change(&self) -> bool {
        self.columns.is_empty() && !self.is_cut && !self.has_sensitive_changes
    }

    /// The key, as a face writes it, with the label beside it: `id = 7 "Sunset"`.
    #[must_use]
    pub fn labelled(&self, key: String) -> String {
        self.label.iter().fold(key, |key, label| format!("{key} {label}"))
    }
}

impl From<&RowEffect<Value>> for ChangedRow {
    fn from(effect: &RowEffect<Value>) -> Self {
        let is_key = |name: &str| effect.key.as_ref().is_some_and(|key| key.contains_key(name));
        let column = |(name, values): (&String, &ColumnEffect<Value>)| {
            let (before, after) = match (values, effect.change) {
                (ColumnEffect::Changed { before, after }, _) => (Some(before.clone()), Some(after.clone())),
                (ColumnEffect::Whole(_), _) if is_key(name) => return None,
                (ColumnEffect::Whole(value), ChangeKind::Delete) => (Some(value.clone()), None),
                (ColumnEffect::Whole(value), _) => (None, Some(value.clone())),
            };
            Some(ChangedColumn { name: name.clone(), before, after })
        };
        Self {
            label: effect.label.as_ref().map(|(_, label)| visible(&label.to_string())),
            key: effect.key.iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect(),
            columns: effect.columns.iter().filter_map(column).collect(),
            same: Vec::new(),
            generated: effect.generated.clone(),
            masked: Vec::new(),
            is_recorded: !effect.is_cut,
            is_cut: effect.is_cut,
            has_sensitive_changes: effect.has_sensitive_changes,
            changed_by: None,
        }
    }
}
