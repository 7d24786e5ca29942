//! A proposal: the changes, the proposer and the reason, and the decision.

use std::time::{Duration, SystemTime};

use askama::Template;
use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect};
use ledger::console::ConsolePerson;
use ledger::proposals::{
    ConsoleDecider, ConsoleDecisionError, Decision, Proposal, ProposalStatus, Question, not_found,
};
use review::ago::ago;
use review::{CallText, Risk, RiskLevel, Sheet, Since, Undecidable, decided_by, sentences, undecidable};
use serde::Deserialize;
use tokio::time::Instant;
use types::{ProposalId, Tier, visible};

use crate::frame::Frame;
use crate::message::{self, PageResult, render};
use crate::pages::decided::{self, Decided, DecidedQuery};
use crate::pages::sign_in::SignInAgain;
use crate::rows::{RowsQuery, ShownRows, Table, tables};
use crate::session::{self, CurrentSession};
use crate::state::DatabaseState;
use crate::text::{Fact, LongText, SqlText, Statement, client, context, optional, params, proposer, visible_lines};

const NOT_A_REVIEWER: &str = "An auditor reads, and does not decide.";

/// How long the page waits for the outcome of an approval or a check. Servers look for them every second.
const OUTCOME_WITHIN: Duration = Duration::from_secs(3);

/// The number of risks up to which those that are not high are not folded. More of them would push the rows off the first
/// screen.
const MAX_RISKS: usize = 4;

/// The number of characters that surely fit on a line of a phone.
const PHONE_LINE: usize = 36;

/// The length of the beginning of a longer reason, in characters.
const REASON_EXCERPT: usize = 200;

#[derive(Template)]
#[template(path = "proposal.html")]
struct Page<'a> {
    frame: Frame<'a>,
    id: String,
    digest: &'a str,
    heading: String,
    /// The beginning of the parameters that the heading does not have.
    object: String,
    sql: Option<SqlText>,
    reason: Option<LongText>,
    status: &'static str,
    tier: &'static str,
    is_pending: bool,
    proposer: String,
    client: Option<String>,
    proposed_at: &'a str,
    open_until: &'a str,
    /// The time until it ends: `in 25 min`.
    time_left: String,
    /// The approvals so far and those that are needed.
    approvals: Option<String>,
    questions: Vec<AskedQuestion<'a>>,
    facts: Vec<Fact>,
    /// The decision and the outcome.
    outcome: Vec<Fact>,
    params: Vec<(String, Statement)>,
    /// Whether the parameters are all that is known of the write.
    is_untried: bool,
    risks: Vec<ShownRisk>,
    /// Risks that are not high, if there are too many.
    folded: Vec<ShownRisk>,
    /// `2 cautions and 1 note`.
    folded_counted: Option<String>,
    /// Whether the line of a phone is too short for a risk.
    has_long_risk: bool,
    /// The numbers of rows by table and kind.
    headline: String,
    tables: Vec<Table>,
    shown_rows: ShownRows,
    /// The number of rows that the tool reads and does not change.
    unchanged: usize,
    /// How the write could be undone, unless it is a risk that it cannot.
    undo: Option<String>,
    /// Why this person cannot approve.
    why_not: Option<&'static str>,
    since: Option<ShownSince>,
    /// Whether this person may ask for a check.
    may_check: bool,
    /// Whether the person has to say that they have read the risks.
    has_high_risk: bool,
    /// What was decided just before.
    decided: Option<Decided>,
    /// What the person must do to approve, if the last sign-in is too long ago.
    sign_in_again: Option<SignInAgain<'a>>,
    may_reject: bool,
    /// Whether it is approved, and may still be taken back.
    may_withdraw: bool,
}

/// What has changed since it was proposed.
struct ShownSince {
    check: Option<String>,
    tables: Vec<Table>,
}

/// What a reviewer has asked.
struct AskedQuestion<'a> {
    by: String,
    at: &'a str,
    question: String,
}

struct ShownRisk {
    word: &'static str,
    text: String,
}

#[derive(Deserialize)]
pub(crate) struct ApproveForm {
    /// The digest of the proposal that the page has shown.
    digest: String,
    /// Given if the person says that they have read the risks.
    risks: Option<String>,
}

