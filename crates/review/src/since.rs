//! What has changed since a proposal was made: its rows as they were shown and as they are now, and who changed them.

use std::collections::{BTreeMap, HashMap};

use ledger::proposals::{Preview, Proposal, ProposalCheck};
use serde_json::Value;
use types::{ChangeKind, RowHistoryEntry, visible};

use crate::summary::{ChangedBy, ChangedColumn, ChangedRow, RowGroup, RowOrigin, Summary};

/// What has changed since a proposal was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Since {
    /// What the newest check found.
    pub check: Option<String>,
    /// The rows. The value before is the one that was shown, the value after the one that is there now.
    pub rows: Summary,
}

/// A row by its table and key.
type Place = (Option<String>, String);

/// The values of a column before and after a write.
type Values<'a> = (Option<&'a Value>, Option<&'a Value>);

impl Since {
    /// What is known of a pending or stale proposal: its newest check, and the recorded changes of its rows, newest first.
    /// `None` if there is neither.
    #[must_use]
    pub fn new(proposal: &Proposal, changes: &[RowHistoryEntry<Value>]) -> Option<Self> {
        if !proposal.status.can_be_checked() || proposal.check.is_none() && changes.is_empty() {
            return None;
        }
        let mut rows = Rows::new(changes);
        let found = proposal.check.as_ref().and_then(|check| check.found.as_ref());
        if let Some(found) = found {
            rows.compare(&Summary::new(&proposal.preview), &Summary::new(found));
        }
        let checked_at =
            proposal.check.as_ref().filter(|_| found.is_some()).and_then(|check| check.checked_at.as_deref());
        rows.add_recorded(changes.iter().rev().filter(|change| change.changed_at.as_deref() > checked_at));
        Some(Self { check: proposal.check.as_ref().map(|check| sentence(check, &proposal.preview)), rows: rows.found })
    }

    /// The check and the rows, in sentences.
    pub fn sentences(&self) -> impl Iterator<Item = String> {
        let titles = self.rows.groups.iter().map(|group| format!("{}.", group.title()));
        self.check.clone().into_iter().chain(titles)
    }
}

fn sentence(check: &ProposalCheck, preview: &Preview) -> String {
    let minute = |at: &str| at.chars().take(16).collect::<String>().replace('T', " ");
    match (&check.checked_at, &check.difference) {
        (None, _) => {
            format!("A check was asked for at {} UTC, and no server has made it yet.", minute(&check.requested_at))
        }
        (Some(at), None) => {
            let is_cut = preview.effects.as_ref().is_some_and(|effects| effects.count > effects.rows.len() as u64);
            let others = if is_cut { " Values of updated rows that are not listed were not compared." } else { "" };
            format!("Checked at {} UTC: it would still do what is shown.{others}", minute(at))
        }
        (Some(at), Some(difference)) => {
            format!("Checked at {} UTC: {}.", minute(at), visible(difference.trim_end_matches('.')))
        }
    }
}

/// The rows that were found so far.
struct Rows {
    found: Summary,
    /// The newest recorded change of each row.
    changed_by: HashMap<Place, (ChangeKind, ChangedBy)>,
    listed: Vec<Place>,
}

impl Rows {
    fn new(changes: &[RowHistoryEntry<Value>]) -> Self {
        let by = |change: &RowHistoryEntry<Value>| (place_of(change), (change.effect.change, ChangedBy::from(change)));
        Self { found: Summary::default(), changed_by: changes.iter().rev().map(by).collect(), listed: Vec::new() }
    }

