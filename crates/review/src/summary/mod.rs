//! The summary of a write: its rows by table and kind, and by column what they become.

mod changed_by;
mod column;
mod json_paths;
mod rows;

use std::collections::BTreeMap;

use ledger::audit::Record;
use ledger::plans::PlanSummary;
use ledger::proposals::{GENERATED, Preview};
use serde_json::Value;
use types::{ChangeKind, ColumnEffect, Effects, RowEffect, visible};

pub use self::changed_by::ChangedBy;
pub use self::rows::{ChangedColumn, ChangedRow};
use crate::sentences;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// The rows by origin, table and kind.
    pub groups: Vec<RowGroup>,
    /// The number of rows that the tool reads and does not change.
    pub unchanged: usize,
}

/// The rows of one table that a write changes in the same way.
#[derive(Debug, Clone, PartialEq)]
pub struct RowGroup {
    /// The table; `None` if the ledger does not know it, because it is not tracked.
    pub table: Option<String>,
    pub origin: RowOrigin,
    /// Whether the rows are inserted, updated or deleted.
    pub change: ChangeKind,
    /// The number of all rows, of which `rows` has the first ones.
    pub count: u64,
    pub rows: Vec<ChangedRow>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowOrigin {
    /// A statement of the write.
    Statement,
    /// The rows as the tool reads them, of which the ledger does not know which rows of tables they are. The other
    /// origins have the same changes by table.
    Tool,
    /// Something that the number of rows of the write's statements does not count: a trigger, an action of a foreign
    /// key, or another part of a statement.
    Further,
    /// Something else, since the rows were shown.
    Since,
    /// The write, if it ran now, instead of what was shown.
    Instead,
}

/// What is known of the rows of a write.
#[derive(Debug, Clone, Copy, Default)]
struct Parts<'a> {
    /// The rows that the tool reads before its write.
    before: Option<&'a Value>,
    /// Those that it reads after its write.
    after: Option<&'a Value>,
    /// The columns that identify the rows that the tool reads.
    row_key: &'a [String],
    /// The names of the values that the database generates.
    generated: &'a [String],
    effects: Option<&'a Effects<Value>>,
}

impl<'a> Parts<'a> {
    fn images(self, none: &'a Value) -> [&'a Value; 2] {
        [self.before, self.after].map(|image| image.unwrap_or(none))
    }

    fn rows(self) -> impl Iterator<Item = &'a RowEffect<Value>> {
        self.effects.into_iter().flat_map(|effects| &effects.rows)
    }
}

impl<'a> From<&'a Preview> for Parts<'a> {
    fn from(preview: &'a Preview) -> Self {
        let Preview { before, after, row_key, generated, effects, .. } = preview;
        Self { before: before.as_ref(), after: after.as_ref(), row_key, generated, effects: effects.as_ref() }
    }
}

impl Summary {
    /// The summary of a preview that is shown as it is.
    #[must_use]
    pub fn new(preview: &Preview) -> Self {
        Self::shown(preview, preview)
    }

    /// The summary of a preview for a reader who sees `shown` of it: values with masks, and only some effects.
    #[must_use]
    pub fn shown(preview: &Preview, shown: &Preview) -> Self {
        let mut effects = shown.effects.clone();
        for (row, label) in effects.iter_mut().flat_map(|effects| &mut effects.rows).zip(&shown.labels) {
            row.label = label.clone().map(|[column, text]| (column, text.into()));
        }
        let shown = Parts { effects: effects.as_ref(), ..shown.into() };
        rows::summary([preview.into(), shown], preview.rows_affected)
    }

    #[must_use]
    pub fn of_record(record: &Record) -> Self {
        let Record { before_image, after_image, effects, rows_affected, .. } = record;
        let counted = rows_affected.and_then(|rows| rows.try_into().ok());
        Self::of(before_image.as_ref(), after_image.as_ref(), effects.get(), counted)
    }

