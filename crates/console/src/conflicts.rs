//! The reasons why an undo is refused, for the pages.

use serde_json::Value;
use types::{Conflict, ConflictColumn, ConflictWrite, Member, RowChanger, visible};

use crate::rows::key;
use crate::text::shown;
use crate::text::{sentence, to_the_minute};

/// The maximum number of conflicts on a page.
pub(crate) const MAX_CONFLICTS: usize = 100;

/// A row or a write that prevents an undo, for a page.
pub(crate) struct ShownConflict {
    /// `shop.orders id = 7, changed since`.
    pub(crate) title: String,
    pub(crate) message: Option<String>,
    pub(crate) columns: Vec<ShownColumn>,
    pub(crate) write: Option<RecordLink>,
    pub(crate) changed_by: Option<RecordLink>,
    /// A change of the row that was made outside of countersign.
    pub(crate) outside: Option<String>,
    pub(crate) remedy: String,
}

pub(crate) struct ShownColumn {
    pub(crate) name: String,
    pub(crate) to_restore: String,
    pub(crate) left: String,
    pub(crate) now: String,
}

pub(crate) struct RecordLink {
    pub(crate) id: String,
    pub(crate) text: String,
}

/// The first conflicts.
pub(crate) fn list(conflicts: &[Conflict<Value>]) -> Vec<ShownConflict> {
    conflicts.iter().take(MAX_CONFLICTS).map(conflict).collect()
}

fn conflict(conflict: &Conflict<Value>) -> ShownConflict {
    let place = conflict
        .table
        .get()
        .map(|table| format!("{} {}", visible(table), key(conflict.key.get().into_iter().flatten())));
    let (changed_by, outside) = match conflict.changed_by.get() {
        Some(RowChanger::Write(write)) => (Some(link(write)), None),
        Some(RowChanger::Outside { outside, at }) => (None, outside.as_deref().map(|origin| from_outside(origin, at))),
        None => (None, None),
    };
    ShownConflict {
        title: format!("{}, {}", place.as_deref().unwrap_or("A write"), conflict.kind.words()),
        message: conflict.message.get().map(|message| visible(message)),
        columns: conflict.columns.get().into_iter().flatten().map(column).collect(),
        write: conflict.write.get().map(link),
        changed_by,
        outside,
        remedy: sentence(conflict.kind.remedy()),
    }
}

fn column(column: &ConflictColumn<Value>) -> ShownColumn {
    let value = |value: &Member<Value>| match value {
        Member::Absent => "–".to_owned(),
        Member::Null => shown(&Value::Null),
        Member::Value(value) => shown(value),
    };
    ShownColumn {
        name: visible(&column.name),
        to_restore: value(&column.to_restore),
        left: value(&column.left),
        now: value(&column.now),
    }
}

fn link(write: &ConflictWrite) -> RecordLink {
    let at = write.completed_at.get().map(|at| format!(", {}", to_the_minute(visible(at)))).unwrap_or_default();
    let by = write.actor.get().map(|actor| format!(", {}", visible(actor))).unwrap_or_default();
    let tool = write.tool_name.get().map(|tool| visible(tool)).unwrap_or_default();
    RecordLink { id: write.correlation_id.to_string(), text: format!("{tool}{by}{at}") }
}

fn from_outside(origin: &str, at: &Member<String>) -> String {
    let at = at.get().map(|at| format!(", {}", to_the_minute(visible(at)))).unwrap_or_default();
    format!("{}{at}", visible(origin))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use types::ConflictKind;

    use super::*;

    #[test]
    fn conflicts_are_of_rows_or_of_writes() {
        let one = |found: Value| serde_json::from_value::<Conflict<Value>>(found).unwrap();
        let row = one(json!({"code": "changed_since", "table": "shop.orders", "key": {"id": 7}}));
        let write = one(json!({"code": "already_reversed"}));
        assert_eq!(
            ConflictKind::counted_words(&[row.clone(), row.clone(), write.clone()]),
            "2 rows changed since, 1 write undone before"
        );
        let [row, write] = [conflict(&row), conflict(&write)];
        assert_eq!(
            (row.title.as_str(), write.title.as_str()),
            ("shop.orders id = 7, changed since", "A write, undone before")
        );
        let remedy = "Undo the later change first, or write what the row should be now.";
        assert_eq!(row.remedy, remedy);
    }

    #[test]
    fn the_console_says_the_same_of_every_kind_of_conflict() {
        let conflicts: Vec<Conflict<Value>> =
            serde_json::from_str(include_str!("../../../tests/golden/review/conflicts.json")).unwrap();
        let link = |name: &str, link: Option<RecordLink>| {
            link.map(|link| format!("  {name} /records/{}: {}", link.id, link.text))
        };
        let mut said = vec![ConflictKind::counted_words(&conflicts)];
        for one in list(&conflicts) {
            said.push(one.title);
            said.extend(one.message.map(|message| format!("  {message}")));
            said.extend(
                one.columns.into_iter().map(|column| {
                    format!("  {} | {} | {} | {}", column.name, column.to_restore, column.left, column.now)
                }),
            );
            said.extend(link("write", one.write));
            said.extend(link("changed by", one.changed_by));
            said.extend(one.outside.map(|outside| format!("  outside {outside}")));
            said.push(format!("  {}", one.remedy));
        }
        said.push("\nLeft out, by a plan:".to_owned());
        let left_out = conflicts.iter().map(crate::pages::undo::left_out_write);
        said.extend(left_out.map(|one| format!("{} {} {}", one.id, one.tool, one.why)));
        let said = said.join("\n") + "\n";
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(
                concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/review/conflicts.console.txt"),
                &said,
            )
            .unwrap();
        }
        assert_eq!(said, include_str!("../../../tests/golden/review/conflicts.console.txt"));
    }
}