    /// Compares what was shown with what would happen now.
    fn compare(&mut self, shown: &Summary, now: &Summary) {
        let (shown_rows, mut now_rows) = (by_place(shown), by_place(now));
        // Of a table with more rows than are listed, two executions may list different ones.
        let lists = |summary: &Summary, (table, _): &Place| {
            !summary.groups.iter().any(|group| group.table == *table && group.unlisted() > 0)
        };
        for (place, row) in shown_rows {
            let Some(other) = now_rows.remove(&place) else {
                if lists(now, &place) {
                    self.add_gone(place, row);
                }
                continue;
            };
            let columns = differences(row, other, |values| values.0);
            if columns.is_empty() {
                let columns = differences(row, other, |values| values.1);
                if !columns.is_empty() {
                    self.add(place, RowOrigin::Instead, ChangeKind::Update, of(row, columns), false);
                }
            } else {
                self.add(place, RowOrigin::Since, ChangeKind::Update, of(row, columns), true);
            }
        }
        for (place, row) in now_rows {
            if lists(shown, &place) {
                let column = |(name, (before, after)): (&str, Values<'_>)| ChangedColumn {
                    name: name.to_owned(),
                    before: None,
                    after: before.or(after).cloned(),
                };
                let columns = values(row).into_iter().map(column).collect();
                self.add(place, RowOrigin::Instead, ChangeKind::Insert, of(row, columns), false);
            }
        }
    }

    /// Adds a row that the write would not change any more.
    fn add_gone(&mut self, place: Place, row: &ChangedRow) {
        let column = |(name, (before, after)): (&str, Values<'_>)| ChangedColumn {
            name: name.to_owned(),
            before: before.or(after).cloned(),
            after: None,
        };
        let columns = values(row).into_iter().map(column).collect();
        let is_deleted = self.changed_by.get(&place).is_some_and(|(change, _)| *change == ChangeKind::Delete);
        let origin = if is_deleted { RowOrigin::Since } else { RowOrigin::Instead };
        self.add(place, origin, ChangeKind::Delete, of(row, columns), true);
    }

    /// Adds the rows that recorded changes have changed, if they are not listed. The changes are in order.
    fn add_recorded<'a>(&mut self, changes: impl Iterator<Item = &'a RowHistoryEntry<Value>>) {
        let mut rows: BTreeMap<Place, (ChangeKind, ChangedRow)> = BTreeMap::new();
        for change in changes {
            let row = ChangedRow::from(&change.effect);
            match rows.get_mut(&place_of(change)) {
                None => drop(rows.insert(place_of(change), (change.effect.change, row))),
                Some((kind, before)) => {
                    let is_again = (*kind, change.effect.change) == (ChangeKind::Delete, ChangeKind::Insert);
                    *kind = if is_again { ChangeKind::Update } else { change.effect.change };
                    before.is_cut |= row.is_cut;
                    before.has_sensitive_changes |= row.has_sensitive_changes;
                    for column in row.columns {
                        match before.columns.iter_mut().find(|known| known.name == column.name) {
                            Some(known) => known.after = column.after,
                            None => before.columns.push(column),
                        }
                    }
                }
            }
        }
        for (place, (kind, mut row)) in rows {
            row.columns.retain(|column| column.before != column.after);
            let differs = !row.columns.is_empty() || row.is_cut || row.has_sensitive_changes;
            if !self.listed.contains(&place) && (differs || kind != ChangeKind::Update) {
                self.add(place, RowOrigin::Since, kind, row, true);
            }
        }
    }

    /// Adds a row. `is_changed` says whether somebody has changed the row itself.
    fn add(&mut self, place: Place, origin: RowOrigin, change: ChangeKind, row: ChangedRow, is_changed: bool) {
        let recorded = self.changed_by.get(&place).map(|(_, by)| by.clone());
        // Who changes a table that is not tracked is not recorded.
        let outside = place.0.as_ref().map(|_| ChangedBy::Outside { origin: None });
        let changed_by = recorded.or(outside).filter(|_| is_changed);
        let row = ChangedRow { changed_by, ..row };
        let is_it = |group: &&mut RowGroup| (&group.table, group.origin, group.change) == (&place.0, origin, change);
        match self.found.groups.iter_mut().find(is_it) {
            Some(group) => {
                group.rows.push(row);
                group.count += 1;
            }
            None => {
                let table = place.0.clone();
                self.found.groups.push(RowGroup { table, origin, change, count: 1, rows: vec![row] });
            }
        }
        self.listed.push(place);
    }
}

