//! The law of receipts: no receipt is false, no success changes anything else, no refusal changes anything.
//!
//! Four states of the whole database are compared: before the write, after it, just before the undo (a migration and others may have
//! come in between), and after the undo.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use crate::snapshot::{Row, Snapshot, Table, Tracking, words};
use crate::support::{Undone, codes};

/// What a write says of its own undo.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) reversible: bool,
    pub(crate) checked: bool,
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) note: String,
    not_restored: Option<BTreeSet<String>>,
    set_by_triggers: Option<BTreeMap<String, BTreeSet<String>>>,
}

impl Receipt {
    pub(crate) fn parse(receipt: &Value) -> Self {
        serde_json::from_value(receipt.clone()).unwrap_or_else(|error| panic!("{error} in the receipt {receipt:#}"))
    }

    /// What a manifest alone would say of a write: that of tracked tables can be undone.
    pub(crate) fn of_the_manifest(before: &Snapshot, after: &Snapshot) -> Self {
        let is_changed = |number: &i64| {
            let rows = |state: &Snapshot| state.0.get(number).map(|table| table.rows.clone());
            rows(before) != rows(after)
        };
        let changed: Vec<_> = after.0.iter().chain(&before.0).filter(|(number, _)| is_changed(number)).collect();
        let is_tracked = changed.iter().any(|(_, table)| table.tracking != Tracking::None);
        Self { reversible: true, checked: is_tracked || changed.is_empty(), ..Self::default() }
    }

    pub(crate) fn is_a_promise(&self) -> bool {
        self.reversible && self.checked
    }

    pub(crate) fn not_restored(&self, table: &str) -> bool {
        self.not_restored.as_ref().is_some_and(|tables| tables.contains(table))
    }

    fn set_by_triggers(&self, table: &str, column: &str) -> bool {
        self.set_by_triggers.as_ref().and_then(|tables| tables.get(table)).is_some_and(|all| all.contains(column))
    }
}

/// Columns of the tests whose old value nobody wants back where a trigger sets them.
const CLOCKS: [&str; 6] = ["at", "updated_at", "version", "v", "deleted_at", "token"];

/// The states that an undo went through.
pub(crate) struct States<'a> {
    pub(crate) before: &'a Snapshot,
    pub(crate) after: &'a Snapshot,
    /// Just before the undo.
    pub(crate) now: &'a Snapshot,
    pub(crate) undone: &'a Snapshot,
}

/// What the law has to know beyond the states.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// Columns that the statement itself assigned, as `table.column`: no trigger may take them from an undo.
    pub(crate) assigned: BTreeSet<String>,
    /// Somebody else changed rows after the write, or the schema: a promise of before holds for nobody.
    pub(crate) is_disturbed: bool,
}

/// What the law finds wrong with an undo.
pub(crate) fn judge(
    states: &States<'_>,
    receipt: &Receipt,
    outcome: &Result<Undone, Value>,
    facts: &Facts,
) -> Vec<String> {
    match outcome {
        Err(conflict) => {
            let mut wrong = states.undone.differences(states.now);
            if !wrong.is_empty() {
                wrong.insert(0, "refused, and something changed:".to_owned());
            }
            if receipt.is_a_promise() && !facts.is_disturbed {
                wrong.push(format!("promised and refused {:?}: {conflict}", codes(conflict)));
            }
            wrong
        }
        Ok(undone) => {
            let mut wrong = Vec::new();
            if !receipt.reversible && !facts.is_disturbed {
                wrong.push(format!("said to be irreversible, and undone: {:?}", receipt.reason));
            }
            let numbers: BTreeSet<i64> = [states.before, states.after, states.now, states.undone]
                .iter()
                .flat_map(|state| state.0.keys().copied())
                .collect();
            for number in numbers {
                Comparison::new(states, number).check(receipt, undone, facts, &mut wrong);
            }
            wrong
        }
    }
}

/// One table in the four states.
struct Comparison<'a> {
    before: &'a Table,
    after: &'a Table,
    now: &'a Table,
    undone: &'a Table,
}

static NO_TABLE: Table = Table::empty();

impl<'a> Comparison<'a> {
    fn new(states: &States<'a>, number: i64) -> Self {
        let of = |state: &'a Snapshot| state.0.get(&number).unwrap_or(&NO_TABLE);
        Self { before: of(states.before), after: of(states.after), now: of(states.now), undone: of(states.undone) }
    }

