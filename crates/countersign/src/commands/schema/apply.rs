//! `countersign schema apply`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use ledger::schema_changes::{
    ApplyError, ApplyEvent, ApplyOutcome, Impact, SchemaChange, SchemaChangeStatus, SchemaChanges,
};
use review::sentences::count;
use schema_change::{MAX_BYTES, SchemaChangeText};
use types::{IdPrefix, visible};

use super::args::ApplyArgs;
use super::{find, has, open, refused, show};
use crate::commands::several::on_owner;
use crate::settings::{DatabaseSettings, Settings};
use crate::terminal::{ask, is_interactive, os_user, print_error, print_line};

pub(super) async fn run(arguments: &ApplyArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    if let Some(reason) = &arguments.reason {
        let sql = read(Path::new(&arguments.what))?;
        return of_file(arguments, &sql, reason, settings.database()?).await;
    }
    let Some(id) = IdPrefix::parse(&arguments.what) else {
        bail!(
            "{} is not the id of a schema change: `countersign schema list` has them; a file needs --reason",
            visible(&arguments.what)
        );
    };
    on_owner(settings, &id, false, async |own| has(own, &id).await, async |own| of_id(arguments, &id, own).await).await
}

/// Reads the SQL of a file, up to the size of a schema change.
fn read(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let length = std::fs::metadata(file).with_context(|| format!("{name} cannot be read"))?.len();
    ensure!(length <= MAX_BYTES as u64, "{name} has {length} bytes, and a schema change at most {MAX_BYTES}");
    std::fs::read_to_string(file).with_context(|| format!("{name} cannot be read"))
}

async fn of_file(
    arguments: &ApplyArgs,
    sql: &str,
    reason: &str,
    settings: &DatabaseSettings,
) -> anyhow::Result<ExitCode> {
    let text = SchemaChangeText::parse(sql).with_context(|| visible(&arguments.what))?;
    let ledger = open(settings).await?;
    let changes = ledger.schema_changes();
    shown(arguments, &changes, &text, None).await?;
    agree(arguments, None).await?;
    let change = changes.bring(&os_user::name(), reason, sql).await.map_err(|failure| refused(&failure))?;
    print_line(&format!("Stored: schema change {}.", change.change_id));
    carry_out(arguments, &changes, &change).await
}

async fn of_id(arguments: &ApplyArgs, id: &IdPrefix, settings: &DatabaseSettings) -> anyhow::Result<ExitCode> {
    let ledger = open(settings).await?;
    let changes = ledger.schema_changes();
    let change = find(&changes, id).await??;
    show::print(&change);
    let without_end = change.without_end().map(|end| format!("; {end}")).unwrap_or_default();
    ensure!(
        change.status == SchemaChangeStatus::Pending,
        "the schema change is {}; nothing was done{without_end}",
        change.status.as_str()
    );
    let text = SchemaChangeText::parse(&change.sql).context("it cannot be carried out")?;
    shown(arguments, &changes, &text, Some(&change)).await?;
    agree(arguments, Some(&change)).await?;
    carry_out(arguments, &changes, &change).await
}

/// Shows a change, and tries it once the person has read what an agent wrote. A change that fails then is not begun.
async fn shown(
    arguments: &ApplyArgs,
    changes: &SchemaChanges,
    text: &SchemaChangeText,
    change: Option<&SchemaChange>,
) -> anyhow::Result<()> {
    show::print_text(text, None);
    let has_agreed = has_agreed(arguments, change)?;
    let mut tried = None;
    if !arguments.no_try {
        if change.is_some() && !has_agreed {
            let answer = ask("Try it in your login, and roll it back? Its SQL runs then. Type yes:").await?;
            ensure!(answer == "yes", "not tried, since the answer was not yes; nothing was changed");
        }
        tried = Some(show::tried(changes, text, &arguments.trial.options()).await);
    }
    show::print_trial(tried.as_ref());
    show::gap();
    match tried {
        Some(Err(reason)) => {
            bail!("it cannot be tried: {reason}; nothing was changed. --no-try carries it out untried")
        }
        Some(Ok(Impact { failed: Some(failed), .. })) if !failed.sqlstate.as_deref().is_some_and(is_passing) => bail!(
            "line {} fails: {}; nothing was changed. --no-try carries it out nevertheless",
            failed.line,
            visible(&failed.message)
        ),
        _ => Ok(()),
    }
}

/// Whether a statement failed for want of a lock or of time, which another try may have.
fn is_passing(sqlstate: &str) -> bool {
    matches!(sqlstate, "55P03" | "40P01" | "57014")
}

/// Whether the arguments say that the person agrees. Otherwise somebody has to be there who can be asked.
fn has_agreed(arguments: &ApplyArgs, change: Option<&SchemaChange>) -> anyhow::Result<bool> {
    if let (Some(digest), Some(change)) = (&arguments.digest, change) {
        ensure!(
            *digest == change.digest,
            "the schema change has the digest {}, and you gave {}: what you looked at is not what is stored; nothing was done",
            change.digest,
            visible(digest)
        );
        return Ok(true);
    }
    if arguments.yes {
        return Ok(true);
    }
    let digest = change.map(|change| format!("--digest {} or ", change.digest)).unwrap_or_default();
    ensure!(
        is_interactive(),
        "nobody can be asked here, since this is no terminal: give {digest}--yes to carry out what is shown above"
    );
    Ok(false)
}

async fn agree(arguments: &ApplyArgs, change: Option<&SchemaChange>) -> anyhow::Result<()> {
    if has_agreed(arguments, change)? {
        return Ok(());
    }
    let answer = ask("Carry it out? Type yes:").await?;
    ensure!(answer == "yes", "not carried out, since the answer was not yes");
    Ok(())
}

async fn carry_out(arguments: &ApplyArgs, changes: &SchemaChanges, change: &SchemaChange) -> anyhow::Result<ExitCode> {
    let mut interrupt = std::pin::pin!(async {
        // Without a handler the signal ends the process.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    });
    let options = arguments.options();
    let outcome = changes.apply(change, &os_user::name(), &options, interrupt.as_mut(), report).await;
    match outcome {
        Ok(ApplyOutcome::Applied) => {
            print_line("Applied.");
            Ok(ExitCode::SUCCESS)
        }
        Ok(ApplyOutcome::Failed { step, line, message }) => bail!(
            "step {step} failed in line {line}: {}. The schema change has failed; what ended before it stays ({})",
            visible(&message),
            count(u64::from(step) - 1, "step"),
        ),
        Err(ApplyError::Refused(failure)) => Err(refused(&failure)),
        Err(ApplyError::Database(error)) => {
            bail!("{error}; `countersign schema show {}` says how far it came", change.change_id)
        }
        Err(error) => Err(error.into()),
    }
}

fn report(event: &ApplyEvent<'_>) {
    match event {
        ApplyEvent::Begins(step) => print_line(&format!("step {} begins (line {})", step.number, step.line())),
        ApplyEvent::Waits { step, attempt, pause, message } => print_error(&format!(
            "step {step}, try {attempt}: {}; it was rolled back and is tried again in {:.1} s",
            visible(message),
            pause.as_secs_f64()
        )),
        ApplyEvent::Ended { step, tracked, not_renewed } => {
            print_line(&format!("step {step} ended"));
            for table in tracked {
                print_line(&format!("tracked  {}", visible(table)));
            }
            if let Some(reason) = not_renewed {
                print_line(&format!(
                    "warning  the tracking of changed tables was not renewed, and their next write renews it: {}",
                    visible(reason)
                ));
            }
        }
    }
}
