//! What has changed since a proposal was made, as agents see it: the first rows, with long texts cut.

use review::summary::{ChangedBy, ChangedRow, RowGroup};
use review::{Since, sentences};
use serde::Serialize;
use serde_json::{Map, Value};
use types::CorrelationId;

use crate::bounded::cut_texts;

/// The maximum numbers of sentences, of rows, and of columns of a row.
const MAX_SENTENCES: usize = 5;
const MAX_ROWS: usize = 3;
const MAX_COLUMNS: usize = 6;

/// What has changed since a proposal was made.
#[derive(Debug, Serialize)]
pub(crate) struct SinceData {
    /// What was found, in sentences.
    found: Vec<String>,
    /// The first rows that are not as they were shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rows: Vec<SinceRow>,
}

/// A row that is not as it was shown.
#[derive(Debug, Serialize)]
struct SinceRow {
    /// What is not as it was: `1 row of shop.orders has changed since`.
    what: String,
    key: Map<String, Value>,
    columns: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_by: Option<String>,
    /// The record of the write that did.
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<CorrelationId>,
}

impl SinceData {
    /// What has changed, if anything has. `unread` is the number of rows that the caller cannot read now.
    pub(crate) fn new(since: Option<&Since>, unread: u64) -> Option<Self> {
        let unread = (unread > 0).then(|| format!("{} that you cannot read now.", sentences::rows(unread)));
        let found: Vec<String> =
            since.into_iter().flat_map(Since::sentences).take(MAX_SENTENCES).chain(unread).collect();
        let groups = since.into_iter().flat_map(|since| &since.rows.groups);
        let rows = groups.flat_map(|group| group.rows.iter().map(move |row| SinceRow::new(group, row)));
        let rows = rows.take(MAX_ROWS).collect();
        (!found.is_empty()).then_some(Self { found, rows })
    }
}

impl SinceRow {
    fn new(group: &RowGroup, row: &ChangedRow) -> Self {
        let cut = |value: &Option<Value>| {
            let mut value = value.clone().unwrap_or_default();
            cut_texts(&mut value);
            value
        };
        let columns = row.columns.iter().take(MAX_COLUMNS);
        let columns = columns.map(|column| {
            let sides = [("shown", cut(&column.before)), ("now", cut(&column.after))];
            (
                column.name.clone(),
                Value::Object(sides.map(|(side, value)| (side.to_owned(), value)).into_iter().collect()),
            )
        });
        Self {
            what: group.title(),
            key: row.key.iter().map(|(name, part)| (name.clone(), cut(&Some(part.clone())))).collect(),
            columns: columns.collect(),
            changed_by: row.changed_by.as_ref().map(ChangedBy::words),
            correlation_id: row.changed_by.as_ref().and_then(ChangedBy::record),
        }
    }
}
