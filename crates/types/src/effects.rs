//! The effects of a write, for people and agents: by table and key, with the columns before and after.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Cell, CellMasks, Columns, CorrelationId, Redaction};

/// The effects of a write: the number of changed rows, and the first of them in the order of the changes. With
/// [`Cell`] values they are what the ledger found; with [`Value`] values they have passed the viewer's masks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effects<V = Cell> {
    pub count: u64,
    /// The first of the changed rows.
    pub rows: Vec<RowEffect<V>>,
    /// The numbers of all changed rows by table and kind, the first ones first; empty if `rows` has every one of few rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_table: Vec<EffectCount>,
}

/// The number of rows of a table that a write changed in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectCount {
    pub table: String,
    /// Whether the rows were inserted, updated or deleted.
    pub change: ChangeKind,
    /// As in [`RowEffect`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_trigger: bool,
    pub count: u64,
}

/// A row of a tracked table that a write changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowEffect<V = Cell> {
    pub table: String,
    /// The key before the change; `None` for a table without a key.
    pub key: Option<Columns<V>>,
    /// Whether the row was inserted, updated or deleted.
    pub change: ChangeKind,
    /// Whether a trigger changed the row. False for an action of a foreign key, since PostgreSQL runs the triggers of its
    /// rows as those of the statement.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_trigger: bool,
    /// For an update, the columns that changed; for an insert or a delete, the columns that are not null. Values are
    /// in PostgreSQL's text format.
    pub columns: Columns<ColumnEffect<V>>,
    /// Whether the row was too long to show. `columns` is empty then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// Whether the write changed columns whose values are not recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_sensitive_changes: bool,
    /// The columns whose values the database generates anew each time the write runs, in a preview.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generated: Vec<String>,
    /// Whether the caller of the write could not read the row when it was tried: policies or missing privileges hide it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unseen: bool,
    /// A column with the first text of the row, by which people recognize it, unless the row was inserted. Agents do not
    /// get it: they may not be allowed to read the column.
    #[serde(skip, default = "no_label")]
    pub label: Option<(String, V)>,
}

const fn no_label<V>() -> Option<(String, V)> {
    None
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Insert,
    /// The row was deleted.
    Delete,
    /// The row was updated.
    #[serde(other)]
    Update,
}

/// The values of a column in a changed row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ColumnEffect<V = Cell> {
    /// The column of an updated row.
    Changed {
        /// The value before the update.
        before: V,
        /// The value after the update.
        after: V,
    },
    /// The value in a row that was inserted or deleted.
    Whole(V),
}

/// A change of one row, made by a recorded write or from outside countersign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowHistoryEntry<V = Cell> {
    /// The write that changed the row; `None` for a change from outside countersign.
    pub correlation_id: Option<CorrelationId>,
    /// The tool of the write; `None` for a change from outside.
    pub tool_name: Option<String>,
    /// The account of the write; `None` for a change from outside.
    pub account_id: Option<String>,
    /// The person or agent on whose behalf the write was made; `None` also if the call named nobody.
    pub actor: Option<String>,
    pub client_name: Option<String>,
    /// When the write ended; for a change from outside, when the row changed.
    pub changed_at: Option<String>,
    pub origin: Option<String>,
    #[serde(flatten)]
    pub effect: RowEffect<V>,
}

impl ChangeKind {
    /// The past participle for people, such as `added`.
    #[must_use]
    pub const fn past(self) -> &'static str {
        match self {
            Self::Insert => "added",
            Self::Delete => "removed",
            Self::Update => "changed",
        }
    }

    /// The verb for people, such as `insert`.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Delete => "delete",
            Self::Update => "update",
        }
    }
}

impl<V> ColumnEffect<V> {
    fn map<W>(self, mut value: impl FnMut(V) -> W) -> ColumnEffect<W> {
        match self {
            Self::Changed { before, after } => ColumnEffect::Changed { before: value(before), after: value(after) },
            Self::Whole(whole) => ColumnEffect::Whole(value(whole)),
        }
    }
}

impl<V> RowEffect<V> {
    /// Whether the write set the row to what it was.
    #[must_use]
    pub fn is_without_change(&self) -> bool {
        let is_empty = self.columns.is_empty() && !self.is_cut && !self.has_sensitive_changes;
        self.change == ChangeKind::Update && is_empty
    }

