//! `countersign audit prune` (promises A11-16, C7-10).

use anyhow::Context;
use ledger::audit::Survey;

use super::args::PruneArgs;
use super::open;
use crate::person;
use crate::settings::Settings;
use crate::terminal::say;

pub(crate) async fn run(arguments: PruneArgs, settings: &Settings) -> anyhow::Result<()> {
    let audit = open(settings).await?;
    audit.seal().await.context("the records cannot be sealed, and only sealed ones are pruned")?;
    if arguments.dry_run {
        let (survey, made_before) = audit.survey(arguments.older_than).await?;
        say(&format!("Would remove {} made before {made_before}.", records(survey.prunable)));
        stay(survey);
    } else {
        let pruned = audit.prune(arguments.older_than, &person::name()).await.map_err(|error| {
            let may_not = error.server().is_some_and(|error| error.sqlstate == "42501");
            anyhow::Error::from(error).context(if may_not {
                "this login may not prune: use a member of countersign_owner, such as the role that ran `countersign init`"
            } else {
                "not everything was pruned; what was is recorded in the ledger, and it can be run again"
            })
        })?;
        say(&format!("Removed {} made before {}.", records(pruned.removed), pruned.made_before));
        stay(pruned.left);
    }
    Ok(())
}

/// What is old and stays, and why.
fn stay(left: Survey) {
    for (count, why) in [
        (left.needed, "still needed: a record that stays, or an idempotency key in force, points there"),
        (left.pending, "pending"),
        (left.unsealed, "not sealed yet, since an older one is pending or a transaction is still writing"),
    ] {
        if count > 0 {
            say(&format!("Left {} of that age: {why}.", records(count)));
        }
    }
}

fn records(count: i64) -> String {
    if count == 1 { "1 record".to_owned() } else { format!("{count} records") }
}
