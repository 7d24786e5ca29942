//! `countersign audit verify DIR` and `--proof FILE`: verifies without a database.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use serde_json::json;
use tlog::{INCOMPLETE_CHECKPOINT, Policy, Report, Trust, verify_bundle, verify_proof};

use super::args::VerifyArgs;
use crate::terminal::{print_line, print_lines};

pub(super) fn trust(arguments: &VerifyArgs) -> anyhow::Result<Trust> {
    let policy = arguments.policy.as_deref().map(read_policy).transpose()?;
    Ok(Trust { keys: arguments.vkey.clone(), policy })
}

fn read_policy(path: &Path) -> anyhow::Result<Policy> {
    let text = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    Policy::parse(&text).with_context(|| path.display().to_string())
}

pub(super) fn run(arguments: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let trust = trust(arguments)?;
    ensure!(
        !trust.keys.is_empty() || trust.policy.is_some(),
        "give --vkey with the public key of the log, or --policy: a key that lies beside the log proves nothing"
    );
    let (report, verified) = match (&arguments.dir, &arguments.proof) {
        (Some(dir), _) => (verify_bundle(dir, &trust, &arguments.checkpoint)?, "The bundle"),
        (None, Some(proof)) => (verify_proof(proof, &trust)?, "The proof"),
        (None, None) => return Ok(ExitCode::from(2)),
    };
    if arguments.json {
        print_line(&as_json(&report).to_string());
    } else {
        print_lines(describe(&report, verified));
        if arguments.dir.as_ref().is_some_and(|dir| dir.join(INCOMPLETE_CHECKPOINT).exists()) {
            print_line("The export into this folder is not complete: it is running, or it was interrupted.");
        }
    }
    Ok(if report.is_valid() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn describe(report: &Report, verified: &str) -> Vec<String> {
    let mut lines: Vec<String> = report
        .findings
        .iter()
        .map(|finding| format!("Does not agree: {}.", types::visible(&finding.to_string())))
        .collect();
    if let (true, Some(origin), Some(size), Some(root)) = (report.is_valid(), &report.origin, report.size, report.root)
    {
        lines.push(format!("{verified} is valid: {size} entries of {}, root {root}.", types::visible(origin)));
        lines.push(format!(
            "{} entries were verified, with {} parts; {} parts are not here.",
            report.entries, report.parts, report.withheld
        ));
        lines.extend(erased(report.erased, report.erasures, report.first_erasure));
        lines.extend(
            report
                .cosigned
                .iter()
                .map(|(name, time)| format!("Cosigned by {} at {} (seconds since 1970).", types::visible(name), time)),
        );
    }
    lines
}

/// What erasures have taken from the parts, if there were any.
pub(super) fn erased(parts: u64, entries: u64, first: u64) -> Option<String> {
    let by = if entries == 1 { format!("entry {first}") } else { format!("{entries} entries, first {first}") };
    (entries > 0).then(|| format!("{parts} parts erased by {by}."))
}

fn as_json(report: &Report) -> serde_json::Value {
    let findings: Vec<_> =
        report.findings.iter().map(|finding| json!({"code": finding.code.name(), "place": finding.place})).collect();
    json!({
        "verdict": if report.is_valid() { "valid" } else { "invalid" },
        "origin": report.origin,
        "size": report.size,
        "root": report.root.map(|root| root.to_string()),
        "entries": report.entries,
        "parts": report.parts,
        "withheld": report.withheld,
        "erased": report.erased,
        "findings": findings,
    })
}
