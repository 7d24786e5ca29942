//! A proposal as agents see it. What does not fit is left out, and read in pages
//! (`bounded`).

use std::collections::BTreeMap;
use std::ops::Range;

use ledger::proposals::{Preview, ProposalStatus, Question};
use review::{Summary, decided_by};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use types::{CallerContext, CorrelationId, ProposalId, Tier};

use crate::bounded::{MAX_BYTES, MAX_PAGE_BYTES, MAX_TEXT_CHARS, RowLists, cut_texts, left_out, size};
use crate::proposal_text::{cut, shown_description};
use crate::schema::AnyJson;
use crate::services::ConsoleLinks;
use crate::shown_proposal::ShownProposal;
use crate::since_data::SinceData;

/// What a page says that lacks the parameters or the answer.
const ON_FIRST_PAGE: &str = "The parameters and the answer are on the first page, unless they are too large.";

/// What an agent does about a question.
const HOW_TO_ANSWER: &str = "Answer in `reason` of a new call of the tool, with other arguments if that is the answer. \
    The same call with a new reason takes the place of this proposal.";

/// The maximum number of questions that an agent gets with a large proposal: the newest ones.
const MAX_QUESTIONS: usize = 3;

/// The maximum number of columns of a summary.
const MAX_COLUMNS: usize = 10;

/// What is told of a proposal. What is not there is left out, and not in the schema: it is there once it is decided.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProposalData {
    /// What the other tools name it by.
    #[schemars(with = "String")]
    proposal_id: ProposalId,
    /// Why the agent wants to write.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    reason: Option<String>,
    /// The tool that was called.
    action: String,
    /// Who has to agree: confirm (the user of this account) or approve (somebody else, outside of the conversation).
    #[schemars(with = "String")]
    tier: Tier,
    /// For approve: how many different people have to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    approvals: Option<u32>,
    /// The group that they have to be in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    approvers: Option<String>,
    /// Those who have approved so far.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    approved_by: Vec<String>,
    /// pending, confirmed, rejected, expired, executed, failed or stale.
    #[schemars(with = "String")]
    status: ProposalStatus,
    /// For people: what would happen.
    description: String,
    /// Every parameter that the write has.
    params: Map<String, Value>,
    /// What the write did when it was tried and rolled back.
    #[schemars(with = "BTreeMap<String, AnyJson>")]
    preview: Preview,
    /// For a cut preview: what its rows become, by table and column.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    summary: Vec<String>,
    /// What was left out of the preview and cut, and how to read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    left_out: Option<String>,
    /// For `after`: the number of rows up to here, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    next_after: Option<usize>,
    /// What is agreed to, in 64 digits: confirm_proposal needs it.
    digest: String,
    /// When it was proposed.
    created_at: String,
    /// Until when it can be agreed to.
    expires_at: String,
    /// The page of the console on which people decide, if a person has to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    review_url: Option<String>,
    /// For confirm: whether a person has to decide, outside of this client.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip)]
    person_only: bool,
    /// The role and the claims that the write runs with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    caller_context: Option<CallerContext>,
    /// The label of the caller that proposed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    proposed_by: Option<String>,
    /// Who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    decided_by: Option<String>,
    /// The channel of the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    decided_via: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    decided_at: Option<String>,
    /// Why it was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    decision_reason: Option<String>,
    /// The receipt of the write.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    correlation_id: Option<CorrelationId>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    error_code: Option<String>,
    /// The same in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    error_message: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    completed_at: Option<String>,
    /// What reviewers have asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    questions: Vec<AskedQuestion>,
    /// How the agent answers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    how_to_answer: Option<&'static str>,
    /// What has changed since it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    since: Option<SinceData>,
    /// The newest later proposal of the same call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    newer_proposal: Option<ProposalId>,
}

impl ProposalData {
    /// The proposal, if it is small, or else without the rows and the ends of texts that do not fit.
    /// `is_for_person` says whether a person has to decide outside of the client.
    pub(crate) fn new(proposal: &ShownProposal<'_>, console: Option<&ConsoleLinks>, is_for_person: bool) -> Self {
        let whole = Self::whole(proposal, console, is_for_person);
        if size(&whole) <= MAX_BYTES { whole } else { whole.cut() }
    }