    /// The summary of what an undo restores: its first rows, and the numbers of all of them. `set_again` has columns by
    /// table that triggers set, so that the old value does not come back.
    #[must_use]
    pub fn of_plan(
        mut effects: Option<Effects<Value>>,
        counts: &[PlanSummary],
        set_again: &BTreeMap<String, Vec<String>>,
    ) -> Self {
        for row in effects.iter_mut().flat_map(|effects| &mut effects.rows) {
            for name in set_again.get(&row.table).into_iter().flatten() {
                let Some(column) = row.columns.get_mut(name) else { continue };
                let (ColumnEffect::Changed { after: value, .. } | ColumnEffect::Whole(value)) = column;
                *value = GENERATED.into();
                row.generated.push(name.clone());
            }
        }
        let mut found = Self::of(None, None, effects.as_ref(), None);
        counts.iter().for_each(|one| found.count(&one.table, RowOrigin::Statement, one.change, one.rows));
        found
    }

    /// The summary of the rows that a tool reads before and after its write, and of the effects of the write.
    #[must_use]
    pub fn of_images(before: Option<&Value>, after: Option<&Value>, effects: Option<&Effects<Value>>) -> Self {
        Self::of(before, after, effects, None)
    }

    fn of(
        before: Option<&Value>,
        after: Option<&Value>,
        effects: Option<&Effects<Value>>,
        counted: Option<u64>,
    ) -> Self {
        let parts = Parts { before, after, effects, ..Parts::default() };
        rows::summary([parts, parts], counted)
    }

    /// The number of all rows in a sentence: `It would delete 1 row of shop.orders, and change 88 more rows of 2 tables.`
    /// `None` if no rows are known.
    #[must_use]
    pub fn count_sentence(&self) -> Option<String> {
        let further: Vec<&RowGroup> = self.groups.iter().filter(|group| group.origin == RowOrigin::Further).collect();
        let more: u64 = further.iter().map(|group| group.count).sum();
        let mut tables: Vec<&str> = further.iter().filter_map(|group| group.table.as_deref()).collect();
        tables.sort_unstable();
        tables.dedup();
        let of = match tables.as_slice() {
            [only] => visible(only),
            tables => sentences::count(tables.len() as u64, "table"),
        };
        let rows = sentences::count(more, "more row");
        match (self.listed(RowOrigin::Statement), more) {
            (own, 0) => own.map(|own| format!("It would {own}.")),
            (Some(own), _) => Some(format!("It would {own}, and change {rows} of {of}.")),
            (None, _) => Some(format!("It would change {} of {of}, {}.", sentences::rows(more), sentences::BESIDES)),
        }
    }

    /// The rows that change besides those of the write's own statements: `delete 3 rows of shop.item`.
    #[must_use]
    pub fn further(&self) -> Option<String> {
        self.listed(RowOrigin::Further)
    }

    /// The summary in sentences: the number of rows, other rows than those of the statements, and what columns become, as
    /// far as there are at most `most` columns.
    #[must_use]
    pub fn sentences(&self, most: usize) -> Vec<String> {
        let further = self.further().map(|rows| sentences::further(&rows));
        let columns = first(self.groups.iter().flat_map(RowGroup::columns_of_table).collect(), most);
        self.count_sentence().into_iter().chain(further).chain(columns).collect()
    }

    /// The rows that a face does not show, by table, and what their columns become. `shown` is the number of rows of a group
    /// that it shows.
    #[must_use]
    pub fn rest(&self, most: usize, mut shown: impl FnMut(&RowGroup) -> u64) -> Vec<String> {
        let mut left: Vec<(&RowGroup, u64)> = Vec::new();
        left.extend(self.groups.iter().map(|group| (group, group.count.saturating_sub(shown(group)))));
        left.retain(|(_, left)| *left > 0);
        let columns = first(left.iter().flat_map(|(group, _)| group.columns_of_table()).collect(), most);
        let rows = left.iter().map(|(group, left)| {
            let (rows, verb) = (sentences::count(*left, "more row"), if *left == 1 { "is" } else { "are" });
            format!("and {rows}{}, which {verb} not shown here", group.of_table())
        });
        rows.chain(columns).collect()
    }

    fn listed(&self, origin: RowOrigin) -> Option<String> {
        let titles: Vec<String> =
            self.groups.iter().filter(|group| group.origin == origin).map(RowGroup::title).collect();
        let (last, first) = titles.split_last()?;
        Some(if first.is_empty() { last.clone() } else { format!("{} and {last}", first.join(", ")) })
    }
}

/// The first columns, and the number of the others.
fn first(mut columns: Vec<String>, most: usize) -> Vec<String> {
    let more = columns.len().saturating_sub(most) as u64;
    columns.truncate(most);
    columns.extend(
        (more > 0).then(|| format!("and {}, which change and are not shown", sentences::count(more, "more column"))),
    );
    columns
}

