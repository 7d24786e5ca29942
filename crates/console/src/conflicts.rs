//! The reasons why an undo is refused, as pages show them.

use ledger::{CONFLICT_KINDS, ConflictKind};
use serde_json::Value;
use types::{CorrelationId, visible};

use crate::rows::{key, shown};
use crate::text::{sentence, to_the_minute};

/// The most conflicts of a page.
pub(crate) const MOST: usize = 100;

/// A row, or a write, that is in the way.
pub(crate) struct Conflict {
    /// `shop.orders id = 7, changed since`.
    pub(crate) title: String,
    pub(crate) message: Option<String>,
    pub(crate) columns: Vec<ConflictColumn>,
    pub(crate) write: Option<RecordLink>,
    pub(crate) changed_by: Option<RecordLink>,
    /// What changed the row outside of countersign.
    pub(crate) outside: Option<String>,
    pub(crate) remedy: Option<String>,
}

pub(crate) struct ConflictColumn {
    pub(crate) name: String,
    pub(crate) to_restore: String,
    pub(crate) left: String,
    pub(crate) now: String,
}

/// A record and its description.
pub(crate) struct RecordLink {
    pub(crate) id: String,
    pub(crate) text: String,
}

/// `3 rows changed since, 1 deleted since`.
pub(crate) fn counted(conflicts: &[Value]) -> String {
    let part = |kind: &ConflictKind| {
        let of_kind: Vec<&Value> = conflicts.iter().filter(|conflict| code(conflict) == kind.code).collect();
        let noun = if of_kind.first()?.get("table").is_some() { "row" } else { "write" };
        let plural = if of_kind.len() == 1 { "" } else { "s" };
        Some(format!("{} {noun}{plural} {}", of_kind.len(), kind.words))
    };
    CONFLICT_KINDS.iter().filter_map(part).collect::<Vec<_>>().join(", ")
}

/// The first conflicts.
pub(crate) fn list(conflicts: &[Value]) -> Vec<Conflict> {
    conflicts.iter().take(MOST).map(conflict).collect()
}

fn code(conflict: &Value) -> &str {
    conflict.get("code").and_then(Value::as_str).unwrap_or_default()
}

fn conflict(conflict: &Value) -> Conflict {
    let text = |name: &str| conflict.get(name).and_then(Value::as_str).map(visible);
    let columns = conflict.get("columns").and_then(Value::as_array).into_iter().flatten();
    let changed_by = conflict.get("changed_by");
    let kind = ConflictKind::of(code(conflict));
    let place = text("table").map(|table| format!("{table} {}", key(conflict.get("key"))));
    let words = kind.map_or_else(|| visible(code(conflict)), |kind| kind.words.to_owned());
    Conflict {
        title: format!("{}, {words}", place.as_deref().unwrap_or("A write")),
        message: text("message"),
        columns: columns.map(column).collect(),
        write: conflict.get("write").and_then(link),
        changed_by: changed_by.and_then(link),
        outside: changed_by.and_then(outside),
        remedy: kind.map(|kind| sentence(kind.remedy)),
    }
}

fn column(column: &Value) -> ConflictColumn {
    let value = |name: &str| column.get(name).map_or_else(|| "–".to_owned(), shown);
    ConflictColumn { name: value("name"), to_restore: value("to_restore"), left: value("left"), now: value("now") }
}

fn link(write: &Value) -> Option<RecordLink> {
    let text = |name: &str| write.get(name).and_then(Value::as_str).map(visible);
    let id = CorrelationId::parse(write.get("correlation_id")?.as_str()?)?.to_string();
    let at = text("completed_at").map(|at| format!(", {}", to_the_minute(at))).unwrap_or_default();
    let by = text("actor").map(|actor| format!(", {actor}")).unwrap_or_default();
    Some(RecordLink { id, text: format!("{}{by}{at}", text("tool_name").unwrap_or_default()) })
}

fn outside(by: &Value) -> Option<String> {
    let text = |name: &str| by.get(name).and_then(Value::as_str).map(visible);
    let at = text("at").map(|at| format!(", {}", to_the_minute(at))).unwrap_or_default();
    text("outside").map(|origin| format!("{origin}{at}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conflicts_are_of_rows_or_of_writes() {
        let row = json!({"code": "changed_since", "table": "shop.orders", "key": {"id": 7}});
        let write = json!({"code": "already_reversed"});
        assert_eq!(counted(&[row.clone(), row.clone(), write.clone()]), "2 rows changed since, 1 write undone before");
        let [row, write] = [conflict(&row), conflict(&write)];
        assert_eq!(
            (row.title.as_str(), write.title.as_str()),
            ("shop.orders id = 7, changed since", "A write, undone before")
        );
        let remedy = "Undo the later change first, or write what the row should be now.";
        assert_eq!(row.remedy.as_deref(), Some(remedy));
    }

    #[test]
    fn the_console_says_the_same_of_every_kind_of_conflict() {
        let conflicts: Vec<Value> =
            serde_json::from_str(include_str!("../../../tests/golden/review/conflicts.json")).unwrap();
        let link = |name: &str, link: Option<RecordLink>| {
            link.map(|link| format!("  {name} /records/{}: {}", link.id, link.text))
        };
        let mut said = vec![counted(&conflicts)];
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
            said.extend(one.remedy.map(|remedy| format!("  {remedy}")));
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
