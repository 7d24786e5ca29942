//! The pending proposals, and those that were decided recently.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::State;
use ledger::proposals::OutlinedProposal;
use review::ago::ago;
use types::{Tier, visible};

use crate::message::{PageResult, render};
use crate::session::LoggedIn;
use crate::state::Console;
use crate::text::{params, proposer};

/// The maximum number of pending and of ended proposals on the page.
const MAX_PROPOSALS: u32 = 200;
const ENDED: u32 = 30;

#[derive(Template)]
#[template(path = "inbox.html")]
struct Inbox<'a> {
    person: Option<&'a str>,
    waiting: Vec<WaitingLine>,
    ended: Vec<Line>,
    /// Whether there are more proposals than are shown.
    is_cut: bool,
}

/// A proposal that waits.
struct WaitingLine {
    line: Line,
    /// Its risks in a few words.
    marks: Vec<String>,
    /// The number of questions that reviewers have asked.
    questions: usize,
    /// The number of rows; `None` if the write was not tried.
    rows: Option<u64>,
    time_left: String,
}

/// A proposal in a list.
struct Line {
    id: String,
    what: String,
    /// The beginning of the parameters.
    params: String,
    by: String,
    at: String,
    status: &'static str,
    /// Whether the agent's own user decides, in the client.
    is_for_account: bool,
}

pub(crate) async fn show(LoggedIn(person): LoggedIn, State(console): State<Arc<Console>>) -> PageResult {
    let mut waiting = console.proposals.waiting(MAX_PROPOSALS + 1).await?;
    let ended = console.proposals.lately_ended(ENDED).await?;
    let is_cut = waiting.len() > MAX_PROPOSALS as usize;
    waiting.truncate(MAX_PROPOSALS as usize);
    let now = SystemTime::now();
    let waiting = waiting.iter().map(|proposal| waiting_line(proposal, now)).collect();
    let ended = ended.iter().map(line).collect();
    Ok(render(&Inbox { person: Some(&person.name), waiting, ended, is_cut }))
}

fn waiting_line(waiting: &OutlinedProposal, now: SystemTime) -> WaitingLine {
    let OutlinedProposal { proposal, outline } = waiting;
    WaitingLine {
        line: line(waiting),
        marks: review::marks(outline),
        questions: proposal.questions.len(),
        rows: outline.rows_affected.map(|rows| rows.max(outline.changed)),
        time_left: ago(&proposal.expires_at, now),
    }
}

fn line(OutlinedProposal { proposal, outline }: &OutlinedProposal) -> Line {
    Line {
        id: proposal.proposal_id.to_string(),
        what: visible(&proposal.title),
        params: params(&outline.params),
        by: proposer(proposal.actor.as_deref(), proposal.account_id.as_str()),
        at: proposal.created_at.clone(),
        status: proposal.status.as_str(),
        is_for_account: proposal.tier != Tier::Approve,
    }
}