impl RowGroup {
    /// The kind, number and table: `update 3 rows of shop.orders`, `1 row of shop.orders has changed since`.
    #[must_use]
    pub fn title(&self) -> String {
        let rows = format!("{}{}", sentences::rows(self.count), self.of_table());
        let [has, was] = if self.count == 1 { ["has", "was"] } else { ["have", "were"] };
        match (self.origin, self.change) {
            (RowOrigin::Since, ChangeKind::Insert) => format!("{rows} {was} inserted since"),
            (RowOrigin::Since, ChangeKind::Update) => format!("{rows} {has} changed since"),
            (RowOrigin::Since, ChangeKind::Delete) => format!("{rows} {was} deleted since"),
            (RowOrigin::Instead, ChangeKind::Insert) => format!("{rows} would be changed, too"),
            (RowOrigin::Instead, ChangeKind::Update) => format!("{rows} would become something else"),
            (RowOrigin::Instead, ChangeKind::Delete) => format!("{rows} would not be changed any more"),
            (RowOrigin::Statement | RowOrigin::Further | RowOrigin::Tool, change) => {
                format!("{} {rows}", change.verb())
            }
        }
    }

    /// What the columns of updated rows become, in the order of their first appearance.
    #[must_use]
    pub fn columns(&self) -> Vec<String> {
        let is_of_write = !matches!(self.origin, RowOrigin::Since | RowOrigin::Instead);
        if !is_of_write || self.change != ChangeKind::Update {
            return Vec::new();
        }
        let hidden = self.rows.iter().filter(|row| row.has_sensitive_changes).count() as u64;
        let hidden = (hidden > 0).then(|| format!("sensitive columns: {} change", sentences::rows(hidden)));
        column::of_rows(&self.rows).iter().map(|column| column.sentence(self.count)).chain(hidden).collect()
    }

    /// The same, with the name of the table before each column.
    fn columns_of_table(&self) -> Vec<String> {
        let table = self.table.as_ref().map(|table| format!("{} ", visible(table))).unwrap_or_default();
        self.columns().into_iter().map(|column| format!("{table}{column}")).collect()
    }

    fn of_table(&self) -> String {
        self.table.as_ref().map(|table| format!(" of {}", visible(table))).unwrap_or_default()
    }

