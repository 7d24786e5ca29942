//! Bounds what an agent gets of a write: the first rows and the beginning of long texts, and the rest in pages.

use std::ops::Range;

use serde::Serialize;
use serde_json::Value;
use types::Effects;

use crate::proposal_text::cut;

/// The maximum size of a proposal or a record for an agent, in bytes of JSON.
pub(crate) const MAX_BYTES: usize = 4 << 10;

/// The maximum size of a page of rows, in bytes of JSON.
pub(crate) const MAX_PAGE_BYTES: usize = 32 << 10;

/// The maximum length of a text that is cut, in characters.
pub(crate) const MAX_TEXT_CHARS: usize = 200;

/// What an answer of this tool says if it has not everything.
pub(crate) fn left_out(tool: &str) -> String {
    format!(
        "Rows are left out, and long texts cut; so are parameters and the answer if they are too large. {tool} with \
         rows = \"all\" has more, in pages if there are many rows."
    )
}

/// The rows of a write. Each list may have a row with the same number.
pub(crate) struct RowLists {
    effects: Option<Effects<Value>>,
    before: Option<Vec<Value>>,
    after: Option<Vec<Value>>,
}

impl RowLists {
    /// The effects, and the images before and after, in which a single row may stand for a list.
    pub(crate) fn new(effects: Option<Effects<Value>>, before: Option<Value>, after: Option<Value>) -> Self {
        let rows = |image: Option<Value>| match image {
            Some(Value::Array(rows)) => Some(rows),
            Some(Value::Null) | None => None,
            Some(row) => Some(vec![row]),
        };
        Self { effects, before: rows(before), after: rows(after) }
    }

    /// The rows of this range: effects, and images before and after.
    pub(crate) fn part(self, range: &Range<usize>) -> (Option<Effects<Value>>, Option<Value>, Option<Value>) {
        let image = |rows: Vec<Value>| Value::Array(part(rows, range));
        let effects = self.effects.map(|effects| Effects { rows: part(effects.rows, range), ..effects });
        (effects, self.before.map(image), self.after.map(image))
    }

    /// The end of a page of rows: at least one row, however large.
    pub(crate) fn page_end(&self, start: usize) -> usize {
        self.fitting(start, MAX_PAGE_BYTES).max(start.saturating_add(1).min(self.count()))
    }

    /// Removes the images if the effects have the same rows, and cuts the texts of the others.
    pub(crate) fn cut(&mut self) {
        if let Some(effects) = &mut self.effects {
            (self.before, self.after) = (None, None);
            let cut = |_: &str, mut value: Value| {
                cut_texts(&mut value);
                value
            };
            effects.rows = std::mem::take(&mut effects.rows).into_iter().map(|row| row.map(cut)).collect();
        }
        self.before.iter_mut().chain(&mut self.after).flatten().for_each(cut_texts);
    }

    /// The number of rows of the longest list.
    pub(crate) fn count(&self) -> usize {
        let images = [&self.before, &self.after].map(|image| image.as_ref().map_or(0, Vec::len));
        images.into_iter().chain(self.effects.as_ref().map(|effects| effects.rows.len())).max().unwrap_or_default()
    }

    /// The end of the rows from `start` on that take at most so many bytes.
    pub(crate) fn fitting(&self, start: usize, bytes: usize) -> usize {
        let mut taken = 0;
        let fits = |at: &usize| {
            let images = [&self.before, &self.after].map(|image| image.as_ref().and_then(|rows| rows.get(*at)));
            let effect = self.effects.as_ref().and_then(|effects| effects.rows.get(*at));
            taken += images.into_iter().flatten().map(size).sum::<usize>() + effect.map_or(0, size) + 3;
            taken <= bytes
        };
        let count = self.count();
        start.min(count) + (start..count).take_while(fits).count()
    }
}

fn part<T>(rows: Vec<T>, range: &Range<usize>) -> Vec<T> {
    rows.into_iter().skip(range.start).take(range.len()).collect()
}

/// The size as JSON, in bytes.
pub(crate) fn size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}

/// Cuts the long texts of a value.
pub(crate) fn cut_texts(value: &mut Value) {
    match value {
        Value::String(text) => *text = cut(text, MAX_TEXT_CHARS),
        Value::Array(items) => items.iter_mut().for_each(cut_texts),
        Value::Object(fields) => fields.values_mut().for_each(cut_texts),
        _ => {}
    }
}
