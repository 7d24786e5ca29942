//! A proposal: the changes, the proposer and the reason, and the decision.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use ledger::console::ConsolePerson;
use ledger::proposals::{ConsoleDecider, ConsoleDecisionError, Decision, Preview, Proposal, ProposalStatus, not_found};
use review::{Undecidable, sentences, undecidable};
use serde::Deserialize;
use tokio::time::Instant;
use types::{ProposalId, Tier, visible};

use crate::message::{self, render};
use crate::pages::sign_in::SignInAgain;
use crate::rows::{self, Effect, Row, shown};
use crate::session::{self, CurrentSession};
use crate::state::Console;
use crate::text::{Fact, LongText, optional, proposer};

const NOT_A_REVIEWER: &str = "An auditor reads, and does not decide.";

/// How long the page waits for the outcome of an approval. Servers look for approved proposals every second.
const OUTCOME_WITHIN: Duration = Duration::from_secs(3);

#[derive(Template)]
#[template(path = "proposal.html")]
struct Page<'a> {
    person: Option<&'a str>,
    id: String,
    digest: &'a str,
    heading: String,
    reason: Option<String>,
    status: &'static str,
    is_pending: bool,
    proposer: String,
    proposed_at: &'a str,
    open_until: &'a str,
    /// The number of rows that the write would change.
    touches: String,
    /// The rule of the tool that requires the approval.
    rule: Option<String>,
    facts: Vec<Fact>,
    /// The approvals so far, the decision and the outcome.
    outcome: Vec<Fact>,
    params: Vec<(String, LongText)>,
    warnings: Vec<String>,
    rows: Vec<Row>,
    effects: Vec<Effect>,
    more_rows: usize,
    generated: String,
    undo: String,
    is_reversible: bool,
    /// Why this person cannot approve.
    why_not: Option<&'static str>,
    /// What the person must do to approve, if the last sign-in is too long ago.
    sign_in_again: Option<SignInAgain<'a>>,
    may_reject: bool,
}

#[derive(Deserialize)]
pub(crate) struct ApproveForm {
    /// The digest of the proposal that the page has shown.
    digest: String,
}

#[derive(Deserialize)]
pub(crate) struct RejectForm {
    reason: String,
}

pub(crate) async fn show(
    current: CurrentSession,
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
) -> Response {
    match find(&console, &id).await {
        Ok(proposal) => {
            let sign_in_again = SignInAgain::needed(&console, &current.session, &path(proposal.proposal_id));
            render(&page(&current.session.person, &proposal, sign_in_again))
        }
        Err(refusal) => refusal,
    }
}

pub(crate) async fn approve(
    current: CurrentSession,
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    Form(form): Form<ApproveForm>,
) -> Response {
    decide(&console, &current, &id, Decision::Confirm { digest: form.digest }).await
}

pub(crate) async fn reject(
    current: CurrentSession,
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    Form(form): Form<RejectForm>,
) -> Response {
    let reason = Some(form.reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    decide(&console, &current, &id, Decision::Reject { reason }).await
}

async fn decide(console: &Console, current: &CurrentSession, id: &str, decision: Decision) -> Response {
    let person = &current.session.person;
    if !person.role.may_decide() {
        return message::page(StatusCode::FORBIDDEN, "Not done", NOT_A_REVIEWER);
    }
    let Some(id) = ProposalId::parse(id) else { return message::refused(&not_found()) };
    let approve_within = console.approve_within;
    let decider = ConsoleDecider { session: &current.token, person: &person.name, approve_within };
    match console.proposals.decide_in_console(id, &decider, &decision).await {
        Ok(proposal) => {
            tracing::info!(person = person.name, proposal = %id, status = proposal.status.as_str(), "decided");
            if proposal.status == ProposalStatus::Confirmed {
                // The page shows the outcome, whatever it is.
                drop(console.proposals.ended(id, Instant::now() + OUTCOME_WITHIN).await);
            }
            Redirect::to(&path(id)).into_response()
        }
        Err(ConsoleDecisionError::SessionEnded) => session::ended(),
        Err(ConsoleDecisionError::SignInAgain) => SignInAgain::new(console, &path(id)).page(),
        Err(ConsoleDecisionError::Refused(failure)) => message::refused(&failure),
    }
}

fn path(id: ProposalId) -> String {
    format!("/proposals/{id}")
}

async fn find(console: &Console, id: &str) -> Result<Proposal, Response> {
    let id = ProposalId::parse(id).ok_or_else(|| message::refused(&not_found()))?;
    let found = console.proposals.get(None, id).await.map_err(|failure| message::refused(&failure))?;
    found.ok_or_else(|| message::refused(&not_found()))
}

fn page<'a>(person: &'a ConsolePerson, proposal: &'a Proposal, sign_in_again: Option<SignInAgain<'a>>) -> Page<'a> {
    let preview = &proposal.preview;
    let (rows, more_rows) = rows::of_preview(preview);
    let is_pending = proposal.status == ProposalStatus::Pending;
    let rollback = &preview.rollback;
    let undo = sentences::undo_of_preview(rollback, preview.rows_affected.is_some());
    Page {
        person: Some(&person.name),
        id: proposal.proposal_id.to_string(),
        digest: &proposal.digest,
        heading: visible(&proposal.title),
        reason: optional(&proposal.reason),
        status: proposal.status.as_str(),
        is_pending,
        proposer: proposer(proposal.actor.as_deref(), proposal.account_id.as_str()),
        proposed_at: &proposal.created_at,
        open_until: &proposal.expires_at,
        touches: touches(preview),
        rule: preview.rule.as_ref().map(|rule| sentences::rule(rule, str::to_owned)),
        facts: facts(proposal),
        outcome: outcome(proposal),
        params: proposal.params.iter().map(|(name, value)| (visible(name), LongText::new(shown(value)))).collect(),
        warnings: preview.warnings.iter().map(|warning| visible(warning)).collect(),
        rows,
        effects: preview.effects.as_ref().map(rows::effects_of).unwrap_or_default(),
        more_rows,
        generated: visible(&preview.generated.join(", ")),
        undo,
        is_reversible: rollback.reversible,
        why_not: why_not(person, proposal),
        sign_in_again,
        may_reject: is_pending && person.role.may_decide(),
    }
}