    /// The number of rows that are not in `rows`.
    #[must_use]
    pub fn unlisted(&self) -> u64 {
        self.count.saturating_sub(self.rows.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(preview: Value) -> Summary {
        let mut whole = json!({"rows_affected": 1, "result": {}, "rollback": types::Rollback::irreversible("")});
        whole.as_object_mut().unwrap().extend(preview.as_object().unwrap().clone());
        Summary::new(&serde_json::from_value(whole).unwrap())
    }

    fn said(summary: &Summary) -> Vec<String> {
        summary.count_sentence().into_iter().chain(summary.groups.iter().flat_map(RowGroup::columns)).collect()
    }

    #[test]
    fn many_rows_are_said_by_column_and_by_value() {
        let row = |id: usize, dose: usize| json!({"id": id, "times_per_day": dose, "note": "after a meal"});
        let old = |id: usize| {
            if id < 41 {
                2
            } else if id < 61 {
                1
            } else {
                3
            }
        };
        let before: Vec<Value> = (0..80).map(|id| row(id, old(id))).collect();
        let after: Vec<Value> = (0..80).map(|id| row(id, 5)).collect();
        let effects = |id: usize| {
            json!({"table": "hospital.prescription", "key": {"id": id}, "change": "update",
                "columns": {"times_per_day": {"before": old(id).to_string(), "after": "5"},
                    "updated_at": {"before": "noon", "after": "(generated)"}}, "generated": ["updated_at"]})
        };
        let rows: Vec<Value> = (0..80).map(effects).collect();
        let found = summary(
            json!({"before": before, "after": after, "row_key": ["id"], "effects": {"count": 80, "rows": rows}}),
        );
        assert_eq!(
            said(&found),
            [
                "It would update 80 rows of hospital.prescription.",
                "times_per_day: 80 rows become 5 (41 were 2, 20 were 1, 19 were 3)",
                "updated_at: 80 rows get a generated value (80 were noon)"
            ]
        );
        let [group] = found.groups.as_slice() else { panic!("{:?}", found.groups) };
        let first = &group.rows[0];
        assert_eq!((first.key.len(), first.columns.len(), first.same.len()), (1, 2, 1));
        assert_eq!(first.generated, ["updated_at"]);
    }

    #[test]
    fn rows_of_cascades_are_apart_and_all_of_them_are_counted() {
        let delete = |table: &str, id: u32, by_trigger: bool| json!({"table": table, "key": {"id": id}, "change": "delete", "by_trigger": by_trigger, "columns": {"id": "1"}});
        let rows =
            [delete("h.patient", 1, false), delete("h.prescription", 1, true), delete("h.prescription", 2, true)];
        let found =
            summary(json!({"before": [{"id": 1, "name": "Ada"}], "after": [], "effects": {"count": 3, "rows": rows}}));
        let said = [
            Some("It would delete 1 row of h.patient, and change 2 more rows of h.prescription."),
            Some("delete 2 rows of h.prescription"),
        ];
        assert_eq!([found.count_sentence().as_deref(), found.further().as_deref()], said);
        assert_eq!(found.groups[0].rows[0].columns[0].name, "name", "the rows of the tool are those of the table");
        // PostgreSQL runs the triggers of an action of a foreign key as if the statement had changed the row.
        let mut by_action = rows.clone();
        by_action.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("by_trigger")));
        let same = summary(
            json!({"before": [{"id": 1, "name": "Ada"}], "after": [], "effects": {"count": 3, "rows": by_action}}),
        );
        assert_eq!([same.count_sentence(), same.further()], [found.count_sentence(), found.further()]);
        let counts = json!([{"table": "h.patient", "change": "delete", "count": 1},
            {"table": "h.prescription", "change": "delete", "by_trigger": true, "count": 5000}]);
        let found = summary(json!({"effects": {"count": 5001, "rows": rows, "by_table": counts}}));
        assert_eq!((found.groups[1].count, found.groups[1].unlisted()), (5000, 4998));
    }

    #[test]
    fn rows_that_a_caller_does_not_see_are_those_of_people_and_the_others_keep_their_values() {
        let row = |id: u32, is_unseen: bool| {
            json!({"table": "h.dose", "key": {"id": id}, "change": "update", "is_unseen": is_unseen,
                "columns": {"dose": {"before": id.to_string(), "after": "0"}}})
        };
        let preview = |rows: Vec<Value>| -> Preview {
            serde_json::from_value(json!({"rows_affected": 2, "result": {}, "effects": {"count": 2, "rows": rows},
                "rollback": types::Rollback::irreversible("")}))
            .unwrap()
        };
        let whole = preview(vec![row(1, true), row(2, false)]);
        let seen = preview(vec![row(2, false)]);
        let keys =
            |summary: &Summary| summary.groups[0].rows.iter().map(|row| row.key[0].1.clone()).collect::<Vec<_>>();
        assert_eq!(keys(&Summary::new(&whole)), [1, 2]);
        let shown = Summary::shown(&whole, &seen);
        assert_eq!((keys(&shown), &shown.groups[0].rows[0].columns[0].before), (vec![json!(2)], &Some(json!("2"))));
    }

    #[test]
    fn masks_are_not_summed_up_as_if_they_were_values() {
        let preview = |mail: fn(u32) -> [String; 2]| -> Preview {
            let image = |side: usize| (1..4).map(|id| json!({"id": id, "mail": mail(id)[side]})).collect::<Vec<_>>();
            let row = |id: u32| {
                let columns =
                    json!({"mail": {"before": mail(id)[0], "after": mail(id)[1]}, "n": {"before": "1", "after": "2"}});
                json!({"table": "s.t", "key": {"id": id}, "change": "update", "columns": columns})
            };
            serde_json::from_value(json!({"rows_affected": 3, "result": {}, "before": image(0), "after": image(1), "row_key": ["id"],
                "effects": {"count": 3, "rows": (1..4).map(row).collect::<Vec<_>>()}, "rollback": types::Rollback::irreversible("")}))
            .unwrap()
        };
        let whole = preview(|id| [format!("m{id}"), format!("M{id}")]);
        let mut masked = preview(|_| ["m***".to_owned(), "M***".to_owned()]);
        let expected = ["mail: 3 rows change (masked)", "n: 3 rows become 2 (3 were 1)"];
        assert_eq!(Summary::shown(&whole, &masked).groups[0].columns(), expected);
        let row = &Summary::shown(&whole, &masked).groups[0].rows[0];
        assert_eq!((&row.masked, &row.columns[0].after), (&vec!["mail".to_owned()], &Some(json!("M***"))));
        // The same of rows that only the ledger knows.
        let mut whole = whole;
        for preview in [&mut whole, &mut masked] {
            (preview.before, preview.after) = (None, None);
        }
        assert_eq!(Summary::shown(&whole, &masked).groups[0].columns(), expected);
    }

