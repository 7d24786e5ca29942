//! The effects of a write, for people and agents: by table and key, with the columns before and after.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Cell, CellMasks, Columns, CorrelationId, Redaction};

/// The effects of a write: the number of rows that it changed, and the first of them in the order in which they were changed. With a
/// [`Cell`] for each value they are what the ledger found; with a [`Value`] they have passed the viewer's masks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effects<V = Cell> {
    /// The number of rows.
    pub count: u64,
    /// The first of them.
    pub rows: Vec<RowEffect<V>>,
}

/// A row of a tracked table that a write changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowEffect<V = Cell> {
    /// Its table.
    pub table: String,
    /// Its key, as it was before; a table without a key has none.
    pub key: Option<Columns<V>>,
    /// What happened to it.
    pub change: ChangeKind,
    /// Of an update the columns that changed; of an insert or a delete those that are not null. Values are PostgreSQL's text.
    pub columns: Columns<ColumnEffect<V>>,
    /// Whether the row is too long, so that `columns` is empty.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// Whether columns changed whose values are not recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_sensitive_changes: bool,
}

/// What happened to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It was added.
    Insert,
    /// It was removed.
    Delete,
    /// It was changed.
    #[serde(other)]
    Update,
}

/// A column of a changed row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ColumnEffect<V = Cell> {
    /// The values of an update.
    Changed {
        /// The value before it.
        before: V,
        /// The value after it.
        after: V,
    },
    /// The value of a row that was added or removed.
    Whole(V),
}

/// A change of one row: of a recorded write, or from outside countersign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowHistoryEntry<V = Cell> {
    /// The write.
    pub correlation_id: Option<CorrelationId>,
    /// Its tool.
    pub tool_name: Option<String>,
    /// Its account.
    pub account_id: Option<String>,
    /// On behalf of this person.
    pub actor: Option<String>,
    /// Its client.
    pub client_name: Option<String>,
    /// When the row changed.
    pub changed_at: Option<String>,
    /// What changed it, if no write did.
    pub origin: Option<String>,
    /// The change.
    #[serde(flatten)]
    pub effect: RowEffect<V>,
}

impl ChangeKind {
    /// What happened to the row, for people: `added`.
    #[must_use]
    pub const fn past(self) -> &'static str {
        match self {
            Self::Insert => "added",
            Self::Delete => "removed",
            Self::Update => "changed",
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
    /// The same with other values; `value` is given the name of the column.
    pub fn map<W>(self, mut value: impl FnMut(&str, V) -> W) -> RowEffect<W> {
        let Self { table, key, change, columns, is_cut, has_sensitive_changes } = self;
        let key = key.map(|key| {
            key.into_iter().map(|(name, part)| (value(&name, part), name)).map(|(part, name)| (name, part)).collect()
        });
        let columns = columns.into_iter().map(|(name, effect)| (effect.map(|it| value(&name, it)), name));
        let columns = columns.map(|(effect, name)| (name, effect)).collect();
        RowEffect { table, key, change, columns, is_cut, has_sensitive_changes }
    }
}

impl<V> Effects<V> {
    /// The same with other values; `value` is given the name of the column.
    pub fn map<W>(self, mut value: impl FnMut(&str, V) -> W) -> Effects<W> {
        Effects { count: self.count, rows: self.rows.into_iter().map(|row| row.map(&mut value)).collect() }
    }
}

impl Effects {
    /// The effects with the viewer's masks. The texts that were masked may still occur elsewhere in them.
    #[must_use]
    pub fn shown(self, masks: &mut CellMasks<'_>) -> Effects<Value> {
        self.map(|column, cell| masks.cell(column, cell))
    }

    /// The effects for the ledger itself, which stores them. No other crate calls this (a test of the architecture).
    #[must_use]
    pub fn stored(self) -> Effects<Value> {
        self.map(|_, cell| cell.stored().clone())
    }

    /// The effects without sensitive values.
    #[must_use]
    pub fn redacted(self, redaction: &Redaction) -> Self {
        self.map(|_, cell| cell.redacted(redaction))
    }
}

impl Effects<Value> {
    /// The effects without the values that must not be shown, wherever they are.
    #[must_use]
    pub fn redacted(self, redaction: &Redaction) -> Self {
        self.map(|_, value| redaction.value(&value))
    }
}

impl RowHistoryEntry {
    /// The change with the viewer's masks, without the masked texts anywhere in it.
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
