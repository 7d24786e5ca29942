//! Proposals: an agent proposes, people approve or reject, a server carries out.

use std::collections::BTreeMap;

use super::Check;
use crate::history::{FinalState, History, Operation};
use crate::line::{Id, Outcome, Request, Status};

/// By how much the times of two lines may be off.
const ROUNDED_MS: i64 = 2;

pub(super) fn check(history: &History, end: &FinalState) -> Check {
    let mut check = Check::default();
    let mut proposals: BTreeMap<&Id, Vec<&Operation>> = BTreeMap::new();
    for operation in &history.operations {
        let proposal = match (&operation.call.request, operation.outcome()) {
            (_, Some(Outcome::Proposed { proposal })) => proposal,
            (Request::Approve { proposal } | Request::Reject { proposal }, _) => proposal,
            _ => continue,
        };
        proposals.entry(proposal).or_default().push(operation);
    }
    for (proposal, operations) in &proposals {
        check.cases += 1;
        let done: Vec<_> = end
            .records
            .iter()
            .filter(|record| record.of.status == Status::Success && record.of.proposal.as_ref() == Some(proposal))
            .collect();
        let lines =
            || operations.iter().flat_map(|operation| operation.lines()).chain(done.iter().map(|record| record.line));
        let first = done.iter().filter_map(|record| record.of.at).min();
        let approvals = operations.iter().filter(|operation| matches!(operation.call.request, Request::Approve { .. }));
        let is_approved = approvals.clone().any(|approval| first.is_none_or(|at| began(approval) <= at + ROUNDED_MS));
        // A later command may say that what was approved has failed.
        let is_agreed = approvals.clone().next_back().is_some_and(|approval| has_succeeded(approval));
        let name = proposal.as_str();
        let mut rejections =
            operations.iter().filter(|operation| matches!(operation.call.request, Request::Reject { .. }));
        // A person takes back what is approved and not being carried out.
        let may_be_withdrawn = rejections.clone().any(|rejection| !has_failed(rejection));
        match done.len() {
            0 if is_agreed && !may_be_withdrawn => {
                check.breach(lines(), format!("{name} was approved, and is not carried out"))
            }
            1.. if !is_approved => check.breach(lines(), format!("{name} was carried out before anybody approved it")),
            2.. => check.breach(lines(), format!("{name} was carried out {} times", done.len())),
            _ => {}
        }
        if !done.is_empty() && rejections.any(|rejection| has_succeeded(rejection)) {
            check.breach(lines(), format!("{name} was rejected, and carried out"));
        }
    }
    let tools: Vec<&String> = history.operations.iter().filter_map(proposing_tool).collect();
    for record in end.records.iter().filter(|record| record.of.status == Status::Success) {
        let is_known = record.of.proposal.as_ref().is_some_and(|proposal| proposals.contains_key(proposal));
        if tools.contains(&&record.of.tool) && !is_known {
            check.breach([record.line], "a write that needs approval was carried out without a proposal");
        }
    }
    check
}

/// The beginning of an operation by the wall clock, as records have it.
fn began(operation: &Operation) -> i64 {
    operation.call.wall.unwrap_or(operation.call.t)
}

fn has_succeeded(operation: &Operation) -> bool {
    matches!(operation.outcome(), Some(Outcome::Ended { code: Some(0), .. }))
}

/// Whether it has certainly had no effect.
fn has_failed(operation: &Operation) -> bool {
    matches!(operation.outcome(), Some(Outcome::Ended { code: Some(1..), in_doubt: false, .. }))
}

/// A tool that needs approval.
fn proposing_tool(operation: &Operation) -> Option<&String> {
    match (&operation.call.request, operation.outcome()?) {
        (Request::Write { tool, .. }, Outcome::Proposed { .. }) => Some(tool),
        _ => None,
    }
}