    #[test]
    fn a_plan_says_of_which_rows_it_knows_the_values() {
        let row = |id: u32, is_cut: bool| {
            let columns = if is_cut { json!({}) } else { json!({"dose": {"before": "5", "after": "2"}}) };
            json!({"table": "h.dose", "key": {"id": id}, "change": "update", "columns": columns, "is_cut": is_cut})
        };
        let effects = json!({"count": 80, "rows": [row(1, false), row(2, false), row(3, true)]});
        let counts = json!([{"table": "h.dose", "change": "update", "rows": 80, "changed": {"dose": 80}}]);
        let counts: Vec<PlanSummary> = serde_json::from_value(counts).unwrap();
        let found = Summary::of_plan(serde_json::from_value(effects).ok(), &counts, &BTreeMap::new());
        let [group] = found.groups.as_slice() else { panic!("{:?}", found.groups) };
        assert_eq!((group.title().as_str(), group.unlisted()), ("update 80 rows of h.dose", 77));
        assert_eq!(group.columns(), ["dose: 2 rows become 2 (2 were 5); of 78 other rows it is not known"]);
    }

    #[test]
    fn a_column_that_the_tool_does_not_read_is_known_of_the_recorded_rows_only() {
        let image = |dose: u32| (0..4).map(|id| json!({"id": id, "dose": dose})).collect::<Vec<_>>();
        let effect = |id: u32| {
            json!({"table": "h.dose", "key": {"id": id}, "change": "update",
            "columns": {"dose": {"before": "1", "after": "2"}, "by": {"before": "a", "after": "b"}}})
        };
        let counts = json!([{"table": "h.dose", "change": "update", "count": 4}]);
        let effects = json!({"count": 4, "rows": [effect(0), effect(1)], "by_table": counts});
        let found = summary(json!({"before": image(1), "after": image(2), "row_key": ["id"], "effects": effects}));
        let [group] = found.groups.as_slice() else { panic!("{:?}", found.groups) };
        assert_eq!(
            group.columns(),
            ["dose: 4 rows become 2 (4 were 1)", "by: 2 rows become b (2 were a); of 2 other rows it is not known"]
        );
    }

    #[test]
    fn a_change_that_the_tool_does_not_read_is_shown() {
        let effect = json!({"table": "s.package", "key": {"id": 1}, "change": "update", "columns": {"price": {"before": "1", "after": "2"}}});
        let image = json!([{"id": 1, "title": "Sunset"}, {"id": 2, "title": "Newborn"}]);
        let found = summary(json!({"before": image, "after": image, "effects": {"count": 1, "rows": [effect]}}));
        assert_eq!(said(&found), ["It would update 1 row of s.package.", "price: 1 becomes 2"]);
        assert_eq!((found.unchanged, found.groups.len()), (1, 1));
    }

    #[test]
    fn rows_that_are_not_those_of_one_table_are_shown_beside_those_of_the_tables() {
        let effect = json!({"table": "s.package", "key": {"id": 1}, "change": "update", "columns": {"price": {"before": "1", "after": "2"}}});
        let found = summary(json!({"before": [{"name": "x", "total": 1}], "after": [{"name": "x", "total": 2}],
            "effects": {"count": 1, "rows": [effect]}}));
        let origins: Vec<RowOrigin> = found.groups.iter().map(|group| group.origin).collect();
        assert_eq!(origins, [RowOrigin::Statement, RowOrigin::Tool]);
        assert_eq!(found.count_sentence().as_deref(), Some("It would update 1 row of s.package."));
        let untracked = summary(json!({"before": [{"id": 1}], "after": []}));
        assert_eq!(untracked.count_sentence().as_deref(), Some("It would delete 1 row."));
        assert_eq!(summary(json!({})).count_sentence(), None);
    }
}
