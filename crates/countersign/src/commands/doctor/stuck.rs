//! Records and proposals that should have ended but have not.

use std::time::Duration;

use ledger::{AbandonedRecord, Doctor, MAX_FOUND, StuckProposal, WaitingProposals};
use serde::Serialize;
use serde_json::json;
use types::visible;

use crate::terminal::table::{or_dash, to_the_second};
use review::Finding;
use review::ago::{WORDS, rounded};

pub(super) async fn examine(doctor: &Doctor) -> Vec<Finding> {
    let mut findings = records(doctor).await;
    findings.push(unsealed(doctor).await);
    findings.extend(proposals(doctor).await);
    findings.push(lately(doctor).await);
    findings.extend(waiting(doctor).await);
    findings
}

async fn records(doctor: &Doctor) -> Vec<Finding> {
    const AREA: &str = "records";
    let found = match doctor.abandoned_records().await {
        Ok(found) => found,
        Err(error) => return vec![Finding::unasked(AREA, "pending records", &error)],
    };
    if found.is_empty() {
        return vec![Finding::ok(AREA, "no write is pending for longer than a call may take")];
    }
    let advice = "nothing of it was written; a server that runs ends it within a minute: start one";
    let finding = |record: &AbandonedRecord| {
        let message = format!(
            "{} of account {} is pending for {} (correlation id {})",
            visible(&record.tool_name),
            visible(&record.account_id),
            age(record.age_s),
            record.correlation_id
        );
        Finding::problem(AREA, message, advice)
    };
    let total = found.first().map_or(0, |record| record.total);
    each(AREA, &found, total, finding, "writes are pending for too long")
}

async fn proposals(doctor: &Doctor) -> Vec<Finding> {
    const AREA: &str = "proposals";
    let found = match doctor.stuck_proposals().await {
        Ok(found) => found,
        Err(error) => return vec![Finding::unasked(AREA, "confirmed proposals", &error)],
    };
    if found.is_empty() {
        return vec![Finding::ok(AREA, "none is confirmed for more than 5 minutes without an end")];
    }
    let finding = |proposal: &StuckProposal| {
        let tool = visible(&proposal.tool_name);
        let message = format!(
            "{tool} of account {} is confirmed for {} and not executed: proposal {}, proposed {}, confirmed {} by {}",
            visible(&proposal.account_id),
            age(proposal.age_s),
            proposal.proposal_id,
            to_the_second(&proposal.created_at),
            to_the_second(&proposal.decided_at),
            or_dash(proposal.decided_by.as_deref()),
        );
        let advice = if proposal.is_over == Some(true) {
            "its time is over, and any server that runs ends it within a minute: start one".to_owned()
        } else {
            let until = to_the_second(&or_dash(proposal.executable_until.as_deref()));
            format!("until {until} a server that serves {tool} carries it out: start one, or read its log")
        };
        Finding::problem(AREA, message, advice)
    };
    let total = found.first().map_or(0, |proposal| proposal.total);
    each(AREA, &found, total, finding, "proposals are confirmed for more than 5 minutes")
}

/// A finding for each row, and one that counts the rows which are not listed.
fn each<T: Serialize>(
    area: &'static str,
    rows: &[T],
    total: u64,
    finding: impl Fn(&T) -> Finding,
    what: &str,
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = rows.iter().map(|row| finding(row).with(row)).collect();
    if total > u64::from(MAX_FOUND) {
        let message = format!("{total} {what}; the newest {MAX_FOUND} are listed");
        findings.push(Finding::broken(area, message));
    }
    findings
}

async fn unsealed(doctor: &Doctor) -> Finding {
    const AREA: &str = "log";
    let found = match doctor.unsealed_records().await {
        Ok(found) => found,
        Err(error) => return Finding::unasked(AREA, "what is sealed", &error),
    };
    if found.records == 0 {
        return Finding::ok(AREA, "what was final 10 minutes ago is sealed");
    }
    let message = format!(
        "{}{} final records are not sealed, the oldest since {}",
        if found.has_more { "at least " } else { "" },
        found.records,
        to_the_second(found.oldest.as_deref().unwrap_or("-"))
    );
    let advice = if found.pending > 0 {
        "records wait for older ones that are pending: see there, then run `countersign audit seal`"
    } else {
        "run `countersign audit seal`; if they stay, a session has a transaction open in which it wrote to the ledger (pg_stat_activity)"
    };
    Finding::warning(AREA, message, advice).with(&found)
}

async fn lately(doctor: &Doctor) -> Finding {
    const AREA: &str = "proposals";
    match doctor.confirmed_lately().await {
        Ok(0) => Finding::ok(AREA, "none was confirmed within the last hour and has no end yet"),
        Ok(count) => Finding::warning(
            AREA,
            format!("{count} confirmed within the last hour, without an end yet"),
            "a few that are being executed are normal; if the number stays, no server serves their tools",
        )
        .with(&json!({"confirmed_last_hour": count})),
        Err(error) => Finding::unasked(AREA, "confirmed proposals", &error),
    }
}

async fn waiting(doctor: &Doctor) -> Vec<Finding> {
    const AREA: &str = "proposals";
    let found = match doctor.waiting_proposals().await {
        Ok(found) => found,
        Err(error) => return vec![Finding::unasked(AREA, "pending proposals", &error)],
    };
    let finding = |row: &WaitingProposals| {
        let message = format!(
            "{} of tier {} wait for somebody to decide; the next one expires at {}",
            row.proposals,
            row.tier,
            to_the_second(&row.next_to_expire)
        );
        Finding::ok(AREA, message).with(row)
    };
    if found.is_empty() {
        return vec![Finding::ok(AREA, "none waits for a decision")];
    }
    found.iter().map(finding).collect()
}

fn age(seconds: u64) -> String {
    rounded(Duration::from_secs(seconds), WORDS)
}
