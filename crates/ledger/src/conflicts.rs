//! The reasons why an undo is refused, for agents: those of `countersign.undo` and those of `countersign.finish`.

use pg::ServerError;
use serde_json::{Value, json};
use types::{ErrorCode, Failure};

/// The SQLSTATE of an undo that is no exact inverse (migrations). DETAIL has the conflicts as a JSON array.
const NO_INVERSE: &str = "CS002";

/// The most conflicts that one answer names; the message counts all.
const MOST_NAMED: usize = 20;

/// The conflict codes of `countersign.undo` with the words that the message counts them by.
const CODES: [(&str, &str); 12] = [
    ("changed_since", "changed since"),
    ("deleted_since", "deleted since"),
    ("key_taken", "whose key is taken"),
    ("needed_by", "needed by later writes"),
    ("referenced", "that other rows refer to"),
    ("parent_missing", "whose parent is missing"),
    ("constraint", "against a constraint"),
    ("schema_changed", "of a table whose columns have changed"),
    ("image_missing", "without an image of what was there before"),
    ("side_effects", "that a trigger or an action of a foreign key changed otherwise"),
    ("not_permitted", "not permitted"),
    ("irreversible", "that cannot be undone"),
];

/// The failure of an undo that is refused because of these conflicts (docs/internals/ledger.md, "One undo").
#[must_use]
pub(crate) fn undo_failure(mut conflicts: Vec<Value>) -> Failure {
    let code_of = |conflict: &Value| conflict.get("code").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(undone) = conflicts.iter().find(|conflict| code_of(conflict) == "already_reversed") {
        return already_reversed(undone.pointer("/changed_by/correlation_id").and_then(Value::as_str));
    }
    let counted: Vec<String> = CODES
        .iter()
        .map(|(code, words)| (conflicts.iter().filter(|conflict| code_of(conflict) == *code).count(), words))
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
}
