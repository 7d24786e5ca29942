//! The undo of the newest write of each tool, tried and rolled back (`doctor --undo-drill`).

use ledger::Ledger;
use ledger::audit::RecordName;
use ledger::operator::UndoOutcome;
use review::Finding;
use review::sentences::{rows, short_id};
use types::{Conflict, ConflictKind, visible};

use crate::terminal::os_user;

const AREA: &str = "undo";

pub(super) async fn examine(ledger: &Ledger) -> Vec<Finding> {
    let writes = match ledger.doctor().newest_undoable().await {
        Ok(writes) => writes,
        Err(error) => return vec![Finding::unasked(AREA, "the newest write of each tool", &error)],
    };
    if writes.is_empty() {
        return vec![Finding::unchecked(AREA, "no write on record says that its changes can be undone")];
    }
    let mut findings = Vec::new();
    for write in &writes {
        findings.push(tried(ledger, write).await);
    }
    findings
}

async fn tried(ledger: &Ledger, write: &RecordName) -> Finding {
    let subject =
        format!("the newest write of {} ({})", visible(&write.tool_name), short_id(&write.correlation_id.to_string()));
    let finding = match ledger.operator().try_undo(&[write.correlation_id], &os_user::name()).await {
        Ok(UndoOutcome::Conflicts { conflicts, .. }) => found(&subject, &conflicts),
        Ok(UndoOutcome::WouldUndo { rows: count, .. } | UndoOutcome::Undone { rows: count, .. }) => {
            Finding::ok(AREA, format!("{subject} can be undone: {} would come back", rows(count)))
        }
        Err(error) => Finding::broken(AREA, format!("the undo of {subject} cannot be tried: {error}")),
    };
    finding.with(write)
}

/// A later change of the same rows prevents any undo, and says nothing about whether this one works.
fn found(subject: &str, conflicts: &[Conflict]) -> Finding {
    let is_later = |kind: ConflictKind| {
        use ConflictKind::{ChangedSince, DeletedSince, KeyTaken, NeededBy, ParentMissing, Referenced};
        matches!(kind, ChangedSince | DeletedSince | KeyTaken | NeededBy | ParentMissing | Referenced)
    };
    let message = format!("{subject} cannot be undone now: {}", ConflictKind::counted_words(conflicts));
    match ConflictKind::counted(conflicts).into_iter().find(|(kind, _)| !is_later(*kind)) {
        Some((kind, _)) => Finding::problem(AREA, message, kind.remedy()),
        None => Finding::unchecked(AREA, message),
    }
}