/// A row with these columns instead of its own.
fn of(row: &ChangedRow, columns: Vec<ChangedColumn>) -> ChangedRow {
    let (is_cut, has_sensitive_changes) = (row.is_cut, row.has_sensitive_changes);
    ChangedRow { key: row.key.clone(), columns, is_cut, has_sensitive_changes, ..ChangedRow::default() }
}

/// The rows of a summary. Rows without a key are told apart by their order.
fn by_place(summary: &Summary) -> BTreeMap<Place, &ChangedRow> {
    let rows = summary.groups.iter().flat_map(|group| group.rows.iter().enumerate().map(move |row| (group, row)));
    let place = |(group, (at, row)): (&RowGroup, (usize, &ChangedRow))| {
        let key =
            if row.key.is_empty() { format!("#{at}") } else { key(row.key.iter().map(|(name, part)| (name, part))) };
        (group.table.clone(), key)
    };
    rows.map(|(group, row)| (place((group, row)), row.1)).collect()
}

fn place_of(change: &RowHistoryEntry<Value>) -> Place {
    (Some(change.effect.table.clone()), key(change.effect.key.iter().flatten()))
}

/// A key as text. Records have values in PostgreSQL's text format where tools have JSON.
fn key<'a>(parts: impl Iterator<Item = (&'a String, &'a Value)>) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut parts: Vec<(&String, String)> = parts.map(|(name, part)| (name, text(part))).collect();
    parts.sort_unstable();
    format!("{parts:?}")
}

/// The columns of a row, but for those that the database generates.
fn values(row: &ChangedRow) -> BTreeMap<&str, Values<'_>> {
    let same = row.same.iter().map(|(name, value)| (name.as_str(), (Some(value), Some(value))));
    let changed = row.columns.iter().map(|one| (one.name.as_str(), (one.before.as_ref(), one.after.as_ref())));
    same.chain(changed).collect()
}

