//! The rows of a large preview. The preview of a proposal is hashed with each decision, so it has the first rows itself,
//! and the others are stored beside it under their digest.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::RowEffect;

use super::preview::Preview;
use crate::evidence::effects::{self, MAX_SHOWN};
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

/// The text that is stored.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredRows {
    rows: Vec<RowEffect<Value>>,
    /// As in [`Preview`].
    labels: Vec<Option<[String; 2]>>,
}

impl Preview {
    /// The preview without the rows that are more than can be stored beside it, and the text of those that are.
    pub(super) fn with_bounded_rows(mut self) -> (Self, Option<String>) {
        let first = MAX_SHOWN as usize;
        let Some(effects) = self.effects.as_mut().filter(|effects| effects.rows.len() > first) else {
            return (self, None);
        };
        let mut bytes = 0;
        let fits = |row: &&RowEffect<Value>| {
            bytes += serde_json::to_string(row).map_or(MAX_BYTES, |row| row.len());
            bytes <= MAX_BYTES
        };
        let count = effects.rows.iter().skip(first).take_while(fits).count();
        effects.rows.truncate(first + count);
        let rows = effects.rows.get(first..).unwrap_or_default().to_vec();
        let changed = rows.iter().filter(|row| !row.is_without_change()).count();
        let cut = effects.rows.iter().take(first).cloned().map(cut_texts).sum();
        self.cut_texts.truncate(cut);
        self.labels.truncate(first + count);
        let labels = self.labels.get(first..).unwrap_or_default().to_vec();
        let text = serde_json::to_string(&StoredRows { rows, labels }).unwrap_or_default();
        self.further_rows = Some(FurtherRows { count: changed as u64, sha256: sha256_hex(&text) });
        (self, Some(text))
    }

    /// The preview as it is stored.
    pub(super) fn without_further_rows(mut self) -> Self {
        if self.further_rows.is_some() {
            self.effects.iter_mut().for_each(|effects| effects.rows.truncate(MAX_SHOWN as usize));
            self.labels.truncate(MAX_SHOWN as usize);
        }
        self
    }

    /// The stored preview with the rows of this text. If it is another one than that which the preview names, they are
    /// left out, and so they are counted and not listed.
    pub(super) fn add_further_rows(&mut self, text: &str) {
        let is_it = self.further_rows.as_ref().is_some_and(|further| further.sha256 == sha256_hex(text));
        let stored = serde_json::from_str::<StoredRows>(text).ok().filter(|_| is_it);
        let (Some(stored), Some(effects)) = (stored, &mut self.effects) else {
            return tracing::error!("the rows that are stored beside a proposal are not those that it was made with");
        };
        effects.rows.extend(stored.rows);
        self.labels.extend(stored.labels);
    }
}

/// The number of texts of a row that are cut.
fn cut_texts(row: RowEffect<Value>) -> usize {
    let mut count = 0;
    drop(row.map(|_, value| count += usize::from(effects::is_beginning(&value))));
    count
}
