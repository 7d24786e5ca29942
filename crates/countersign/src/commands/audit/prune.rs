//! `countersign audit prune`: deletes old records, once or periodically.

use std::time::Duration;

use anyhow::Context;
use ledger::audit::{Audit, PrunePlan, Pruned};
use ledger::read::Error;
use types::Age;

use super::args::PruneArgs;
use super::open;
use crate::settings::DatabaseSettings;
use crate::signals::EndSignals;
use crate::terminal::os_user;
use crate::terminal::{print_line, print_lines};

/// The pause before the first retry of a failed pruning; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub(crate) async fn run(arguments: PruneArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    if let Some(every) = arguments.every {
        return keep_pruning(arguments.older_than, every, settings).await;
    }
    let audit = open(settings).await?;
    if arguments.dry_run {
        seal(&audit).await?;
        let (survey, made_before) = audit.survey(arguments.older_than).await?;
        print_line(&format!("Would remove {} made before {made_before}.", records(survey.prunable)));
        print_lines(left_over(survey));
    } else {
        print_lines(told(&prune(&audit, arguments.older_than).await?));
    }
    Ok(())
}

/// Prunes now and then at each interval, until a signal ends the process. Temporary errors are only logged: an
/// unreachable database, a lock, an upgrade in progress. A batch that a signal interrupts is rolled back.
async fn keep_pruning(older_than: Age, every: Age, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let mut signals = EndSignals::listen()?;
    tracing::info!(
        %older_than,
        %every,
        "pruning until a signal ends it"
    );
    let pruning = async {
        let mut pause = FIRST_PAUSE;
        loop {
            match async { prune(&open(settings).await?, older_than).await }.await {
                Ok(pruned) => {
                    told(&pruned).iter().for_each(|line| tracing::info!("{line}"));
                    pause = FIRST_PAUSE;
                    tokio::time::sleep(every.duration()).await;
                }
                Err(error) if may_not(&error) => return Err(error),
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), retry_s = pause.as_secs(), "not pruned");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    };
    tokio::select! {
        ended = pruning => ended,
        _ = signals.recv() => Ok(()),
    }
}

async fn seal(audit: &Audit) -> anyhow::Result<()> {
    audit.seal().await.context("the records cannot be sealed, and only sealed ones are pruned")?;
    Ok(())
}

async fn prune(audit: &Audit, older_than: Age) -> anyhow::Result<Pruned> {
    seal(audit).await?;
    audit.prune(older_than, &os_user::name()).await.map_err(|error| {
        removal_failed(
            error.into(),
            "this login may not prune: use a member of countersign_owner, such as the role that ran `countersign init`",
            "not everything was pruned; what was is recorded in the ledger, and it can be run again",
        )
    })
}

/// The error of a pruning or an erasure: its login may not do that, or it can be run again.
pub(super) fn removal_failed(error: anyhow::Error, login_may_not: &'static str, again: &'static str) -> anyhow::Error {
    let what = if may_not(&error) { login_may_not } else { again };
    error.context(what)
}

/// Whether the login lacks a privilege, so that a retry cannot succeed.
fn may_not(error: &anyhow::Error) -> bool {
    let server = error.chain().find_map(|cause| cause.downcast_ref::<Error>()).and_then(Error::server_error);
    server.is_some_and(|error| error.sqlstate == "42501")
}

fn told(pruned: &Pruned) -> Vec<String> {
    let removed = format!("Removed {} made before {}.", records(pruned.removed), pruned.made_before);
    let decisions = match pruned.removed_decisions {
        0 => None,
        1 => Some("Removed 1 decision of the policy log.".to_owned()),
        count => Some(format!("Removed {count} decisions of the policy log.")),
    };
    std::iter::once(removed).chain(decisions).chain(left_over(pruned.left)).collect()
}

/// The old records that cannot be removed, and the reasons.
fn left_over(left: PrunePlan) -> Vec<String> {
    let reasons = [
        (left.needed, "still needed: an identical call is answered from it, or its idempotency key is bound"),
        (left.pending, "pending"),
        (left.unsealed, "not sealed yet, since a transaction is still writing"),
    ];
    let left = reasons.into_iter().filter(|(count, _)| *count > 0);
    left.map(|(count, why)| format!("Left {} of that age: {why}.", records(count))).collect()
}

fn records(count: i64) -> String {
    if count == 1 { "1 record".to_owned() } else { format!("{count} records") }
}