    /// Converts every value; `value` also receives the column name.
    pub fn map<W>(self, mut value: impl FnMut(&str, V) -> W) -> RowEffect<W> {
        let key = self.key.map(|key| {
            key.into_iter().map(|(name, part)| (value(&name, part), name)).map(|(part, name)| (name, part)).collect()
        });
        let columns = self.columns.into_iter().map(|(name, effect)| (effect.map(|it| value(&name, it)), name));
        let columns = columns.map(|(effect, name)| (name, effect)).collect();
        let label = self.label.map(|(name, text)| (value(&name, text), name)).map(|(text, name)| (name, text));
        RowEffect {
            table: self.table,
            key,
            change: self.change,
            by_trigger: self.by_trigger,
            columns,
            is_cut: self.is_cut,
            has_sensitive_changes: self.has_sensitive_changes,
            generated: self.generated,
            is_unseen: self.is_unseen,
            label,
        }
    }
}

impl<V> Effects<V> {
    /// Converts every value; `value` also receives the column name.
    pub fn map<W>(self, mut value: impl FnMut(&str, V) -> W) -> Effects<W> {
        let Self { count, rows, by_table } = self;
        Effects { count, rows: rows.into_iter().map(|row| row.map(&mut value)).collect(), by_table }
    }

    /// The effects for a caller with masks. Of an updated row only columns that differ are listed, so a masked column among
    /// them would tell whether a value that the caller gave is the one that is there.
    #[must_use]
    pub fn without_masked_updates(mut self, masks: &CellMasks<'_>) -> Self {
        for row in self.rows.iter_mut().filter(|row| row.change == ChangeKind::Update) {
            row.columns.retain(|name, _| !masks.masks_column(name));
            row.generated.retain(|name| !masks.masks_column(name));
        }
        self
    }

    /// The effects for the caller: rows that it cannot read are only counted.
    #[must_use]
    pub fn seen(mut self) -> Self {
        if self.rows.iter().all(|row| !row.is_unseen) {
            return self;
        }
        if self.by_table.is_empty() {
            for row in &self.rows {
                let of_row = |known: &&mut EffectCount| {
                    (&known.table, known.change, known.by_trigger) == (&row.table, row.change, row.by_trigger)
                };
                match self.by_table.iter_mut().find(of_row) {
                    Some(known) => known.count += 1,
                    None => self.by_table.push(EffectCount {
                        table: row.table.clone(),
                        change: row.change,
                        by_trigger: row.by_trigger,
                        count: 1,
                    }),
                }
            }
        }
        self.rows.retain(|row| !row.is_unseen);
        self
    }
}

impl Effects {
    /// The effects with the viewer's masks. Masked values may still occur in other texts.
    #[must_use]
    pub fn shown(mut self, masks: &mut CellMasks<'_>) -> Effects<Value> {
        for row in &mut self.rows {
            row.label.take_if(|(name, _)| masks.masks_column(name));
        }
        self.map(|column, cell| masks.cell(column, cell))
    }

    /// The unmasked effects, for the ledger to store. No other crate may call this; an architecture test checks it.
    #[must_use]
    pub fn stored(self) -> Effects<Value> {
        self.map(|_, cell| cell.stored().clone())
    }

    /// The effects with sensitive values replaced.
    #[must_use]
    pub fn redacted(self, redaction: &Redaction) -> Self {
        self.map(|_, cell| cell.redacted(redaction))
    }
}

impl Effects<Value> {
    /// The effects with sensitive values replaced everywhere.
    #[must_use]
    pub fn redacted(self, redaction: &Redaction) -> Self {
        self.map(|_, value| redaction.value(&value))
    }
}

impl RowHistoryEntry {
    /// The change with the viewer's masks, and with the masked texts replaced everywhere else.
    #[must_use]
    pub fn shown(self, mut masks: CellMasks<'_>) -> RowHistoryEntry<Value> {
        let Self { correlation_id, tool_name, account_id, actor, client_name, changed_at, origin, effect } = self;
        let effect = effect.map(|column, cell| masks.cell(column, cell));
        let redaction = masks.redaction();
        let text = |text: Option<String>| text.map(|text| redaction.whole_text(text));
        RowHistoryEntry {
            correlation_id,
            tool_name: text(tool_name),
            account_id: text(account_id),
            actor: text(actor),
            client_name: text(client_name),
            changed_at,
            origin: text(origin),
            effect: effect.map(|_, value| redaction.value(&value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_change_is_kept_whole_on_the_wire() {
        let text = include_str!("../../../tests/golden/review/effects.json");
        let effects: Effects = serde_json::from_str(text).unwrap();
        assert_eq!(json!(effects.stored()).to_string(), serde_json::from_str::<Value>(text).unwrap().to_string());
    }
}
