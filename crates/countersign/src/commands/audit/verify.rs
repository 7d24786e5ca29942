//! `countersign audit verify`: compares the records with the log, and the log with a checkpoint.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use ledger::audit::{Audit, KeptCheckpoint, TrustedKeys, Verified};
use ledger::{Ledger, LedgerObstacle};
use tlog::{SignedNote, Trust};

use super::args::VerifyArgs;
use super::bundle;
use crate::connection;
use crate::settings::DatabaseSettings;
use crate::terminal::{print_line, print_lines};

/// The exit code if nothing could be verified.
const NOT_VERIFIED: u8 = 2;

impl VerifyArgs {
    /// Whether files are verified, without a database.
    pub(super) const fn is_of_files(&self) -> bool {
        self.dir.is_some() || self.proof.is_some()
    }
}

/// Verifies files, or the ledger of a database.
pub(super) async fn run(arguments: &VerifyArgs, database: Option<&DatabaseSettings>) -> ExitCode {
    let outcome = match database {
        Some(database) => verify_ledger(arguments, database).await,
        None => bundle::run(arguments),
    };
    outcome.unwrap_or_else(|error| {
        match database {
            Some(database) => crate::failed_with(&error, database),
            None => crate::failed(&error),
        };
        ExitCode::from(NOT_VERIFIED)
    })
}

async fn verify_ledger(arguments: &VerifyArgs, settings: &DatabaseSettings) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(!arguments.json, "--json is for bundles and proofs: give a folder, or --proof");
    let ledger = Ledger::new(connection::configured(settings)?, settings.ledger.clone());
    ledger.check().await?;
    let audit = ledger.audit();
    let mut trust = bundle::trust(arguments)?;
    let keys =
        trust.keys.iter().chain(trust.policy.iter().flat_map(|policy| policy.logs())).cloned().collect::<Vec<_>>();
    let is_given = !keys.is_empty();
    let trusted = if is_given { TrustedKeys::Given(keys) } else { TrustedKeys::Ledger };
    if !is_given {
        trust.keys = audit.keys().await?.iter().filter_map(|key| key.vkey.parse().ok()).collect();
    }
    let kept = arguments.checkpoint.iter().map(|path| read(path, &trust)).collect::<anyhow::Result<Vec<_>>>()?;
    let kept = match kept.into_iter().collect::<Result<Vec<_>, String>>() {
        Ok(kept) => kept,
        Err(finding) => return Ok(disagree(&finding)),
    };
    // Sealing now could hide that the log was truncated. So the log is sealed only if it fits its checkpoints.
    if let Some(finding) = audit.compare(&kept).await? {
        return Ok(disagree(&finding));
    }
    let obstacle = obstacle(&ledger).await?;
    if let Some(obstacle @ (LedgerObstacle::Contradicted { .. } | LedgerObstacle::Lost { .. })) = &obstacle {
        return Ok(disagree(obstacle));
    }
    seal(&audit).await?;
    match audit.verify(&trusted, &kept).await? {
        Ok(verified) => {
            summary(&verified, is_given);
            if let Some(obstacle) = obstacle {
                print_line(&format!("Servers refuse it: {obstacle}."));
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(finding) => Ok(disagree(&finding)),
    }
}

/// Why servers refuse the ledger. The log of a copy agrees all the same; that of one that lacks something does not.
async fn obstacle(ledger: &Ledger) -> anyhow::Result<Option<LedgerObstacle>> {
    match ledger.obstacle().await {
        Err(error) if error.server_error().is_some_and(|error| error.sqlstate == "42501") => {
            print_line(&format!("Whether servers refuse it is not known, since this login may not ask: {error}."));
            Ok(None)
        }
        obstacle => Ok(obstacle?),
    }
}

fn disagree(finding: &impl std::fmt::Display) -> ExitCode {
    print_line(&format!("Does not agree: {}.", types::visible(&finding.to_string())));
    ExitCode::FAILURE
}

/// Seals the records of the last minute. An auditor's login or a standby may be unable to write, and a copy has no
/// log of its own: then these records stay unsealed.
pub(super) async fn seal(audit: &Audit) -> anyhow::Result<()> {
    match audit.seal().await {
        Ok(_) => Ok(()),
        Err(error)
            if error
                .server_error()
                .is_some_and(|error| matches!(error.sqlstate.as_str(), "42501" | "25006" | "55000")) =>
        {
            tracing::info!(%error, "nothing more was sealed");
            Ok(())
        }
        Err(error) => Err(error).context("the records cannot be sealed"),
    }
}

fn summary(verified: &Verified, is_given: bool) {
    let Verified {
        entries,
        records,
        pruned,
        pruned_unproved,
        unsealed,
        pending,
        checkpoints,
        ignored,
        signed,
        kept,
        ..
    } = verified;
    print_line(&format!(
        "The ledger agrees with its log: {records} records in {entries} entries, {pruned} pruned since."
    ));
    if *pruned_unproved > 0 {
        print_line(&format!(
            "Only the tables say that {pruned_unproved} of these were pruned: no checkpoint covers the event of the pruning."
        ));
    }
    print_lines(bundle::erased(verified.erased, verified.erasures, verified.first_erasure));
    if verified.erasures_unproved > 0 {
        print_line(&format!("No checkpoint covers {} of these entries.", verified.erasures_unproved));
    }
    print_line(&format!("Not sealed yet: {unsealed} final records. Pending: {pending}."));
    print_line(&match (*checkpoints, is_given) {
        (0, _) => "No checkpoint is signed: the owner of the tables could have made the log anew.".to_owned(),
        (_, true) => format!("Signed: {checkpoints} checkpoints, the newest of {signed} entries."),
        (_, false) => format!(
            "Signed: {checkpoints} checkpoints, the newest of {signed} entries, by the keys that the ledger names; --vkey verifies with yours."
        ),
    });
    if *ignored > 0 {
        print_line(&format!("{ignored} more are not signed by a trusted key, and were ignored."));
    }
    if *kept > 0 {
        print_line(&format!("The log goes on from all {kept} checkpoints that were given."));
    }
}

/// Reads a checkpoint that was kept outside the database. The inner error is the reason why it is not accepted.
fn read(path: &Path, trust: &Trust) -> anyhow::Result<Result<KeptCheckpoint, String>> {
    let place = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("the checkpoint {place} cannot be read"))?;
    let note: SignedNote =
        text.parse().with_context(|| format!("{place} is no checkpoint, as `countersign audit seal` prints it"))?;
    Ok(match trust.open(&note) {
        Ok((checkpoint, _)) => Ok(KeptCheckpoint { place, checkpoint }),
        Err(error) => Err(format!("{place}: {error}")),
    })
}
