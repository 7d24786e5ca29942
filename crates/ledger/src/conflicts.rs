//! The reasons why an undo is refused, for agents: those of `countersign.undo` and those of `countersign.finish`.

use pg::ServerError;
use serde_json::{Value, json};
use types::{ErrorCode, Failure};

/// The SQLSTATE of an undo that is no exact inverse (migrations). DETAIL has the conflicts as a JSON array.
const NO_INVERSE: &str = "CS002";

/// The most conflicts that one answer names; the message counts all.
const MOST_NAMED: usize = 20;

/// A kind of conflict of an undo (docs/internals/ledger.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConflictKind {
    /// The code, as `countersign.undo` reports it.
    pub code: &'static str,
    /// The words by which a message counts its rows: "2 rows changed since".
    pub words: &'static str,
    /// What a person can do about it.
    pub remedy: &'static str,
}

const fn kind(code: &'static str, words: &'static str, remedy: &'static str) -> ConflictKind {
    ConflictKind { code, words, remedy }
}

/// The kinds of conflicts, in the order in which messages count them.
pub const CONFLICT_KINDS: [ConflictKind; 14] = [
    kind("changed_since", "changed since", "undo the later change first, or write what the row should be now"),
    kind("deleted_since", "deleted since", "undo the deletion first"),
    kind("key_taken", "whose key is taken", "remove or renumber the row that has the key now"),
    kind(
        "needed_by",
        "needed by later writes",
        "undo those as well (mode cascade), or leave the write out (mode skip)",
    ),
    kind("referenced", "that other rows refer to", "remove what refers to the row first"),
    kind("parent_missing", "whose parent is missing", "bring the parent back first"),
    kind("constraint", "against a constraint", "see which rows violate it"),
    kind("schema_changed", "of a table whose columns have changed", "write what the row should be now"),
    kind(
        "image_missing",
        "without an image of what was there before",
        "call the undo tool that the write names (countersign audit show), if it names one",
    ),
    kind(
        "side_effects",
        "that a trigger or an action of a foreign key changed otherwise",
        "declare the column as maintained (countersign track), if a trigger sets it",
    ),
    kind("not_permitted", "not permitted", "grant the login what the write needed"),
    kind("already_reversed", "undone before", "to have the write back, undo that undo"),
    kind("irreversible", "that cannot be undone", "only a success on tables with a key can be undone"),
    kind("in_doubt", "in doubt", "wait until the write has ended"),
];

impl ConflictKind {
    /// The kind of this code.
    #[must_use]
    pub fn of(code: &str) -> Option<Self> {
        CONFLICT_KINDS.into_iter().find(|kind| kind.code == code)
    }
}

/// The failure of an undo that is refused because of these conflicts (docs/internals/ledger.md, "One undo").
#[must_use]
pub(crate) fn undo_failure(mut conflicts: Vec<Value>) -> Failure {
    let code_of = |conflict: &Value| conflict.get("code").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(undone) = conflicts.iter().find(|conflict| code_of(conflict) == "already_reversed") {
        return already_reversed(undone.pointer("/changed_by/correlation_id").and_then(Value::as_str));
    }
    let counted: Vec<String> = CONFLICT_KINDS
        .iter()
        .map(|kind| (conflicts.iter().filter(|conflict| code_of(conflict) == kind.code).count(), kind.words))
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} row{} {words}", if count == 1 { "" } else { "s" }))
        .collect();
    let hint = match conflicts.iter().map(code_of).find(|code| code != "changed_since").as_deref() {
        None => "Look at what changed the rows: undo that first, or write what the rows should be now.",
        Some("image_missing") => {
            "The server did not record what the write found: its tables are not tracked, or its record was pruned. \
            If meta.rollback of the write names an undo tool, call that."
        }
        Some("irreversible") => "Only a write that succeeded, on tables with a key, can be undone.",
        Some(_) => "`conflicts` names each row, and what is in the way.",
    };
    let message = format!("the write cannot be undone: {}; nothing was changed", counted.join(", "));
    conflicts.truncate(MOST_NAMED);
    let conflicts = Some(Box::new(Value::Array(conflicts)));
    Failure { conflicts, ..Failure::new(ErrorCode::UndoConflict, message) }.hint(hint)
}

/// The failure of an undo whose write was undone before.
pub(crate) fn already_reversed(by: Option<&str>) -> Failure {
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
    Failure::new(ErrorCode::AlreadyReversed, format!("the write was undone before{by}; nothing was changed")).hint(
        "To have the write back, undo that undo. A write that was undone and redone is undone by undoing the redo.",
    )
}

/// The failure for an undo that `countersign.finish` refuses; `None` for every other error.
pub(crate) fn refused_inverse(error: &ServerError) -> Option<Failure> {
    let is_taken = |name: &str| error.sqlstate == "23505" && error.constraint.as_deref() == Some(name);
    if is_taken("reversal_pkey") || is_taken("reversal_part_pkey") {
        return Some(already_reversed(None));
    }
    let detail = error.detail.as_deref().filter(|_| error.sqlstate == NO_INVERSE)?;
    // A long DETAIL is cut.
    let cut = || vec![json!({"code": "side_effects", "message": error.message})];
    Some(undo_failure(serde_json::from_str(detail).unwrap_or_else(|_| cut())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_counts_conflicts_by_their_code() {
        let conflicts = vec![
            json!({"code": "deleted_since"}),
            json!({"code": "changed_since", "table": "shop.orders", "key": {"id": 7}}),
            json!({"code": "changed_since"}),
        ];
        let failure = undo_failure(conflicts.clone());
        assert_eq!(
            failure.message,
            "the write cannot be undone: 2 rows changed since, 1 row deleted since; nothing was changed"
        );
        assert_eq!((failure.code, failure.conflicts), (ErrorCode::UndoConflict, Some(Box::new(conflicts.into()))));
    }

    #[test]
    fn an_undone_write_names_its_undo() {
        let undone = vec![json!({"code": "already_reversed", "changed_by": {"correlation_id": "77"}})];
        let failure = undo_failure(undone);
        assert_eq!(failure.code, ErrorCode::AlreadyReversed);
        assert!(failure.message.contains("undone before by 77"), "{}", failure.message);
    }

    #[test]
    fn agents_get_the_same_of_every_kind_of_conflict() {
        let conflicts: Vec<Value> =
            serde_json::from_str(include_str!("../../../tests/golden/review/conflicts.json")).unwrap();
        let said = serde_json::to_string_pretty(&undo_failure(conflicts)).unwrap() + "\n";
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(
                concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/review/conflicts.agent.json"),
                &said,
            )
            .unwrap();
        }
        assert_eq!(said, include_str!("../../../tests/golden/review/conflicts.agent.json"));
    }
}