/// The form in which a person rejects or asks.
#[derive(Deserialize)]
pub(crate) struct TextForm {
    text: String,
}

pub(crate) async fn show(
    current: CurrentSession,
    State(state): State<DatabaseState>,
    Path(id): Path<String>,
    Query(query): Query<RowsQuery>,
    Query(decided): Query<DecidedQuery>,
) -> PageResult {
    let id = ProposalId::parse(&id).ok_or_else(not_found)?;
    let mut proposal = state.database.proposals.get(None, id).await?.ok_or_else(not_found)?;
    let since = state.database.records.since(&state.database.proposals, &mut proposal).await?;
    let sign_in_again = SignInAgain::needed(&state.console, &current.session, &path(&state, id));
    let page = page(&state, &current.session.person, &proposal, since.as_ref(), query.into(), sign_in_again);
    Ok(render(&Page { decided: decided.proposal(&state).await?, ..page }))
}

pub(crate) async fn approve(
    current: CurrentSession,
    State(state): State<DatabaseState>,
    Path(id): Path<String>,
    Form(form): Form<ApproveForm>,
) -> PageResult {
    let known = decidable(&current.session.person, &id)?;
    // With another digest, the ledger refuses.
    if form.risks.is_none()
        && let Some(proposal) = state.database.proposals.get(None, known).await?
        && proposal.digest == form.digest
        && Sheet::of_preview(&proposal.preview).has_high_risk()
    {
        let text = "Its page shows risks. To approve it, say there that you have read them. Nothing was decided.";
        return Ok(message::page(StatusCode::BAD_REQUEST, "Not done", text));
    }
    decide(&state, &current, &id, Decision::Confirm { digest: form.digest }).await
}

pub(crate) async fn reject(
    current: CurrentSession,
    State(state): State<DatabaseState>,
    Path(id): Path<String>,
    Form(form): Form<TextForm>,
) -> PageResult {
    let reason = Some(form.text.trim().to_owned()).filter(|reason| !reason.is_empty());
    decide(&state, &current, &id, Decision::Reject { reason }).await
}

pub(crate) async fn ask(
    current: CurrentSession,
    State(state): State<DatabaseState>,
    Path(id): Path<String>,
    Form(form): Form<TextForm>,
) -> PageResult {
    decide(&state, &current, &id, Decision::Ask { question: form.text.trim().to_owned() }).await
}

/// Asks a server to try the write once more.
pub(crate) async fn check(
    current: CurrentSession,
    State(state): State<DatabaseState>,
    Path(id): Path<String>,
) -> PageResult {
    let id = decidable(&current.session.person, &id)?;
    state.database.proposals.request_check(id, Instant::now() + OUTCOME_WITHIN).await?;
    Ok(Redirect::to(&path(&state, id)).into_response())
}

/// The id of a proposal on which this person may act.
fn decidable(person: &ConsolePerson, id: &str) -> PageResult<ProposalId> {
    if !person.role.may_decide() {
        return Err(message::page(StatusCode::FORBIDDEN, "Not done", NOT_A_REVIEWER).into());
    }
    Ok(ProposalId::parse(id).ok_or_else(not_found)?)
}

async fn decide(state: &DatabaseState, current: &CurrentSession, id: &str, decision: Decision) -> PageResult {
    let person = &current.session.person;
    let id = decidable(person, id)?;
    let approve_within = state.console.approve_within;
    let is_question = matches!(decision, Decision::Ask { .. });
    let decider = ConsoleDecider { session: &current.token, person: &person.name, approve_within };
    match state.database.proposals.decide_in_console(id, &decider, &decision).await {
        Ok(proposal) => {
            tracing::info!(person = person.name, proposal = %id, status = proposal.status.as_str(), "decided");
            if is_question {
                return Ok(Redirect::to(&path(state, id)).into_response());
            }
            let ended = match proposal.status {
                ProposalStatus::Confirmed => {
                    state.database.proposals.ended(id, Instant::now() + OUTCOME_WITHIN).await.unwrap_or(proposal)
                }
                _ => proposal,
            };
            Ok(Redirect::to(&decided::next(state, person, &ended).await?).into_response())
        }
        Err(ConsoleDecisionError::SessionEnded) => Err(session::ended().into()),
        Err(ConsoleDecisionError::SignInAgain) => Err(SignInAgain::new(&state.console, &path(state, id)).page().into()),
        Err(ConsoleDecisionError::Refused(failure)) => Err(failure.into()),
    }
}