    /// The proposal with a page of its rows, after the first `after` ones. The first page has the
    /// parameters and the answer, too, if they fit.
    pub(crate) fn page(
        proposal: &ShownProposal<'_>,
        console: Option<&ConsoleLinks>,
        is_for_person: bool,
        after: usize,
    ) -> Self {
        let mut page = Self::whole(proposal, console, is_for_person);
        let has_room = |size: usize| after == 0 && size <= MAX_PAGE_BYTES;
        if !has_room(size(&page.params)) {
            page.params = Map::new();
            page.left_out = Some(ON_FIRST_PAGE.to_owned());
        }
        if !has_room(size(&page.preview.result)) {
            page.preview.result = Value::Null;
            page.left_out = Some(ON_FIRST_PAGE.to_owned());
        }
        let rows = taken(&mut page.preview);
        let end = rows.page_end(after);
        page.next_after = (end < rows.count()).then_some(end);
        put(rows, &mut page.preview, &(after..end));
        page
    }

    fn whole(proposal: &ShownProposal<'_>, console: Option<&ConsoleLinks>, is_for_person: bool) -> Self {
        let description = shown_description(proposal);
        let since = SinceData::new(proposal.since(), proposal.unread());
        let effects = proposal.effects();
        let proposal = (**proposal).clone();
        Self {
            review_url: console.filter(|_| is_for_person).map(|console| console.proposal(&proposal.proposal_id)),
            person_only: is_for_person && proposal.tier == Tier::Confirm,
            proposal_id: proposal.proposal_id,
            reason: proposal.reason,
            action: proposal.tool_name,
            tier: proposal.tier,
            approvals: (proposal.tier == Tier::Approve).then_some(proposal.rule.approvals),
            approvers: proposal.rule.approvers,
            approved_by: proposal.approved_by.into_iter().map(|approval| approval.person).collect(),
            status: proposal.status,
            description,
            params: proposal.params,
            // These are for the server and the reviewer, not for the agent.
            preview: Preview {
                definitions: Vec::new(),
                in_title: Vec::new(),
                unusual: Vec::new(),
                labels: Vec::new(),
                effects,
                agreed_rows: None,
                further_rows: None,
                further_text: None,
                cut_texts: Vec::new(),
                ..proposal.preview
            },
            summary: Vec::new(),
            left_out: None,
            next_after: None,
            digest: proposal.digest,
            created_at: proposal.created_at,
            expires_at: proposal.expires_at,
            caller_context: proposal.caller_context,
            proposed_by: proposal.actor,
            decided_by: proposal.decided_by,
            decided_via: proposal.decided_via,
            decided_at: proposal.decided_at,
            decision_reason: proposal.decision_reason,
            correlation_id: proposal.correlation_id,
            error_code: proposal.error_code,
            error_message: proposal.error_message,
            completed_at: proposal.completed_at,
            how_to_answer: (!proposal.questions.is_empty() && proposal.status == ProposalStatus::Pending)
                .then_some(HOW_TO_ANSWER),
            questions: proposal.questions.into_iter().map(AskedQuestion::from).collect(),
            since,
            newer_proposal: proposal.newer,
        }
    }

    fn cut(mut self) -> Self {
        self.summary = Summary::new(&self.preview).sentences(MAX_COLUMNS);
        let mut rows = taken(&mut self.preview);
        self.description = cut(&self.description, 2 * MAX_TEXT_CHARS);
        self.questions.drain(..self.questions.len().saturating_sub(MAX_QUESTIONS));
        self.questions.iter_mut().for_each(|asked| asked.question = cut(&asked.question, MAX_TEXT_CHARS));
        self.params.values_mut().for_each(cut_texts);
        cut_texts(&mut self.preview.result);
        self.preview.warnings.iter_mut().for_each(|warning| *warning = cut(warning, MAX_TEXT_CHARS));
        rows.cut();
        self.left_out = Some(left_out("get_proposal"));
        if size(&self) > MAX_BYTES {
            self.preview.result = Value::Null;
        }
        if size(&self) > MAX_BYTES {
            self.params = Map::new();
        }
        let end = rows.fitting(0, MAX_BYTES.saturating_sub(size(&self)));
        put(rows, &mut self.preview, &(0..end));
        self
    }
}

/// A question of a reviewer.
#[derive(Debug, Serialize)]
struct AskedQuestion {
    by: String,
    at: String,
    question: String,
}

impl From<Question> for AskedQuestion {
    fn from(asked: Question) -> Self {
        let by = decided_by(&asked.asked_by, Some(&asked.asked_login), Some(&asked.asked_via)).short();
        Self { by, at: asked.asked_at, question: asked.question }
    }
}

/// The rows of a preview, which then has none.
fn taken(preview: &mut Preview) -> RowLists {
    RowLists::new(preview.effects.take(), preview.before.take(), preview.after.take())
}

fn put(rows: RowLists, preview: &mut Preview, range: &Range<usize>) {
    (preview.effects, preview.before, preview.after) = rows.part(range);
}
