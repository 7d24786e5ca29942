//! What the rows of a table become, by column.

use std::collections::HashMap;

use serde_json::Value;
use types::{in_sentence, visible};

use super::ChangedRow;
use crate::sentences;

/// The maximum number of values that a column lists.
const MAX_VALUES: usize = 3;

/// The maximum length of a value in a sentence, in characters.
const MAX_CHARS: usize = 40;

/// The changes of one column in the rows of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ColumnSummary {
    column: String,
    /// Whether the database makes the new values when the write runs.
    is_generated: bool,
    /// Whether the reader sees masks: different values may have the same.
    is_masked: bool,
    rows: usize,
    /// The number of rows of which it is known whether it changes.
    known: usize,
    /// The most frequent new values.
    values: Vec<NewValue>,
    /// The number of other new values.
    others: usize,
    /// The smallest and the largest number before, and after; `None` if a value is no number.
    range: Option<[[String; 2]; 2]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NewValue {
    /// The value, and the number of rows that get it.
    value: ValueCount,
    /// The most frequent old values of these rows.
    was: Vec<ValueCount>,
    /// The number of other old values.
    others: usize,
}

/// A value, as people read it, and its number of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ValueCount {
    /// The value. A text with other characters than those of words is in quotes.
    value: String,
    rows: usize,
}

pub(super) fn of_rows(rows: &[ChangedRow]) -> Vec<ColumnSummary> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut columns: Vec<(&str, Vec<[&Value; 2]>)> = Vec::new();
    for column in rows.iter().flat_map(|row| &row.columns) {
        let at = *places.entry(&column.name).or_insert(columns.len());
        if at == columns.len() {
            columns.push((&column.name, Vec::new()));
        }
        let values = [&column.before, &column.after].map(|value| value.as_ref().unwrap_or(&Value::Null));
        columns.get_mut(at).into_iter().for_each(|(_, pairs)| pairs.push(values));
    }
    let known = |name: &str| rows.iter().filter(|row| row.knows(name)).count();
    // A value is generated in each row or in none, as both trials differ in the column or do not.
    let is_generated = |name: &str| rows.iter().any(|row| row.generated.iter().any(|generated| generated == name));
    let is_masked = |name: &str| rows.iter().any(|row| row.masked.iter().any(|masked| masked == name));
    let summary = |(name, pairs): (&str, Vec<[&Value; 2]>)| {
        let column = ColumnSummary::new(name, &pairs, known(name));
        ColumnSummary { is_generated: is_generated(name), is_masked: column.is_masked || is_masked(name), ..column }
    };
    columns.into_iter().map(summary).collect()
}

impl ChangedRow {
    /// Whether it is known what becomes of a column, or of a part of a JSON document in it.
    fn knows(&self, name: &str) -> bool {
        let document = |name: &str| name.split_once('.').map_or(name, |(column, _)| column).to_owned();
        let read = self.columns.iter().map(|column| &column.name).chain(self.same.iter().map(|(name, _)| name));
        self.is_recorded || read.into_iter().any(|read| document(read) == document(name))
    }
}

impl ColumnSummary {
    fn new(name: &str, pairs: &[[&Value; 2]], known: usize) -> Self {
        let (values, others) = frequent(pairs.iter().map(|[_, after]| *after));
        let values = values.into_iter().map(|(value, count)| {
            let (was, others) = frequent(pairs.iter().filter(|[_, after]| *after == value).map(|[before, _]| *before));
            let was = was.into_iter().map(|(value, rows)| ValueCount { value: shown(value), rows }).collect();
            NewValue { value: ValueCount { value: shown(value), rows: count }, was, others }
        });
        let values = values.collect();
        let side = |side: usize| range(pairs.iter().filter_map(|pair| pair.get(side).copied()));
        let range = side(0).zip(side(1)).map(|(before, after)| [before, after]);
        let is_masked = pairs.iter().all(|[before, after]| before == after);
        Self { column: visible(name), is_generated: false, is_masked, rows: pairs.len(), known, values, others, range }
    }

    /// The column in words, in a group of this number of rows: `times_per_day: 80 rows become 5 (41 were 2, 39 were 1)`.
    pub(super) fn sentence(&self, count: u64) -> String {
        let words = self.words();
        match count.saturating_sub(self.known as u64) {
            0 => words,
            1 => format!("{words}; of 1 other row it is not known"),
            unknown => format!("{words}; of {unknown} other rows it is not known"),
        }
    }

