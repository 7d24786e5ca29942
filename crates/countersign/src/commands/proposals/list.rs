//! `countersign proposals list`.

use std::time::SystemTime;

use ledger::proposals::{OutlinedProposal, ProposalFilter, ProposalStatus, ProposalSummary};
use types::visible;

use super::args::ListArgs;
use super::show::progress_of;
use super::{open, refused};
use crate::settings::DatabaseSettings;
use crate::terminal::os_user;
use crate::terminal::short_id::short;
use crate::terminal::table::{or_dash, table, to_the_second, with_heading, without_empty_columns};
use crate::terminal::{print_json, print_line, print_lines, width};
use review::ago::ago;
use review::sentences::count;
use review::{decided_by, waits_for_reviewer};

pub(crate) async fn run(arguments: &ListArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let filter = ProposalFilter {
        account: arguments.account.clone(),
        context: None,
        status: arguments.status,
        limit: arguments.limit,
    };
    let ledger = open(settings).await?;
    let proposals = ledger.proposals();
    if arguments.json || arguments.wide {
        let found = proposals.list(&filter).await.map_err(|failure| refused(&failure))?;
        if arguments.json {
            found.iter().for_each(print_json);
        } else {
            let heading =
                ["PROPOSED", "UNTIL", "STATE", "TIER", "PROPOSAL ID", "TOOL", "ACCOUNT", "ACTOR", "DECIDED BY", "WHAT"];
            show(heading, found.iter().map(wide).collect(), None);
        }
    } else {
        let (now, who) = (SystemTime::now(), os_user::name());
        let mut found = proposals.outlines(&filter).await.map_err(|failure| refused(&failure))?;
        found.sort_by_key(|one| !waits_for_reviewer(&one.proposal, &who, true));
        let heading = ["ID", "STATE", "WHEN", "TIER", "ACCOUNT", "ACTOR", "DECIDED BY", "WHAT"];
        show(heading, found.iter().map(|one| narrow(one, now)).collect(), width());
    }
    let changes = ledger.schema_changes().waiting().await.map_err(|failure| refused(&failure))?;
    if changes > 0 && !arguments.json {
        let waits = if changes == 1 { "waits" } else { "wait" };
        print_line(&format!("{} {waits}: countersign schema list", count(changes, "schema change")));
    }
    Ok(())
}

fn show<const N: usize>(heading: [&str; N], rows: Vec<Vec<String>>, width: Option<usize>) {
    if rows.is_empty() {
        return print_line("No proposals.");
    }
    print_lines(table(&without_empty_columns(with_heading(heading, rows)), width));
}

fn decider(proposal: &ProposalSummary) -> String {
    let decided =
        |who: &String| decided_by(who, proposal.decided_login.as_deref(), proposal.decided_via.as_deref()).short();
    proposal.decided_by.as_ref().map_or_else(|| "-".to_owned(), decided)
}

/// The state, with the questions so far, and the approvals if a proposal needs more than one.
pub(super) fn state(proposal: &ProposalSummary) -> String {
    let asked = (!proposal.questions.is_empty()).then(|| count(proposal.questions.len() as u64, "question"));
    let progress = progress_of(proposal.rule.approvals, &proposal.approved_by);
    let more = asked.into_iter().chain(progress).filter(|_| proposal.status == ProposalStatus::Pending);
    std::iter::once(proposal.status.as_str().to_owned()).chain(more).collect::<Vec<_>>().join(", ")
}

fn narrow(OutlinedProposal { proposal, outline }: &OutlinedProposal, now: SystemTime) -> Vec<String> {
    // Pending: the time until it expires. Otherwise: the time of the decision or of the end.
    let when = match proposal.status {
        ProposalStatus::Pending => format!("ends {}", ago(&proposal.expires_at, now)),
        _ => ago(proposal.decided_at.as_ref().or(proposal.completed_at.as_ref()).unwrap_or(&proposal.expires_at), now),
    };
    let account = Some(proposal.account_id.as_str()).filter(|account| *account != "default");
    vec![
        short(&proposal.proposal_id.to_string()),
        state(proposal),
        when,
        proposal.tier.as_str().to_owned(),
        or_dash(account),
        or_dash(proposal.actor.as_deref()),
        decider(proposal),
        review::outline_line(&proposal.title, outline),
    ]
}

fn wide(proposal: &ProposalSummary) -> Vec<String> {
    vec![
        to_the_second(&proposal.created_at),
        to_the_second(&proposal.expires_at),
        state(proposal),
        proposal.tier.as_str().to_owned(),
        proposal.proposal_id.to_string(),
        visible(&proposal.tool_name),
        visible(proposal.account_id.as_str()),
        or_dash(proposal.actor.as_deref()),
        decider(proposal),
        visible(&proposal.description),
    ]
}
