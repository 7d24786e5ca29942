//! `countersign undo`: operators undo writes of any account, over a login with the role `countersign_operator`.

pub(crate) mod args;
mod plan;
mod report;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::anyhow;
use ledger::operator::{UndoError, UndoOutcome};
use ledger::plans::PlanRows;
use ledger::undo::{NotRestored, SetAgain};
use ledger::{Ledger, SchemaError};
use review::{Summary, sentences};
use serde::Serialize;
use serde_json::Value;
use types::{CellMasks, Effects, IdPrefix, shown_conflicts};

use self::args::{OneArgs, UndoArgs, UndoCommand};
use crate::commands::audit;
use crate::commands::several::on_owner;
use crate::connection;
use crate::settings::{DatabaseSettings, Settings};
use crate::terminal::effects;
use crate::terminal::os_user;
use crate::terminal::{print_json, print_line, print_lines};

/// Exit code if nothing was changed because of conflicts.
const CONFLICTS: u8 = 2;

pub(crate) async fn run(arguments: UndoArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Some(UndoCommand::Plan(arguments)) => plan::make(&open(settings.database()?).await?, arguments.own).await,
        Some(UndoCommand::Run(arguments)) => plan::run(&open(settings.database()?).await?, &arguments.own).await,
        None => {
            let arguments = arguments.one.own;
            let id = arguments.correlation_id.as_ref().ok_or_else(|| anyhow!("give the correlation id of a write"))?;
            let run = async |own| one(&open(own).await?, id, &arguments).await;
            on_owner(settings, id, arguments.json, async |own| audit::has(own, id).await, run).await
        }
    }
}

async fn one(ledger: &Ledger, prefix: &IdPrefix, arguments: &OneArgs) -> anyhow::Result<ExitCode> {
    let write = audit::find(&ledger.audit(), prefix).await?;
    let operator = ledger.operator();
    let outcome = if arguments.dry_run {
        operator.try_undo(&[write], &os_user::name()).await
    } else {
        operator.undo(write, &os_user::name()).await
    };
    let outcome = outcome.map_err(refused)?;
    let subject = format!("the write {write}");
    match &outcome {
        UndoOutcome::WouldUndo { rows, not_restored, set_again } => {
            let most = if arguments.json { plan::MAX_ROWS } else { plan::MAX_COMPARED };
            let changes = operator.rows(&[write], not_restored, Some(most)).await.map_err(refused)?;
            let would_undo = WouldUndo { status: "would_undo", rows: *rows, not_restored, set_again, effects: None };
            would_undo.tell(&subject, changes, arguments.json);
        }
        outcome if arguments.json => tell_json(outcome),
        outcome => tell(&subject, outcome),
    }
    Ok(exit_code(&outcome))
}

fn exit_code(outcome: &UndoOutcome) -> ExitCode {
    match outcome {
        UndoOutcome::Undone { .. } | UndoOutcome::WouldUndo { .. } => ExitCode::SUCCESS,
        UndoOutcome::Conflicts { .. } => ExitCode::from(CONFLICTS),
    }
}

fn tell(subject: &str, outcome: &UndoOutcome) {
    match outcome {
        UndoOutcome::Undone { correlation_id, rows, effects, set_again, not_restored } => {
            print_line(&format!("Undone: {subject}. {} as before it:", report::are(*rows)));
            let lines = effects.clone().map(|effects| effects::lines(&all_columns(effects), false));
            lines.iter().flatten().for_each(|line| print_line(&format!("  {line}")));
            print_lines(set_again.iter().filter_map(|set_again| sentences::set_again(&set_again.columns)));
            print_lines(report::not_restored(not_restored));
            print_line(&format!("To have it back: countersign undo {correlation_id}"));
        }
        // `WouldUndo::tell` prints it with its rows.
        UndoOutcome::WouldUndo { .. } => {}
        UndoOutcome::Conflicts { conflicts, rows, .. } => {
            print_lines(report::lines(subject, &shown_conflicts(None, conflicts.clone()), *rows));
        }
    }
}

/// The JSON line of an undo.
#[derive(Debug, Serialize)]
struct Undone<'a> {
    status: &'static str,
    correlation_id: String,
    rows: u64,
    effects: Option<Effects<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set_again: Option<&'a SetAgain>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    not_restored: &'a [NotRestored],
}

/// The JSON line of a dry run.
#[derive(Debug, Serialize)]
struct WouldUndo<'a> {
    status: &'static str,
    rows: u64,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    not_restored: &'a [NotRestored],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    set_again: &'a BTreeMap<String, Vec<String>>,
    effects: Option<Effects<Value>>,
}

impl WouldUndo<'_> {
    fn tell(self, subject: &str, changes: PlanRows, json: bool) {
        let PlanRows { effects, summary } = if json { changes.shortened() } else { changes };
        let effects = effects.map(all_columns);
        if json {
            return print_json(Self { effects, ..self });
        }
        print_line(&format!("Nothing was changed. Undoing {subject} would put {} back.", report::rows(self.rows)));
        print_lines(report::changes(&Summary::of_plan(effects, &summary, self.set_again), false));
        print_lines(sentences::set_again(self.set_again));
        print_lines(report::not_restored(self.not_restored));
    }
}

/// Prints one JSON object for the outcome, or one for each conflict.
fn tell_json(outcome: &UndoOutcome) {
    match outcome {
        UndoOutcome::Undone { correlation_id, rows, effects, set_again, not_restored } => {
            let (status, correlation_id) = ("undone", correlation_id.to_string());
            let effects = effects.clone().map(all_columns);
            let set_again = set_again.as_ref();
            let object = Undone { status, correlation_id, rows: *rows, effects, set_again, not_restored };
            print_json(object);
        }
        UndoOutcome::WouldUndo { .. } => {}
        UndoOutcome::Conflicts { conflicts, .. } => {
            shown_conflicts(None, conflicts.clone()).iter().for_each(print_json);
        }
    }
}

/// The effects with all columns: an operator may see every column of what they undo.
fn all_columns(effects: Effects) -> Effects<Value> {
    effects.shown(&mut CellMasks::new(None))
}

/// Opens the ledger of the configured database. It must have been made for this database: in a copy, an undo would
/// change only the copy.
async fn open(settings: &DatabaseSettings) -> anyhow::Result<Ledger> {
    let target = connection::configured(settings)?;
    let ledger = Ledger::new(target.clone(), settings.ledger.clone());
    connection::check_search_path(&target, settings).await?;
    ledger.check().await.map_err(|error| match error {
        SchemaError::Database(error) => refused(error.into()),
        error => error.into(),
    })?;
    ledger.check_identity().await?;
    Ok(ledger)
}

fn refused(error: UndoError) -> anyhow::Error {
    match error {
        UndoError::Database(error) if error.server_error().is_some_and(|error| error.sqlstate == "42501") => anyhow!(
            "this database login is not an operator, or has no right to a table of the write, so nothing was changed: \
             grant countersign_operator to <login>, and what the write needed of its tables ({error})"
        ),
        error => error.into(),
    }
}