fn path(state: &DatabaseState, id: ProposalId) -> String {
    state.database.path(format_args!("/proposals/{id}"))
}

fn page<'a>(
    state: &'a DatabaseState,
    person: &'a ConsolePerson,
    proposal: &'a Proposal,
    since: Option<&Since>,
    shown_rows: ShownRows,
    sign_in_again: Option<SignInAgain<'a>>,
) -> Page<'a> {
    let preview = &proposal.preview;
    let sheet = Sheet::of_preview(preview);
    let has_high_risk = sheet.has_high_risk();
    let Sheet { count, summary, risks, undo } = sheet;
    let has_few = risks.len() <= MAX_RISKS;
    let (listed, folded): (Vec<Risk>, Vec<Risk>) =
        risks.into_iter().partition(|risk| has_few || risk.level() == RiskLevel::High);
    let [risks, folded] = [listed, folded].map(|risks| risks.iter().map(ShownRisk::new).collect::<Vec<_>>());
    let is_pending = proposal.status == ProposalStatus::Pending;
    let sql = SqlText::new(&CallText::from(&proposal.params));
    let others = proposal.params.iter().filter(|_| sql.is_none());
    Page {
        frame: state.frame(person),
        id: proposal.proposal_id.to_string(),
        digest: &proposal.digest,
        heading: visible(&proposal.title),
        object: params(preview.more_params(&proposal.params).filter(|_| sql.is_none())),
        reason: optional(&proposal.reason).map(excerpt),
        status: proposal.status.as_str(),
        tier: proposal.tier.as_str(),
        is_pending,
        proposer: proposer(proposal.actor.as_deref(), proposal.account_id.as_str()),
        client: client(proposal.client.as_ref()),
        proposed_at: &proposal.created_at,
        open_until: &proposal.expires_at,
        time_left: ago(&proposal.expires_at, SystemTime::now()),
        approvals: approvals(proposal),
        questions: proposal.questions.iter().map(question).collect(),
        facts: facts(proposal),
        outcome: outcome(state, proposal),
        params: others.map(|(name, value)| (visible(name), Statement::new(value))).collect(),
        sql,
        is_untried: preview.rows_affected.is_none(),
        has_long_risk: risks.iter().any(|risk| risk.text.chars().nth(PHONE_LINE).is_some()),
        risks,
        folded_counted: counted(&folded),
        folded,
        headline: count,
        tables: tables(&summary, shown_rows),
        shown_rows,
        unchanged: summary.unchanged,
        undo: preview.rollback.reversible.then_some(undo),
        why_not: why_not(person, proposal),
        since: since.map(|since| ShownSince { check: since.check.clone(), tables: tables(&since.rows, shown_rows) }),
        may_check: proposal.status.can_be_checked() && preview.rows_affected.is_some() && person.role.may_decide(),
        has_high_risk,
        decided: None,
        sign_in_again,
        may_reject: is_pending && person.role.may_decide(),
        may_withdraw: proposal.status == ProposalStatus::Confirmed && person.role.may_decide(),
    }
}

impl ShownRisk {
    fn new(risk: &Risk) -> Self {
        Self { word: risk.level().word(), text: risk.sentence() }
    }
}

/// The numbers of cautions and of notes; `None` if there are none.
fn counted(risks: &[ShownRisk]) -> Option<String> {
    let of = |level: RiskLevel| {
        let count = risks.iter().filter(|risk| risk.word == level.word()).count() as u64;
        (count > 0).then(|| sentences::count(count, level.word()))
    };
    let counts: Vec<String> = [RiskLevel::Medium, RiskLevel::Low].into_iter().filter_map(of).collect();
    (!counts.is_empty()).then(|| counts.join(" and "))
}

