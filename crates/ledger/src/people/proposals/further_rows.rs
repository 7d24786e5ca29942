//! The rows of a large preview. The preview of a proposal is hashed with each decision, so it has the first rows itself,
//! and the others are stored beside it under their digest. A page shows 20 rows first, then 500 at a time.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{Effects, RowEffect};

use crate::evidence::effects::MAX_SHOWN;
use crate::fingerprint::sha256_hex;

/// The maximum length of the rows that are stored beside a preview, in bytes of JSON.
const MAX_BYTES: usize = 8 << 20;

/// What a preview says of the rows that are stored beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FurtherRows {
    /// The number of those that change.
    pub count: u64,
    /// The SHA-256 of the text that has them, in hexadecimal digits.
    pub sha256: String,
}

/// The column and the text by which people recognize a row, if it has one.
pub(super) type Label = Option<[String; 2]>;

/// The text that is stored.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredRows {
    rows: Vec<RowEffect<Value>>,
    labels: Vec<Label>,
}

impl FurtherRows {
    /// Takes the rows that are more than can be stored away, and their labels. What is said of those beyond the first
    /// ones, and the text that has them; `None` if there are few.
    pub(super) fn bound(effects: &mut Effects<Value>, labels: &mut Vec<Label>) -> Option<(Self, String)> {
        let first = MAX_SHOWN as usize;
        if effects.rows.len() <= first {
            return None;
        }
        let mut bytes = 0;
        let fits = |row: &&RowEffect<Value>| {
            bytes += serde_json::to_string(row).map_or(MAX_BYTES, |row| row.len());
            bytes <= MAX_BYTES
        };
        let all = first + effects.rows.iter().skip(first).take_while(fits).count();
        effects.rows.truncate(all);
        labels.truncate(all);
        let rows = effects.rows.get(first..).unwrap_or_default().to_vec();
        let count = rows.iter().filter(|row| !row.is_without_change()).count() as u64;
        let labels = labels.get(first..).unwrap_or_default().to_vec();
        let text = serde_json::to_string(&StoredRows { rows, labels }).unwrap_or_default();
        Some((Self { count, sha256: sha256_hex(&text) }, text))
    }

    /// Adds the rows of this text, with their labels. If it is another one than that which was stored, they are left out,
    /// and so they are counted and not listed.
    pub(super) fn add(&self, text: &str, effects: &mut Effects<Value>, labels: &mut Vec<Label>) {
        let stored = serde_json::from_str::<StoredRows>(text).ok();
        let Some(stored) = stored.filter(|_| self.sha256 == sha256_hex(text)) else {
            return tracing::error!("the rows that are stored beside a proposal are not those that it was made with");
        };
        effects.rows.extend(stored.rows);
        labels.extend(stored.labels);
    }
}
