//! A proposal: what would change, who wants it and why, and the decision.

use std::sync::Arc;

use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use ledger::console::ConsolePerson;
use ledger::proposals::{ConsoleDecider, ConsoleDecisionError, Decision, Proposal, ProposalStatus, not_found};
use serde::Deserialize;
use types::{ProposalId, Tier, visible};

use crate::message::{self, render};
use crate::pages::sign_in::SignInAgain;
use crate::rows::{self, Effect, Row, shown};
use crate::session::{self, CurrentSession};
use crate::state::Console;
use crate::text::{Fact, proposer, rows as rows_in_words, sentences};

#[derive(Template)]
#[template(path = "proposal.html")]
struct Page<'a> {
    person: Option<&'a str>,
    id: String,
    digest: &'a str,
    /// The first sentence of the description.
    heading: String,
    /// The rest of it.
    description: String,
    status: &'static str,
    facts: Vec<Fact>,
    params: Vec<(String, String)>,
    warnings: Vec<String>,
    rows: Vec<Row>,
    effects: Vec<Effect>,
    more_rows: usize,
    generated: String,
    undo: String,
    is_reversible: bool,
    /// The reason why this person cannot approve.
    why_not: Option<&'static str>,
    /// The person can approve after another sign-in.
    sign_in_again: Option<SignInAgain<'a>>,
    may_reject: bool,
}

#[derive(Deserialize)]
pub(crate) struct ApproveForm {
    /// What the page has shown.
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
        return message::page(StatusCode::FORBIDDEN, "Not done", "An auditor reads, and does not decide.");
    }
    let Some(id) = ProposalId::parse(id) else { return message::refused(&not_found()) };
    let approve_within = console.approve_within;
    let decider = ConsoleDecider { session: &current.token, person: &person.name, approve_within };
    match console.proposals.decide_in_console(id, &decider, &decision).await {
        Ok(proposal) => {
            tracing::info!(person = person.name, proposal = %id, status = proposal.status.as_str(), "decided");
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
    let (heading, description) = sentences(&proposal.description);
    let rollback = &preview.rollback;
    let undo = match (&rollback.undo_tool, rollback.reversible) {
        (Some(tool), true) => format!("It can be undone with {}. {}", visible(tool), visible(&rollback.note)),
        (None, true) => "There is nothing to undo.".to_owned(),
        (_, false) => format!("It cannot be undone. {}", visible(&rollback.note)),
    };
    Page {
        person: Some(&person.name),
        id: proposal.proposal_id.to_string(),
        digest: &proposal.digest,
        heading,
        description,
        status: proposal.status.as_str(),
        facts: facts(proposal),
        params: proposal.params.iter().map(|(name, value)| (visible(name), shown(value))).collect(),
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

/// The ledger decides this again, by the same rules.
fn why_not(person: &ConsolePerson, proposal: &Proposal) -> Option<&'static str> {
    let is_same = |name: &str| name.eq_ignore_ascii_case(&person.name);
    if proposal.status != ProposalStatus::Pending {
        Some("It does not wait for a decision any more.")
    } else if !person.role.may_decide() {
        Some("An auditor reads, and does not decide.")
    } else if proposal.tier != Tier::Approve {
        Some("This is for the proposing account to confirm, in its client.")
    } else if proposal.approved_by.iter().any(|approval| is_same(&approval.person)) {
        Some("You have approved this. It waits for other people.")
    } else if is_same(proposal.account_id.as_str()) || proposal.actor.as_deref().is_some_and(is_same) {
        Some("You have proposed this, and nobody approves their own proposals.")
    } else {
        None
    }
}

fn facts(proposal: &Proposal) -> Vec<Fact> {
    let client = proposal.client.as_ref();
    let client_name = client.and_then(|client| {
        let name = visible(client.name.as_deref()?);
        Some(client.version.as_deref().map_or_else(|| name.clone(), |version| format!("{name} {}", visible(version))))
    });
    let rows = proposal.preview.rows_affected.map_or_else(
        || "not known: it was looked at, and not tried".to_owned(),
        |count| format!("{}, when it was tried and rolled back", rows_in_words(count)),
    );
    let optional = |name: &'static str, value: Option<String>| value.map(|value| Fact::text(name, value));
    let time = |name: &'static str, time: &Option<String>| time.as_ref().map(|time| Fact::time(name, time.clone()));
    let decided_by = proposal
        .decided_by
        .as_deref()
        .map(|by| format!("{}, via {}", visible(by), proposal.decided_via.as_deref().unwrap_or("-")));
    let executed =
        proposal.correlation_id.map(|id| Fact::link("Executed as", format!("/records/{id}"), id.to_string()));
    [
        Some(Fact::text("Tool", format!("{} {}", visible(&proposal.tool_name), visible(&proposal.tool_version)))),
        Some(Fact::text("Proposed by", proposer(proposal.actor.as_deref(), proposal.account_id.as_str()))),
        optional("Client", client_name),
        Some(Fact::time("Proposed at", proposal.created_at.clone())),
        Some(Fact::time("Can be approved until", proposal.expires_at.clone())),
        Some(Fact::text("Changes", rows)),
        optional("Approvals", approvals(proposal)),
        optional("Decided by", decided_by),
        time("Decided at", &proposal.decided_at),
        optional("Reason", proposal.reason.as_deref().map(visible)),
        executed,
        optional("Error", proposal.error_message.as_deref().map(visible)),
        Some(Fact::text("Digest", proposal.digest.clone())),
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
    let text = format!("{} of {}{}{people}", proposal.approved_by.len(), rule.approvals, group.unwrap_or_default());
    (proposal.tier == Tier::Approve).then_some(text)
}