    /// The newest state that knows the table.
    fn table(&self) -> &'a Table {
        [self.undone, self.now, self.after, self.before].into_iter().find(|t| !t.name.is_empty()).unwrap_or(&NO_TABLE)
    }

    fn check(&self, receipt: &Receipt, undone: &Undone, facts: &Facts, wrong: &mut Vec<String>) {
        match self.table().tracking {
            Tracking::None => self.check_untracked(receipt, wrong),
            Tracking::Log => self.check_growth(wrong),
            Tracking::Rows => self.check_rows(receipt, undone, facts, wrong),
        }
    }

    /// Nothing but what the write has named and changed is touched.
    fn check_untracked(&self, receipt: &Receipt, wrong: &mut Vec<String>) {
        let name = &self.table().name;
        let [before, after, now, undone] = [self.before, self.after, self.now, self.undone].map(Table::counted);
        let is_named = receipt.not_restored(name);
        if before != after && !is_named {
            wrong.push(format!("a side that the receipt does not say: {name} is not tracked"));
        }
        if is_named {
            let kept =
                before.iter().filter_map(|(row, times)| Some((*row, *times.min(after.get(*row)?).min(now.get(*row)?))));
            for (row, times) in kept {
                if undone.get(row).is_none_or(|left| *left < times) {
                    wrong.push(format!("a row is gone that the write had not touched: {} of {name}", words(row)));
                }
            }
        } else if undone != now {
            let (lost, added) = (minus(&now, &undone), minus(&undone, &now));
            wrong.push(format!("the undo changed what is not tracked: {name} lost {lost:?}, has also {added:?}"));
        }
    }

    /// A log may grow, and loses nothing that was there before the write.
    fn check_growth(&self, wrong: &mut Vec<String>) {
        let (undone, name) = (self.undone.counted(), &self.table().name);
        for (row, times) in self.before.counted() {
            if undone.get(row).is_none_or(|left| *left < times) {
                wrong.push(format!("a log has lost a row: {} of {name}", words(row)));
            }
        }
    }

    /// Rows that the write changed are what they were, and the others what they are.
    fn check_rows(&self, receipt: &Receipt, answer: &Undone, facts: &Facts, wrong: &mut Vec<String>) {
        let name = &self.table().name;
        let [before, after, now, undone] = [self.before, self.after, self.now, self.undone].map(Table::by_key);
        if [self.before, self.after, self.now, self.undone].iter().any(|table| table.by_key().len() != table.rows.len())
        {
            wrong.push(format!("two rows with one key: {name}"));
        }
        let keys: BTreeSet<_> = [&before, &after, &now, &undone].into_iter().flat_map(BTreeMap::keys).collect();
        for key in keys {
            let [b, a, n, u] = [&before, &after, &now, &undone].map(|rows| rows.get(key).copied());
            let shown = key.iter().map(|value| value.as_deref().unwrap_or("null")).collect::<Vec<_>>().join(", ");
            if b == a {
                if u != n {
                    wrong.push(format!(
                        "the undo changed a row that the write had not: {shown} of {name} is {} instead of {}",
                        or_none(u),
                        or_none(n)
                    ));
                }
                continue;
            }
            if !same_common(a, n) {
                wrong.push(format!("the undo passed over a later change: row {shown} of {name}"));
            }
            match (b, u) {
                (None, None) => {}
                (None, Some(u)) => wrong.push(format!("still there: row {shown} of {name}, {}", words(u))),
                (Some(b), None) => wrong.push(format!("missing: row {shown} of {name}, {}", words(b))),
                (Some(b), Some(u)) => {
                    for (number, found) in u {
                        let column = self.undone.column(*number);
                        // A new column keeps its value; a generated one follows from the others.
                        let kept = n.filter(|_| !self.undone.computed.contains(number)).and_then(|row| row.get(number));
                        let wanted = b.get(number).or(kept);
                        if wanted.is_none_or(|wanted| wanted == found) || self.undone.maintained.contains(column) {
                            continue;
                        }
                        // The receipt is older than a rename; a state has no name for a table without rows.
                        let is_said = [self.before, self.after]
                            .iter()
                            .any(|table| receipt.set_by_triggers(&table.name, table.column(*number)))
                            && answer.answer["set_again"].to_string().contains(&format!("\"{column}\""));
                        if receipt.is_a_promise() && !CLOCKS.contains(&column) {
                            wrong.push(format!(
                                "promised, and {column} of row {shown} of {name} is {found:?} instead of {wanted:?}"
                            ));
                        }
                        if !is_said || facts.assigned.contains(&format!("{name}.{column}")) {
                            wrong.push(format!(
                                "not restored: {column} of row {shown} of {name} is {found:?} instead of {wanted:?}"
                            ));
                        }
                    }
                }
            }
        }
    }
}

/// The same in the columns that both have, or both missing.
fn same_common(a: Option<&Row>, b: Option<&Row>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.iter().all(|(number, value)| b.get(number).is_none_or(|other| other == value)),
        _ => false,
    }
}

fn or_none(row: Option<&Row>) -> String {
    row.map_or_else(|| "none".to_owned(), words)
}

fn minus(these: &BTreeMap<&Row, usize>, those: &BTreeMap<&Row, usize>) -> Vec<String> {
    these.iter().filter(|(row, times)| those.get(*row).unwrap_or(&0) < times).map(|(row, _)| words(row)).collect()
}
