//! `countersign proposals show`: prints everything that a reviewer needs, with hidden characters escaped.

use std::time::Duration;

use ledger::Ledger;
use ledger::proposals::{Approval, Preview, Proposal, ProposalStatus, Question};
use review::{Decider, Risk, RiskLevel, Sheet, Since, decided_by, sentences};
use serde_json::Value;
use tokio::time::Instant;
use types::{Rollback, Tier, visible};

use super::args::ShowArgs;
use super::{find, open, refused};
use crate::commands::audit::masks;
use crate::settings::DatabaseSettings;
use crate::terminal::rows;
use crate::terminal::table::{Shown, beside, field};
use crate::terminal::{Style, print_json, print_lines};

/// How long `--check` waits for a server.
const CHECK_WITHIN: Duration = Duration::from_secs(10);

/// The maximum number of definitions that are listed without --full.
const MAX_DEFINITIONS: usize = 3;

pub(crate) async fn run(arguments: &ShowArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let ledger = open(settings).await?;
    let proposals = ledger.proposals();
    let mut proposal = find(&ledger, &arguments.id).await?;
    if arguments.check {
        let checked = proposals.request_check(proposal.proposal_id, Instant::now() + CHECK_WITHIN).await;
        proposal = checked.map_err(|failure| refused(&failure))?;
    }
    if arguments.json {
        print_json(&proposal);
    } else {
        let since = since(&ledger, &mut proposal, settings).await?;
        print(&proposal, since.as_ref(), arguments.full);
    }
    Ok(())
}

/// What has changed since the proposal was made, as [`review::RecordReader::since`] says.
pub(super) async fn since(
    ledger: &Ledger,
    proposal: &mut Proposal,
    settings: &DatabaseSettings,
) -> anyhow::Result<Option<Since>> {
    let records = masks::reader(ledger.audit(), settings)?;
    records.since(&ledger.proposals(), proposal).await.map_err(|failure| refused(&failure))
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
pub(super) fn print(proposal: &Proposal, since: Option<&Since>, full: bool) {
    let shown = Shown::new(full);
    let style = Style::of_stdout();
    let text = |heading: &str, text: &str| beside(heading, [visible(text)]);
    let optional =
        |heading: &str, value: &Option<String>| value.iter().flat_map(|value| text(heading, value)).collect();
    let tier = match proposal.tier {
        Tier::Auto => "auto: no agreement is needed",
        Tier::Confirm => "confirm: a person agrees, in the client, here or in the console",
        Tier::Approve => "approve: a person who is not the proposer agrees",
    };
    let several = format!("approve: {} different people who are not the proposer agree", proposal.rule.approvals);
    let tier = if proposal.rule.approvals > 1 { &several } else { tier };
    let sheet = Sheet::of_preview(&proposal.preview);
    let context = proposal.caller_context.clone().unwrap_or_default();
    // Of a write that was not tried, the statement is all that a reviewer can examine.
    let shown_call = Shown { full: full || proposal.preview.rows_affected.is_none(), ..shown };
    let parts: [Vec<String>; 21] = [
        text("proposal", &proposal.proposal_id.to_string()),
        beside("state", [style.bold(proposal.status.as_str())]),
        text("what", &proposal.description),
        optional("reason", &proposal.reason),
        proposal.questions.iter().flat_map(question).collect(),
        risks(&sheet, &style),
        since.map(|since| since_lines(since, shown, &style)).unwrap_or_default(),
        preview(&proposal.preview, &sheet, shown, &style),
        shown_call.call(&proposal.params),
        text("tool", &format!("{} {}", proposal.tool_name, proposal.tool_version)),
        text("tier", tier),
        optional("approvers", &proposal.rule.approvers),
        progress(proposal).map(|progress| text("approvals", &progress)).unwrap_or_default(),
        text("account", proposal.account_id.as_str()),
        optional("proposed by", &proposal.actor),
        optional("role", &context.role.as_ref().map(|role| role.as_str().to_owned())),
        optional("claims", &context.claims_text()),
        text("proposed at", &proposal.created_at),
        text("until", &proposal.expires_at),
        optional("idempotency key", &proposal.idempotency_key),
        text("digest", &proposal.digest),
    ];
    print_lines(parts.iter().flatten());
    if full {
        let hashes = [("fingerprint", &proposal.params_hash), ("definition", &proposal.definition)];
        print_lines(hashes.into_iter().flat_map(|(heading, hash)| text(heading, hash)));
    }
    print_lines(outcome(proposal));
}

fn question(asked: &Question) -> Vec<String> {
    let by = decided_by(&asked.asked_by, Some(&asked.asked_login), Some(&asked.asked_via));
    beside("question", [format!("{} by {by}: {}", asked.asked_at, visible(&asked.question))])
}

fn since_lines(since: &Since, shown: Shown, style: &Style) -> Vec<String> {
    beside("since then", since.check.clone().into_iter().chain(rows::lines(&since.rows, shown, style)))
}

/// The risks, the worst first.
fn risks(sheet: &Sheet, style: &Style) -> Vec<String> {
    let line = |risk: &Risk| {
        let heading = risk.level().word();
        let sentence = risk.sentence();
        beside(heading, [if risk.level() == RiskLevel::High { style.bad(&sentence) } else { sentence }])
    };
    sheet.risks.iter().flat_map(line).collect()
}

fn preview(preview: &Preview, sheet: &Sheet, shown: Shown, style: &Style) -> Vec<String> {
    let Sheet { count, summary, .. } = sheet;
    let mut lines = beside("rows", std::iter::once(count.clone()).chain(rows::lines(summary, shown, style)));
    if shown.full || summary.groups.is_empty() {
        lines.extend(shown.field("result", Some(&preview.result)));
    }
    if preview.rollback.reversible {
        lines.extend(beside("undo", [sheet.undo.clone()]));
    }
    let definitions = preview.definitions.iter().map(|definition| format!("{} {}", definition.kind, definition.name));
    let definitions: Vec<String> = definitions.map(|definition| visible(&definition)).collect();
    match definitions.len() {
        0 => {}
        count if !shown.full && count > MAX_DEFINITIONS => {
            lines.extend(beside("depends on", [format!("{count} definitions: --full lists them")]));
        }
        _ => lines.extend(beside("depends on", definitions)),
    }
    lines
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
    let (why, error) = match proposal.status {
        ProposalStatus::Rejected => ("rejected because", "error"),
        ProposalStatus::Confirmed => ("note", "waits"),
        _ => ("note", "error"),
    };
    let rest = [
        (why, proposal.decision_reason.clone()),
        ("correlation id", proposal.correlation_id.map(|id| id.to_string())),
        ("error code", proposal.error_code.clone()),
        (error, proposal.error_message.clone()),
        ("ended at", proposal.completed_at.clone()),
        ("newer proposal", proposal.newer.map(|id| id.to_string())),
    ];
    for (heading, value) in rest {
        lines.extend(field(heading, value.map(Value::String).as_ref()));
    }
    lines
}