/// The columns of two versions of a row that differ on one side: before the write, or after it.
fn differences(
    shown: &ChangedRow,
    now: &ChangedRow,
    side: impl for<'a> Fn(Values<'a>) -> Option<&'a Value>,
) -> Vec<ChangedColumn> {
    let (old, new) = (values(shown), values(now));
    let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))).copied();
    let column = |name: &str| {
        let of = |values: &BTreeMap<&str, Values<'_>>| values.get(name).copied().and_then(&side).cloned();
        let (before, after) = (of(&old), of(&new));
        let is_generated = shown.generated.iter().any(|one| one == name);
        (before != after && !is_generated).then(|| ChangedColumn { name: name.to_owned(), before, after })
    };
    names.filter_map(column).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn proposal(check: &Value) -> Proposal {
        let mut preview = preview(&json!([row(1, "open"), row(2, "open")]), &json!([row(1, "paid"), row(2, "paid")]));
        preview["generated"] = json!(["after.at"]);
        serde_json::from_value(json!({
            "proposal_id": "3f0c1a52-9c1e-4c7e-8a55-0d9f6b1f2a34", "account_id": "a", "tool_name": "t", "title": "T", "tool_version": "1",
            "definition": "", "tier": "approve", "approvals": 1, "approvers": null, "approved_by": [], "description": "", "params": {},
            "params_hash": "", "digest": "", "created_at": "", "expires_at": "", "status": "pending", "preview": preview, "check": check
        }))
        .unwrap()
    }

    fn row(id: u32, status: &str) -> Value {
        json!({"id": id, "status": status, "at": "noon"})
    }

    fn preview(before: &Value, after: &Value) -> Value {
        let effect = |id: u32| json!({"table": "shop.orders", "key": {"id": id}, "change": "update", "columns": {"status": {"before": "open", "after": "paid"}}});
        let ids = before.as_array().unwrap().iter().map(|row| effect(row["id"].as_u64().unwrap().try_into().unwrap()));
        json!({"rows_affected": 2, "result": {}, "before": before, "after": after, "row_key": ["id"], "rollback": types::Rollback::irreversible(""),
            "effects": {"count": before.as_array().unwrap().len(), "rows": ids.collect::<Vec<_>>()}})
    }

    fn change(id: u32, change: &str, columns: &Value, at: &str) -> RowHistoryEntry<Value> {
        serde_json::from_value(json!({
            "correlation_id": "00000000-0000-4000-8000-000000000001", "tool_name": "cancel", "account_id": "b", "actor": null, "client_name": null,
            "changed_at": at, "origin": null, "table": "shop.orders", "key": {"id": id}, "change": change, "columns": columns
        }))
        .unwrap()
    }

    #[test]
    fn a_check_shows_each_row_that_is_another_one_and_who_changed_it() {
        let found = preview(&json!([row(1, "sent"), row(3, "open")]), &json!([row(1, "paid"), row(3, "paid")]));
        let check = json!({"requested_at": "2026-11-23T18:04:05Z", "checked_at": "2026-11-23T18:04:06Z", "difference": "the rows have changed", "found": found});
        let gone = change(2, "delete", &json!({"status": "open"}), "2026-11-23T18:04:05.5Z");
        let since = Since::new(&proposal(&check), &[gone]).unwrap();
        let said: Vec<String> = since.sentences().collect();
        assert_eq!(
            said,
            [
                "Checked at 2026-11-23 18:04 UTC: the rows have changed.",
                "1 row of shop.orders has changed since.",
                "1 row of shop.orders was deleted since.",
                "1 row of shop.orders would be changed, too."
            ]
        );
        let [changed, gone, new] = since.rows.groups.as_slice() else { panic!("{since:?}") };
        let status = &changed.rows[0].columns[0];
        assert_eq!((&status.before, &status.after), (&Some(json!("open")), &Some(json!("sent"))));
        let by = |group: &RowGroup| group.rows[0].changed_by.as_ref().map(ChangedBy::words);
        assert_eq!(by(changed).as_deref(), Some("not through countersign"));
        assert_eq!(by(gone).as_deref(), Some("cancel of b, 2026-11-23 18:04 UTC"));
        assert_eq!(by(new), None);
    }

    #[test]
    fn recorded_changes_are_added_up_and_a_row_that_is_as_before_is_none() {
        let set =
            |id, from: &str, to: &str, at| change(id, "update", &json!({"status": {"before": from, "after": to}}), at);
        let changes = [
            set(1, "sent", "lost", "3"),
            set(2, "sent", "open", "3"),
            set(2, "open", "sent", "2"),
            set(1, "open", "sent", "1"),
        ];
        let since = Since::new(&proposal(&Value::Null), &changes).unwrap();
        let [group] = since.rows.groups.as_slice() else { panic!("{since:?}") };
        assert_eq!((group.title().as_str(), group.rows.len()), ("1 row of shop.orders has changed since", 1));
        let status = &group.rows[0].columns[0];
        assert_eq!((&status.before, &status.after), (&Some(json!("open")), &Some(json!("lost"))));
        assert_eq!(Since::new(&proposal(&Value::Null), &[]), None);
        let same = json!({"requested_at": "2026-11-23T18:04:05Z", "checked_at": "2026-11-23T18:04:06Z", "difference": null, "found": null});
        let since = Since::new(&proposal(&same), &[]).unwrap();
        assert_eq!(
            since.sentences().collect::<Vec<_>>(),
            ["Checked at 2026-11-23 18:04 UTC: it would still do what is shown."]
        );
    }
}