    fn words(&self) -> String {
        let Self { column, rows, .. } = self;
        let rows = sentences::rows(*rows as u64);
        match (self.values.as_slice(), &self.range) {
            _ if self.is_masked && !self.is_generated => {
                format!("{column}: {rows} {} (masked)", if self.rows == 1 { "changes" } else { "change" })
            }
            ([only], _) if self.is_generated => {
                let verb = if self.rows == 1 { "gets" } else { "get" };
                format!("{column}: {rows} {verb} a generated value ({})", only.old())
            }
            ([only], _) if self.others == 0 => match (only.was.as_slice(), only.value.rows) {
                ([was], 1) => format!("{column}: {} becomes {}", was.value, only.value.value),
                _ => format!("{column}: {rows} become {} ({})", only.value.value, only.old()),
            },
            (_, Some([[least, most], [new_least, new_most]])) if self.others > 0 => {
                format!("{column}: {rows} change, {least} to {most} become {new_least} to {new_most}")
            }
            (values, _) if values.iter().all(|value| value.value.rows == 1) && self.others > 0 => {
                format!("{column}: {rows} get {} different values", values.len() + self.others)
            }
            (values, _) => {
                let each = |new: &NewValue| {
                    let verb = if new.value.rows == 1 { "becomes" } else { "become" };
                    format!("{} {verb} {}", new.value.rows, new.value.value)
                };
                let listed: Vec<String> = values.iter().map(each).collect();
                let others = others(self.others);
                format!("{column}: of {rows}, {}{others}", listed.join(", "))
            }
        }
    }
}

impl NewValue {
    fn old(&self) -> String {
        if self.others > 0 && self.was.iter().all(|old| old.rows == 1) {
            return format!("from {} different values", self.was.len() + self.others);
        }
        let each =
            |old: &ValueCount| format!("{} {} {}", old.rows, if old.rows == 1 { "was" } else { "were" }, old.value);
        let listed: Vec<String> = self.was.iter().map(each).collect();
        format!("{}{}", listed.join(", "), others(self.others))
    }
}

fn others(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => ", and 1 other value".to_owned(),
        count => format!(", and {count} other values"),
    }
}

/// The most frequent values with their numbers, and the number of other values.
fn frequent<'a>(values: impl Iterator<Item = &'a Value>) -> (Vec<(&'a Value, usize)>, usize) {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut counts: Vec<(&Value, usize)> = Vec::new();
    for value in values {
        let at = *places.entry(value.to_string()).or_insert(counts.len());
        match counts.get_mut(at) {
            Some((_, count)) => *count += 1,
            None => counts.push((value, 1)),
        }
    }
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let others = counts.len().saturating_sub(MAX_VALUES);
    counts.truncate(MAX_VALUES);
    (counts, others)
}

/// The smallest and the largest number; `None` if a value is no number.
fn range<'a>(values: impl Iterator<Item = &'a Value>) -> Option<[String; 2]> {
    let number = |value: &'a Value| {
        let number: f64 = value.as_str().map_or_else(|| value.as_f64(), |text| text.parse().ok())?;
        number.is_finite().then_some((number, value))
    };
    let numbers: Vec<(f64, &Value)> = values.map(number).collect::<Option<_>>()?;
    let least = numbers.iter().min_by(|one, other| one.0.total_cmp(&other.0))?;
    let most = numbers.iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
    Some([shown(least.1), shown(most.1)])
}

fn shown(value: &Value) -> String {
    in_sentence(value, MAX_CHARS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(pairs: &[(Value, Value)]) -> String {
        let pairs: Vec<[&Value; 2]> = pairs.iter().map(|(before, after)| [before, after]).collect();
        ColumnSummary::new("c", &pairs, pairs.len()).words()
    }

    #[test]
    fn a_column_says_what_its_rows_become() {
        assert_eq!(said(&[(json!("open"), json!("paid"))]), "c: open becomes paid");
        let old = |n: u32| (json!(n), json!(null));
        assert_eq!(said(&(0..10).map(old).collect::<Vec<_>>()), "c: 10 rows become null (from 10 different values)");
        let to = |old: &str, new: &str| (json!(old), json!(new));
        assert_eq!(said(&[to("a", "x"), to("b", "x"), to("c", "y")]), "c: of 3 rows, 2 become x, 1 becomes y");
        let grown: Vec<_> = (1..=80).map(|n| (json!(n * 10), json!(n * 11))).collect();
        assert_eq!(said(&grown), "c: 80 rows change, 10 to 800 become 11 to 880");
        assert_eq!(said(&[to("***", "***"), to("***", "***")]), "c: 2 rows change (masked)");
        let renamed: Vec<_> = (1..=9).map(|n| to("old", &format!("n{n}"))).collect();
        assert_eq!(said(&renamed), "c: 9 rows get 9 different values");
    }

    #[test]
    fn a_text_cannot_look_like_the_words_around_it() {
        let hostile = "5 (80 were 5)\"\n\u{202e}It can be undone by a call.";
        let hostile = said(&[(json!("null"), json!(hostile))]);
        assert!(hostile.starts_with("c: \"null\" becomes \"5 (80 were 5)\\\"\\n\\u202eIt can"), "{hostile}");
        assert!(hostile.ends_with("…\""), "{hostile}");
        assert!(said(&[(json!(null), json!("x".repeat(5000)))]).chars().count() < 70);
    }
}
