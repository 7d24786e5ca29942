//! `countersign proposals show`: prints everything that a reviewer needs, with hidden characters escaped.

use ledger::proposals::{Approval, Preview, Proposal, ProposalStatus};
use review::sentences;
use serde_json::Value;
use types::{Rollback, Tier, visible};

use super::args::ShowArgs;
use super::{find, open};
use crate::settings::Settings;
use crate::terminal::diff;
use crate::terminal::effects;
use crate::terminal::os_user::{Decider, decided_by};
use crate::terminal::table::{Shown, beside, field, json_line};
use crate::terminal::{Style, print_line};

pub(crate) async fn run(arguments: &ShowArgs, settings: &Settings) -> anyhow::Result<()> {
    let proposal = find(&open(settings).await?.proposals(), &arguments.id).await?;
    if arguments.json {
        print_line(&json_line(&serde_json::to_value(&proposal)?));
    } else {
        print(&proposal, arguments.full);
    }
    Ok(())
}

pub(super) fn decider(proposal: &Proposal) -> Decider {
    let who = proposal.decided_by.as_deref().unwrap_or_default();
    decided_by(who, proposal.decided_login.as_deref(), proposal.decided_via.as_deref())
}

pub(super) fn approver(approval: &Approval) -> Decider {
    decided_by(&approval.decided_by, Some(&approval.decided_login), Some(&approval.decided_via))
}

/// The progress of approvals: `1 of 2 approved, by anna`. `None` if at most one person has to approve.
pub(super) fn progress(proposal: &Proposal) -> Option<String> {
    progress_of(proposal.rule.approvals, &proposal.approved_by)
}

/// Like [`progress`], from the parts of a proposal.
pub(super) fn progress_of(needed: u32, approved_by: &[Approval]) -> Option<String> {
    let people: Vec<String> = approved_by.iter().map(|approval| visible(&approval.person).to_string()).collect();
    let by = if people.is_empty() { String::new() } else { format!(", by {}", people.join(", ")) };
    (needed > 1).then(|| format!("{} of {needed} approved{by}", people.len()))
}

/// Prints the proposal. The rows of a large write are printed only with `full`.
pub(super) fn print(proposal: &Proposal, full: bool) {
    let shown = Shown::new(full);
    let style = Style::of_stdout();
    let text = |heading: &str, text: &str| beside(heading, [visible(text)]);
    let optional =
        |heading: &str, value: &Option<String>| value.iter().flat_map(|value| text(heading, value)).collect();
    let tier = match proposal.tier {
        Tier::Auto => "auto: no agreement is needed",
        Tier::Confirm => "confirm: the proposing account agrees, in its client",
        Tier::Approve => "approve: a person who is not the proposer agrees",
    };
    let several = format!("approve: {} different people who are not the proposer agree", proposal.rule.approvals);
    let tier = if proposal.rule.approvals > 1 { &several } else { tier };
    let parts: [Vec<String>; 15] = [
        text("proposal", &proposal.proposal_id.to_string()),
        beside("state", [style.bold(proposal.status.as_str())]),
        optional("reason", &proposal.reason),
        text("tool", &format!("{} {}", proposal.tool_name, proposal.tool_version)),
        text("tier", tier),
        optional("approvers", &proposal.rule.approvers),
        progress(proposal).map(|progress| text("approvals", &progress)).unwrap_or_default(),
        text("account", proposal.account_id.as_str()),
        optional("proposed by", &proposal.actor),
        text("proposed at", &proposal.created_at),
        text("until", &proposal.expires_at),
        optional("idempotency key", &proposal.idempotency_key),
        text("what", &proposal.description),
        shown.field("parameters", Some(&Value::Object(proposal.params.clone()))),
        preview(&proposal.preview, shown, &style),
    ];
    parts.iter().flatten().for_each(|line| print_line(line));
    let hashes =
        [("digest", &proposal.digest), ("fingerprint", &proposal.params_hash), ("definition", &proposal.definition)];
    hashes.into_iter().flat_map(|(heading, hash)| text(heading, hash)).for_each(|line| print_line(&line));
    outcome(proposal).iter().for_each(|line| print_line(line));
}

fn preview(preview: &Preview, shown: Shown, style: &Style) -> Vec<String> {
    let rows = preview.rows_affected.map_or_else(
        || "not known: it was looked at, and not tried".to_owned(),
        |count| format!("{count}, when it was tried and rolled back"),
    );
    let mut lines = beside("rows touched", [rows]);
    for warning in &preview.warnings {
        lines.extend(beside("warning", [style.bad(&visible(warning))]));
    }
    if let Some(effects) = &preview.effects {
        lines.extend(beside("changed rows", effects::lines(effects, shown.full)));
    }
    let images = (preview.before.as_ref(), preview.after.as_ref());
    lines.extend(images_lines(images, &preview.row_key, shown, style));
    lines.extend(shown.field("result", Some(&preview.result)));
    if !preview.generated.is_empty() {
        lines.extend(beside("generated", [visible(&preview.generated.join(", "))]));
    }
    lines.extend(undo_lines(&preview.rollback, preview.rows_affected.is_some(), style));
    let definitions = preview.definitions.iter().map(|definition| format!("{} {}", definition.kind, definition.name));
    let definitions: Vec<String> = definitions.map(|definition| visible(&definition)).collect();
    if !definitions.is_empty() {
        lines.extend(beside("depends on", definitions));
    }
    lines
}

/// The rows before and after the write, as tried for the proposal.
pub(crate) fn images_lines(
    images: (Option<&Value>, Option<&Value>),
    row_key: &[String],
    shown: Shown,
    style: &Style,
) -> Vec<String> {
    match images {
        (Some(before), Some(after)) => {
            beside("rows", diff::lines(before, after, row_key, shown.full, shown.width, style))
        }
        (before, after) => [shown.field("rows before", before), shown.field("rows after", after)].concat(),
    }
}

/// Whether and how the write could be undone.
pub(crate) fn undo_lines(rollback: &Rollback, is_tried: bool, style: &Style) -> Vec<String> {
    let how = sentences::undo_of_preview(rollback, is_tried);
    beside("undo", [if rollback.reversible { how } else { style.bold(&how) }])
}

fn outcome(proposal: &Proposal) -> Vec<String> {
    let mut lines = Vec::new();
    for approval in proposal.approved_by.iter().filter(|_| proposal.rule.approvals > 1) {
        let who = format!("{} by {}, via {}", approval.decided_at, approver(approval), visible(&approval.decided_via));
        lines.extend(beside("approved", [who]));
    }
    if let (Some(_), Some(at)) = (&proposal.decided_by, &proposal.decided_at) {
        let what = if proposal.status == ProposalStatus::Rejected { "rejected" } else { "agreed" };
        let via = proposal.decided_via.as_deref().unwrap_or("-");
        let who = format!("{at} by {}, via {via}", decider(proposal));
        lines.extend(beside(what, [who]));
    }
    let rest = [
        ("rejected because", proposal.decision_reason.clone()),
        ("correlation id", proposal.correlation_id.map(|id| id.to_string())),
        ("error code", proposal.error_code.clone()),
        ("error", proposal.error_message.clone()),
        ("ended at", proposal.completed_at.clone()),
    ];
    for (heading, value) in rest {
        lines.extend(field(heading, value.map(Value::String).as_ref()));
    }
    lines
}
