//! The pending proposals, and those that were decided recently.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use ledger::proposals::ProposalSummary;
use types::{Tier, visible};

use crate::message::{self, render};
use crate::session::LoggedIn;
use crate::state::Console;
use crate::text::{proposer, title_and_params};

/// The maximum number of pending and of ended proposals on the page.
const MAX_PROPOSALS: u32 = 200;
const ENDED: u32 = 30;

/// The maximum length of the parameters in a line, in characters.
const MAX_PARAMS_CHARS: usize = 160;

#[derive(Template)]
#[template(path = "inbox.html")]
struct Inbox<'a> {
    person: Option<&'a str>,
    waiting: Vec<Line>,
    ended: Vec<Line>,
    /// Whether there are more proposals than are shown.
    is_cut: bool,
}

/// A proposal in a list.
struct Line {
    id: String,
    what: String,
    /// The beginning of the parameters.
    params: String,
    tool: String,
    by: String,
    at: String,
    until: String,
    status: &'static str,
    /// Whether the agent's own user decides, in the client.
    is_for_account: bool,
}

pub(crate) async fn show(LoggedIn(person): LoggedIn, State(console): State<Arc<Console>>) -> Response {
    let found = async {
        Ok((console.proposals.waiting(MAX_PROPOSALS + 1).await?, console.proposals.lately_ended(ENDED).await?))
    };
    let (mut waiting, ended) = match found.await {
        Ok(found) => found,
        Err(failure) => return message::refused(&failure),
    };
    let is_cut = waiting.len() > MAX_PROPOSALS as usize;
    waiting.truncate(MAX_PROPOSALS as usize);
    let (waiting, ended) = (waiting.iter().map(line).collect(), ended.iter().map(line).collect());
    render(&Inbox { person: Some(&person.name), waiting, ended, is_cut })
}

fn line(proposal: &ProposalSummary) -> Line {
    let (what, params) = title_and_params(&proposal.description);
    let is_cut = params.chars().nth(MAX_PARAMS_CHARS).is_some();
    let params: String = params.chars().take(MAX_PARAMS_CHARS).collect();
    Line {
        id: proposal.proposal_id.to_string(),
        what,
        params: if is_cut { format!("{params}…") } else { params },
        tool: visible(&proposal.tool_name),
        by: proposer(proposal.actor.as_deref(), proposal.account_id.as_str()),
        at: proposal.created_at.clone(),
        until: proposal.expires_at.clone(),
        status: proposal.status.as_str(),
        is_for_account: proposal.tier != Tier::Approve,
    }
}
