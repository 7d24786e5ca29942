//! Failures of refused undos, for agents, from the conflicts that `countersign.undo` and `countersign.finish` report.

use pg::ServerError;
use serde_json::{Value, json};
use types::{Conflict, ConflictKind, Conflicts, CorrelationId, ErrorCode, Failure, RowChanger};

/// The SQLSTATE of an undo that is not an exact inverse (see the migrations). DETAIL has the conflicts as a JSON
/// array.
const NO_INVERSE: &str = "CS002";

/// The maximum number of conflicts in one answer; the message counts all.
const MAX_NAMED: usize = 20;

/// The failure of an undo with these conflicts (docs/internals/ledger.md, "One undo").
#[must_use]
pub(crate) fn undo_failure(mut conflicts: Vec<Conflict>) -> Failure {
    if let Some(undone) = conflicts.iter().find(|conflict| conflict.kind == ConflictKind::AlreadyReversed) {
        if let Some(made_again) = undone.message.get() {
            return already_reversed(None).hint(made_again.clone());
        }
        let by = match undone.changed_by.get() {
            Some(RowChanger::Write(by)) => Some(by.correlation_id),
            Some(RowChanger::Outside { .. }) | None => None,
        };
        return already_reversed(by);
    }
    let counted = ConflictKind::counted_words(&conflicts);
    let hint = match conflicts.iter().map(|conflict| conflict.kind).find(|kind| *kind != ConflictKind::ChangedSince) {
        None => "Look at what changed the rows: undo that first, or write what the rows should be now.",
        Some(ConflictKind::ImageMissing) => {
            "The server did not record what the write found: its tables are not tracked, or its record was pruned. \
            If meta.rollback of the write names an undo tool, call that."
        }
        Some(ConflictKind::Irreversible) => "Only a write that succeeded, on tables with a key, can be undone.",
        Some(_) => "`conflicts` names each row, and what is in the way.",
    };
    let message = format!("the write cannot be undone: {counted}; nothing was changed");
    conflicts.truncate(MAX_NAMED);
    let conflicts = Some(Box::new(Conflicts::Found(conflicts)));
    Failure { conflicts, ..Failure::new(ErrorCode::UndoConflict, message) }.hint(hint)
}

pub(crate) fn already_reversed(by: Option<CorrelationId>) -> Failure {
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
    Failure::new(ErrorCode::AlreadyReversed, format!("the write was undone before{by}; nothing was changed")).hint(
        "To have the write back, undo that undo. A write that was undone and redone is undone by undoing the redo.",
    )
}

/// The failure if `countersign.finish` refuses an undo; `None` for every other error.
pub(crate) fn refused_inverse(error: &ServerError) -> Option<Failure> {
    let is_taken = |name: &str| error.sqlstate == "23505" && error.constraint.as_deref() == Some(name);
    if is_taken("reversal_pkey") || is_taken("reversal_part_pkey") {
        return Some(already_reversed(None));
    }
    let detail = error.detail.as_deref().filter(|_| error.sqlstate == NO_INVERSE)?;
    // PostgreSQL's DETAIL may be cut, so that it is no valid JSON.
    let cut = || vec![Conflict::new(ConflictKind::SideEffects).with_message(&error.message)];
    Some(undo_failure(serde_json::from_str(detail).unwrap_or_else(|_| cut())))
}

/// The conflicts of a failure, in the form in which its record stores them.
pub(crate) fn detail(failure: &Failure) -> Option<String> {
    match failure.conflicts.as_deref()? {
        Conflicts::Found(found) => Some(stored(found).to_string()),
        Conflicts::Shown(_) => None,
    }
}

/// Conflicts in the form in which the ledger stores them.
pub(crate) fn stored(conflicts: &[Conflict]) -> Value {
    json!(conflicts.iter().map(Conflict::stored).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use types::CellMasks;

    use super::*;

    fn conflicts(found: Value) -> Vec<Conflict> {
        serde_json::from_value(found).unwrap()
    }

    #[test]
    fn the_message_counts_conflicts_by_their_code() {
        let conflicts = conflicts(json!([
            {"code": "deleted_since"},
            {"code": "changed_since", "table": "shop.orders", "key": {"id": 7}},
            {"code": "changed_since", "table": "shop.orders", "key": {"id": 8}},
        ]));
        let failure = undo_failure(conflicts.clone());
        assert_eq!(
            failure.message,
            "the write cannot be undone: 2 rows changed since, 1 write deleted since; nothing was changed"
        );
        let found = Some(Box::new(Conflicts::Found(conflicts)));
        assert_eq!((failure.code, failure.conflicts), (ErrorCode::UndoConflict, found));
    }

    #[test]
    fn an_undone_write_names_its_undo() {
        let by = CorrelationId::new().to_string();
        let failure =
            undo_failure(conflicts(json!([{"code": "already_reversed", "changed_by": {"correlation_id": by}}])));
        assert_eq!(failure.code, ErrorCode::AlreadyReversed);
        assert!(failure.message.contains(&format!("undone before by {by}")), "{}", failure.message);
    }

    #[test]
    fn agents_get_the_same_of_every_kind_of_conflict() {
        let conflicts = serde_json::from_str(include_str!("../../../../tests/golden/review/conflicts.json")).unwrap();
        let failure = undo_failure(conflicts).shown(CellMasks::new(None));
        let said = serde_json::to_string_pretty(&failure).unwrap() + "\n";
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(
                concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/review/conflicts.agent.json"),
                &said,
            )
            .unwrap();
        }
        assert_eq!(said, include_str!("../../../../tests/golden/review/conflicts.agent.json"));
    }
}
