//! The rows of a tracked table as they were at a time, as far as that is known.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Cell, CellMasks, Columns, visible};

/// Rows as they were at a time. What is not in `rows`, and not said to be unknown, was not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastRows<V = Cell> {
    pub table: String,
    /// The time, RFC 3339.
    pub at: String,
    /// The earliest time of which something is known.
    pub known_from: String,
    /// Whether nothing is unknown or cut.
    pub is_complete: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<HistoryGap>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_columns: Vec<UnknownColumn>,
    pub rows: Vec<PastRow<V>>,
    /// The keys of rows that cannot be told: recorded changes do not fit together, or not to the row as it is now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_rows: Vec<Columns<V>>,
    /// Whether there are more rows, or more unknown ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// A row as it was. Values are in PostgreSQL's text format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastRow<V = Cell> {
    pub key: Columns<V>,
    /// The known columns, by the names that they have now.
    pub columns: Columns<V>,
}

/// A column of the table whose values at that time are not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownColumn {
    pub column: String,
    pub reason: UnknownReason,
}

/// Why the values of a column are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownReason {
    Added,
    Dropped,
    TypeChanged,
    Sensitive,
    Virtual,
}

/// What may be missing from rows as they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryGap {
    OutsideNotRecorded,
    Partitions,
    NotRecording,
    RowSecurity,
    NotCompared,
}

impl UnknownReason {
    const fn words(self) -> &'static str {
        match self {
            Self::Added => "it was added since, or later than the table was tracked",
            Self::Dropped => "it was dropped since",
            Self::TypeChanged => "its type was changed since",
            Self::Sensitive => "it is recorded as a hash only",
            Self::Virtual => "it is a virtual generated column",
        }
    }
}

impl HistoryGap {
    /// What may be missing, as a sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::OutsideNotRecorded => {
                "Changes from outside countersign were not recorded at that time (`track --all-writers`): rows that they \
                 changed may have been other, and are found only where a recorded change does not fit to them."
            }
            Self::Partitions => {
                "Rows that came or went with a partition (ATTACH, DETACH, DROP, or TRUNCATE of a new one) are not recorded."
            }
            Self::NotRecording => "Changes are not recorded now: a trigger is missing. Run `countersign track` again.",
            Self::RowSecurity => "Row security may hide rows from this login.",
            Self::NotCompared => {
                "This login may not read the table, so the recorded changes were not compared with the row as it is now."
            }
        }
    }
}

impl<V> PastRows<V> {
    /// What there is to say of an unknown row.
    pub const UNKNOWN_ROW: &str = "not known: its recorded changes do not fit together, or not to the row as it is now";

    /// What is not known, in sentences.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let column = |it: &UnknownColumn| format!("Column {}: not known, {}.", visible(&it.column), it.reason.words());
        let gaps = self.gaps.iter().map(|gap| gap.words().to_owned());
        gaps.chain(self.unknown_columns.iter().map(column)).collect()
    }

    fn map<W>(self, mut value: impl FnMut(&str, V) -> W) -> PastRows<W> {
        let mut columns = |columns: Columns<V>| -> Columns<W> {
            columns.into_iter().map(|(name, it)| (value(&name, it), name)).map(|(it, name)| (name, it)).collect()
        };
        let Self { table, at, known_from, is_complete, gaps, unknown_columns, rows, unknown_rows, is_cut } = self;
        let rows =
            rows.into_iter().map(|row| PastRow { key: columns(row.key), columns: columns(row.columns) }).collect();
        let unknown_rows = unknown_rows.into_iter().map(&mut columns).collect();
        PastRows { table, at, known_from, is_complete, gaps, unknown_columns, rows, unknown_rows, is_cut }
    }
}

impl PastRows {
    /// The rows with the viewer's masks, and with the masked texts replaced everywhere else.
    #[must_use]
    pub fn shown(self, mut masks: CellMasks<'_>) -> PastRows<Value> {
        let rows = self.map(|column, cell| masks.cell(column, cell));
        let redaction = masks.redaction();
        rows.map(|_, value| redaction.value(&value))
    }
}
