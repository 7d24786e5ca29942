//! Records and proposals that have not come to their end (promises C5-09, C5-10).

use std::time::Duration;

use ledger::{Doctor, MOST_FOUND};
use serde_json::{Map, Value};

use super::Finding;
use crate::ago::{WORDS, rounded};
use crate::table::{cell, to_the_second};

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
    let finding = |record: &Map<String, Value>| {
        let message = format!(
            "{} of account {} is pending for {} (correlation id {})",
            cell(record.get("tool_name")),
            cell(record.get("account_id")),
            age(record),
            cell(record.get("correlation_id"))
        );
        Finding::problem(AREA, message, advice)
    };
    each(AREA, found, finding, "writes are pending for too long")
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
    let finding = |proposal: &Map<String, Value>| {
        let time = |column: &str| to_the_second(&cell(proposal.get(column)));
        let tool = cell(proposal.get("tool_name"));
        let message = format!(
            "{tool} of account {} is confirmed for {} and not carried out: proposal {}, proposed {}, confirmed {} by {}",
            cell(proposal.get("account_id")),
            age(proposal),
            cell(proposal.get("proposal_id")),
            time("created_at"),
            time("decided_at"),
            cell(proposal.get("decided_by")),
        );
        let advice = if proposal.get("is_over") == Some(&Value::Bool(true)) {
            "its time is over, and any server that runs ends it within a minute: start one".to_owned()
        } else {
            format!(
                "until {} a server that serves {tool} carries it out: start one, or read its log",
                time("executable_until")
            )
        };
        Finding::problem(AREA, message, advice)
    };
    each(AREA, found, finding, "proposals are confirmed for more than 5 minutes")
}

/// A finding for each row, and one for those that are not listed.
fn each(
    area: &'static str,
    rows: Vec<Map<String, Value>>,
    finding: impl Fn(&Map<String, Value>) -> Finding,
    what: &str,
) -> Vec<Finding> {
    let total = rows.first().and_then(|row| row.get("total")).and_then(Value::as_u64).unwrap_or_default();
    let mut findings: Vec<Finding> = rows
        .into_iter()
        .map(|mut row| {
            row.shift_remove("total");
            finding(&row).with(row)
        })
        .collect();
    if total > u64::from(MOST_FOUND) {
        let message = format!("{total} {what}; the newest {MOST_FOUND} are listed");
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
    let number = |key: &str| found.get(key).and_then(Value::as_u64).unwrap_or_default();
    if number("records") == 0 {
        return Finding::ok(AREA, "what was final 10 minutes ago is sealed");
    }
    let message = format!(
        "{} final records are not sealed, the oldest since {}",
        number("records"),
        to_the_second(&cell(found.get("oldest")))
    );
    let advice = if number("pending") > 0 {
        "records wait for older ones that are pending: see there, then run `countersign audit seal`"
    } else {
        "run `countersign audit seal`; if they stay, a session has a transaction open in which it wrote to the ledger (pg_stat_activity)"
    };
    Finding::warning(AREA, message, advice).with(found)
}

async fn lately(doctor: &Doctor) -> Finding {
    const AREA: &str = "proposals";
    match doctor.confirmed_lately().await {
        Ok(0) => Finding::ok(AREA, "none was confirmed within the last hour and has no end yet"),
        Ok(count) => Finding::warning(
            AREA,
            format!("{count} confirmed within the last hour, without an end yet"),
            "a few that are being carried out right now are as it should be; if it stays, no server serves their tools",
        )
        .with(Map::from_iter([("confirmed_last_hour".to_owned(), count.into())])),
        Err(error) => Finding::unasked(AREA, "confirmed proposals", &error),
    }
}

async fn waiting(doctor: &Doctor) -> Vec<Finding> {
    const AREA: &str = "proposals";
    let found = match doctor.waiting_proposals().await {
        Ok(found) => found,
        Err(error) => return vec![Finding::unasked(AREA, "pending proposals", &error)],
    };
    let finding = |row: Map<String, Value>| {
        let message = format!(
            "{} of tier {} wait for somebody to decide; the next one expires at {}",
            cell(row.get("proposals")),
            cell(row.get("tier")),
            to_the_second(&cell(row.get("next_to_expire")))
        );
        Finding::ok(AREA, message).with(row)
    };
    if found.is_empty() {
        return vec![Finding::ok(AREA, "none waits for a decision")];
    }
    found.into_iter().map(finding).collect()
}

/// `age_s` as a sentence has it.
fn age(row: &Map<String, Value>) -> String {
    let seconds = row.get("age_s").and_then(Value::as_u64).unwrap_or_default();
    rounded(Duration::from_secs(seconds), WORDS)
}