fn why_not(person: &ConsolePerson, proposal: &Proposal) -> Option<&'static str> {
    undecidable(proposal, &person.name, person.role.may_decide()).map(|why| match why {
        Undecidable::Confirmed => "It is approved, and a server executes it. Load the page again to see the outcome.",
        Undecidable::Closed => "It does not wait for a decision any more.",
        Undecidable::NotAReviewer => NOT_A_REVIEWER,
        Undecidable::ForTheAccount => "This is for the proposing account to confirm, in its client.",
        Undecidable::ApprovedBefore => "You have approved this. It waits for other people.",
        Undecidable::OwnProposal => "You have proposed this, and nobody approves their own proposals.",
    })
}

fn touches(preview: &Preview) -> String {
    match preview.rows_affected {
        Some(count) => format!("The write was tried and rolled back. It would change {}.", sentences::rows(count)),
        None => "The write was not tried, so the number of rows that it would change is not known.".to_owned(),
    }
}

fn facts(proposal: &Proposal) -> Vec<Fact> {
    let client = proposal.client.as_ref();
    let client_name = client.and_then(|client| {
        let name = visible(client.name.as_deref()?);
        Some(client.version.as_deref().map_or_else(|| name.clone(), |version| format!("{name} {}", visible(version))))
    });
    [
        Some(Fact::text("Tool", format!("{} {}", visible(&proposal.tool_name), visible(&proposal.tool_version)))),
        client_name.map(|name| Fact::text("Client", name)),
        Some(Fact::time("Proposed at", proposal.created_at.clone())),
        Some(Fact::time("Open until", proposal.expires_at.clone())),
        Some(Fact::id("Proposal", proposal.proposal_id.to_string())),
        Some(Fact::id("Digest", proposal.digest.clone())),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn outcome(proposal: &Proposal) -> Vec<Fact> {
    let text =
        |name: &'static str, value: &Option<String>| value.as_deref().map(|text| Fact::text(name, visible(text)));
    let decided_by = proposal
        .decided_by
        .as_deref()
        .map(|by| format!("{}, via {}", visible(by), proposal.decided_via.as_deref().unwrap_or("-")));
    let executed =
        proposal.correlation_id.map(|id| Fact::link("Executed as", format!("/records/{id}"), id.to_string()));
    [
        approvals(proposal).map(|text| Fact::text("Approvals", text)),
        decided_by.map(|by| Fact::text("Decided by", by)),
        proposal.decided_at.as_ref().map(|at| Fact::time("Decided at", at.clone())),
        text("Reason", &proposal.decision_reason),
        executed,
        text("Error", &proposal.error_message),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `1 of 2 of the group finance: anna`.
fn approvals(proposal: &Proposal) -> Option<String> {
    let rule = &proposal.rule;
    let people: Vec<String> = proposal.approved_by.iter().map(|approval| visible(&approval.person)).collect();
    let people = if people.is_empty() { String::new() } else { format!(": {}", people.join(", ")) };
    let group = rule.approvers.as_deref().map(|group| format!(" of the group {}", visible(group)));
    let text =
        format!("{} of {}{}{people}", proposal.approved_by.len(), rule.approvals, group.as_deref().unwrap_or_default());
    // If one approval by anybody is enough, the decision already says everything.
    let is_plain = rule.approvals == 1 && group.is_none();
    (proposal.tier == Tier::Approve && !is_plain).then_some(text)
}
