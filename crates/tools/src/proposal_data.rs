//! A proposal as agents see it. What does not fit into [`MAX_BYTES`] is left out, and read in pages.

use std::collections::BTreeMap;
use std::ops::Range;

use ledger::proposals::{Preview, ProposalStatus};
use review::Summary;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use types::{CorrelationId, Effects, ProposalId, Tier};

use crate::proposal_text::{cut, shown_description};
use crate::schema::AnyJson;
use crate::services::ConsoleLinks;
use crate::shown_proposal::ShownProposal;

/// The maximum size of a proposal for an agent, in bytes of JSON.
const MAX_BYTES: usize = 4 << 10;

/// The maximum size of a page of rows, in bytes of JSON.
const MAX_PAGE_BYTES: usize = 32 << 10;

/// The maximum number of sentences of a summary.
const MAX_SENTENCES: usize = 10;

/// The maximum length of a text in a proposal that is cut, in characters.
const MAX_TEXT_CHARS: usize = 200;

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
    /// For approve: the page of the console on which people decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    review_url: Option<String>,
    /// The label of the caller that proposed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    proposed_by: Option<String>,
    /// Who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    decided_by: Option<String>,
    /// How they told.
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
}

impl ProposalData {
    /// The proposal, if it is small, or else without the rows and the ends of texts that do not fit.
    pub(crate) fn new(proposal: &ShownProposal<'_>, console: Option<&ConsoleLinks>) -> Self {
        let whole = Self::whole(proposal, console);
        if size(&whole) <= MAX_BYTES { whole } else { whole.cut() }
    }

    /// The proposal with a page of its rows, after the first `after` ones. The first page has the
    /// parameters and the answer, too, if they fit.
    pub(crate) fn page(proposal: &ShownProposal<'_>, console: Option<&ConsoleLinks>, after: usize) -> Self {
        let mut page = Self::whole(proposal, console);
        if after > 0 || size(&page.params) > MAX_PAGE_BYTES {
            page.params = Map::new();
        }
        if after > 0 || size(&page.preview.result) > MAX_PAGE_BYTES {
            page.preview.result = Value::Null;
        }
        let rows = PreviewRows::take(&mut page.preview);
        // At least one row, however large.
        let end = rows.fitting(after, MAX_PAGE_BYTES).max((after + 1).min(rows.count()));
        page.next_after = (end < rows.count()).then_some(end);
        rows.put(&mut page.preview, after..end);
        page
    }

    fn whole(proposal: &ShownProposal<'_>, console: Option<&ConsoleLinks>) -> Self {
        let description = shown_description(proposal);
        let proposal = (**proposal).clone();
        Self {
            review_url: console
                .filter(|_| proposal.tier == Tier::Approve)
                .map(|console| console.proposal(&proposal.proposal_id)),
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
            // The definitions are for the server and the reviewer, not for the agent.
            preview: Preview { definitions: Vec::new(), ..proposal.preview },
            summary: Vec::new(),
            left_out: None,
            next_after: None,
            digest: proposal.digest,
            created_at: proposal.created_at,
            expires_at: proposal.expires_at,
            proposed_by: proposal.actor,
            decided_by: proposal.decided_by,
            decided_via: proposal.decided_via,
            decided_at: proposal.decided_at,
            decision_reason: proposal.decision_reason,
            correlation_id: proposal.correlation_id,
            error_code: proposal.error_code,
            error_message: proposal.error_message,
            completed_at: proposal.completed_at,
        }
    }

    fn cut(mut self) -> Self {
        self.summary = Summary::new(&self.preview).sentences().take(MAX_SENTENCES).collect();
        let mut rows = PreviewRows::take(&mut self.preview);
        self.description = cut(&self.description, 2 * MAX_TEXT_CHARS);
        self.params.values_mut().for_each(cut_texts);
        cut_texts(&mut self.preview.result);
        self.preview.warnings.iter_mut().for_each(|warning| *warning = cut(warning, MAX_TEXT_CHARS));
        rows.cut();
        self.left_out = Some(LEFT_OUT.to_owned());
        if size(&self) > MAX_BYTES {
            self.preview.result = Value::Null;
        }
        if size(&self) > MAX_BYTES {
            self.params = Map::new();
        }
        let end = rows.fitting(0, MAX_BYTES.saturating_sub(size(&self)));
        rows.put(&mut self.preview, 0..end);
        self
    }
}

const LEFT_OUT: &str = "Rows are left out, and long texts cut. get_proposal with rows = \"all\" has more, in pages if there are many rows.";

/// The rows of a preview. Each list may have a row with the same number.
struct PreviewRows {
    effects: Option<Effects<Value>>,
    before: Option<Vec<Value>>,
    after: Option<Vec<Value>>,
}

impl PreviewRows {
    fn take(preview: &mut Preview) -> Self {
        let rows = |image: &mut Option<Value>| match image.take() {
            Some(Value::Array(rows)) => Some(rows),
            other => other.map(|row| vec![row]),
        };
        Self { effects: preview.effects.take(), before: rows(&mut preview.before), after: rows(&mut preview.after) }
    }

    /// Puts the rows of this range into the preview.
    fn put(self, preview: &mut Preview, range: Range<usize>) {
        let image = |rows: Vec<Value>| Value::Array(part(rows, &range));
        preview.before = self.before.map(image);
        preview.after = self.after.map(image);
        preview.effects = self.effects.map(|effects| Effects { rows: part(effects.rows, &range), ..effects });
    }

    /// Removes the images if the effects have the same rows, and cuts the texts of the others.
    fn cut(&mut self) {
        if let Some(effects) = &mut self.effects {
            (self.before, self.after) = (None, None);
            let cut = |_: &str, mut value: Value| {
                cut_texts(&mut value);
                value
            };
            effects.rows = std::mem::take(&mut effects.rows).into_iter().map(|row| row.map(cut)).collect();
        }
        self.before.iter_mut().chain(&mut self.after).flatten().for_each(cut_texts);
    }

    fn count(&self) -> usize {
        let images = [&self.before, &self.after].map(|image| image.as_ref().map_or(0, Vec::len));
        images.into_iter().chain(self.effects.as_ref().map(|effects| effects.rows.len())).max().unwrap_or_default()
    }

    /// The end of the rows from `start` on that take at most so many bytes.
    fn fitting(&self, start: usize, bytes: usize) -> usize {
        let mut taken = 0;
        let fits = |at: &usize| {
            let images = [&self.before, &self.after].map(|image| image.as_ref().and_then(|rows| rows.get(*at)));
            let effect = self.effects.as_ref().and_then(|effects| effects.rows.get(*at));
            taken += images.into_iter().flatten().map(size).sum::<usize>() + effect.map_or(0, size) + 3;
            taken <= bytes
        };
        let count = self.count();
        start.min(count) + (start..count).take_while(fits).count()
    }
}

fn part<T>(rows: Vec<T>, range: &Range<usize>) -> Vec<T> {
    rows.into_iter().skip(range.start).take(range.len()).collect()
}

/// The size as JSON, in bytes.
fn size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}

/// Cuts the long texts of a value.
fn cut_texts(value: &mut Value) {
    match value {
        Value::String(text) => *text = cut(text, MAX_TEXT_CHARS),
        Value::Array(items) => items.iter_mut().for_each(cut_texts),
        Value::Object(fields) => fields.values_mut().for_each(cut_texts),
        _ => {}
    }
}
