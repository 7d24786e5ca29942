//! `countersign audit verify` (attacks AU04, AU05).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use ledger::audit::{Audit, Checkpoint, Verified, VerifyFinding};

use super::args::VerifyArgs;
use super::open;
use crate::settings::Settings;
use crate::terminal::print_line;

pub(crate) async fn run(arguments: VerifyArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let audit = open(settings).await?;
    let mut findings = Vec::new();
    let mut agreed = None;
    if let Some(path) = &arguments.checkpoint {
        match compare(&audit, path).await? {
            Ok(count) => agreed = Some(count),
            Err(finding) => findings.push(finding),
        }
    }
    // A seal that is made now would hide where a chain was cut, so only a chain that fits its checkpoints is extended.
    if findings.is_empty() {
        seal(&audit).await?;
    }
    match audit.verify().await? {
        Ok(verified) if findings.is_empty() => summary(verified, agreed),
        Ok(_) => {}
        Err(finding) => findings.insert(0, finding.to_string()),
    }
    for finding in &findings {
        print_line(&format!("Does not agree: {finding}."));
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An auditor's login may be unable to write, and so may a standby: then the last minute is left unsealed.
async fn seal(audit: &Audit) -> anyhow::Result<()> {
    match audit.seal().await {
        Ok(_) => Ok(()),
        Err(error)
            if error.server_error().is_some_and(|error| matches!(error.sqlstate.as_str(), "42501" | "25006")) =>
        {
            tracing::info!(%error, "nothing more was sealed: this login may only read");
            Ok(())
        }
        Err(error) => Err(error).context("the records cannot be sealed"),
    }
}

fn summary(verified: Verified, checkpoints: Option<usize>) {
    let Verified { entries, records, pruned, unsealed, pending } = verified;
    print_line(&format!(
        "The ledger agrees with its seals: {records} records in {entries} entries, {pruned} pruned since."
    ));
    print_line(&format!("Not sealed yet: {unsealed} final records. Pending: {pending}."));
    if let Some(count) = checkpoints {
        print_line(&format!("The seals agree with all {count} checkpoints."));
    }
}

/// Compares the checkpoints of a file, one a line: how many agree, or what does not.
async fn compare(audit: &Audit, path: &Path) -> anyhow::Result<Result<usize, String>> {
    let cannot_read = || format!("the checkpoint file {} cannot be read", path.display());
    let file = BufReader::new(File::open(path).with_context(cannot_read)?);
    let mut count = 0;
    for (index, line) in file.lines().enumerate() {
        let line = line.with_context(cannot_read)?;
        if line.trim().is_empty() {
            continue;
        }
        let place = format!("{}, line {}", path.display(), index + 1);
        let checkpoint = read(&line).with_context(|| {
            format!("{place}: not a checkpoint; it takes lines as `countersign audit seal` prints them")
        })?;
        if let Some(finding) = audit.compare(&checkpoint).await? {
            return Ok(Err(described(&finding, &checkpoint, &place)));
        }
        count += 1;
    }
    anyhow::ensure!(count > 0, "{} holds no checkpoint: `countersign audit seal` prints one", path.display());
    Ok(Ok(count))
}

fn described(finding: &VerifyFinding, checkpoint: &Checkpoint, place: &str) -> String {
    format!("{finding} ({place}, taken at {})", types::visible(&checkpoint.at))
}

fn read(line: &str) -> anyhow::Result<Checkpoint> {
    let checkpoint: Checkpoint = serde_json::from_str(line)?;
    anyhow::ensure!(checkpoint.entries >= 0, "entries is negative");
    let is_hash =
        checkpoint.hash.len() == 64 && checkpoint.hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    anyhow::ensure!(is_hash || (checkpoint.entries == 0 && checkpoint.hash.is_empty()), "hash takes 64 hex digits");
    Ok(checkpoint)
}