/// The beginning of the reason, up to the end of a word.
fn excerpt(reason: String) -> LongText {
    let mut excerpt = LongText::cut(reason, REASON_EXCERPT);
    if let (Some(_), Some(end)) = (&excerpt.whole, excerpt.start.rfind(' ')) {
        excerpt.start.truncate(end);
    }
    excerpt
}

fn why_not(person: &ConsolePerson, proposal: &Proposal) -> Option<&'static str> {
    undecidable(proposal, &person.name, person.role.may_decide()).map(|why| match why {
        Undecidable::Confirmed => "It is approved, and a server executes it. Load the page again to see the outcome.",
        Undecidable::Closed => "It does not wait for a decision any more.",
        Undecidable::NotAReviewer => NOT_A_REVIEWER,
        Undecidable::ApprovedBefore => "You have approved this. It waits for other people.",
        Undecidable::OwnProposal => "You have proposed this, and nobody approves their own proposals.",
    })
}

fn question(asked: &Question) -> AskedQuestion<'_> {
    let by = decided_by(&asked.asked_by, Some(&asked.asked_login), Some(&asked.asked_via)).short();
    AskedQuestion { by, at: &asked.asked_at, question: visible_lines(&asked.question) }
}

fn facts(proposal: &Proposal) -> Vec<Fact> {
    let definitions = proposal.preview.definitions.iter();
    let definitions: Vec<String> = definitions.map(|one| visible(&format!("{} {}", one.kind, one.name))).collect();
    [
        Some(Fact::text("Tool", format!("{} {}", visible(&proposal.tool_name), visible(&proposal.tool_version)))),
        Some(Fact::id("Proposal", proposal.proposal_id.to_string())),
        Some(Fact::id("Digest", proposal.digest.clone())),
        (!definitions.is_empty()).then(|| Fact::text("Depends on", definitions.join(", "))),
    ]
    .into_iter()
    .flatten()
    .chain(context(proposal.caller_context.as_ref()))
    .collect()
}

fn outcome(state: &DatabaseState, proposal: &Proposal) -> Vec<Fact> {
    let text =
        |name: &'static str, value: &Option<String>| value.as_deref().map(|text| Fact::text(name, visible(text)));
    let (login, via) = (proposal.decided_login.as_deref(), proposal.decided_via.as_deref());
    let decided_by = proposal
        .decided_by
        .as_deref()
        .map(|by| format!("{}, via {}", decided_by(by, login, via), visible(via.unwrap_or("-"))));
    let record = if proposal.status == ProposalStatus::Executed { "Executed as" } else { "Attempt, not executed" };
    let executed = proposal
        .correlation_id
        .map(|id| Fact::link(record, state.database.path(format_args!("/records/{id}")), id.to_string()));
    [
        decided_by.map(|by| Fact::text("Decided by", by)),
        proposal.decided_at.as_ref().map(|at| Fact::time("Decided at", at.clone())),
        text(if proposal.status == ProposalStatus::Rejected { "Reason" } else { "Note" }, &proposal.decision_reason),
        executed,
        text(if proposal.status == ProposalStatus::Confirmed { "Waits" } else { "Error" }, &proposal.error_message),
        proposal.newer.map(|id| Fact::link("Newer proposal", path(state, id), id.to_string())),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `1 of 2 approved of the group finance: anna`; `None` if the decision says the same.
fn approvals(proposal: &Proposal) -> Option<String> {
    let rule = &proposal.rule;
    let people: Vec<String> = proposal.approved_by.iter().map(|approval| visible(&approval.person)).collect();
    let people = if people.is_empty() { String::new() } else { format!(": {}", people.join(", ")) };
    let group = rule.approvers.as_deref().map(|group| format!(" of the group {}", visible(group)));
    let (given, group) = (proposal.approved_by.len(), group.as_deref().unwrap_or_default());
    let is_shown = proposal.tier == Tier::Approve && (rule.approvals > 1 || !group.is_empty() || given == 0);
    is_shown.then(|| format!("{given} of {} approved{group}{people}", rule.approvals))
}
