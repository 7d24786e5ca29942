//! `countersign schema`: people look at changes of definitions and carry them out in their own logins
//! (`ledger::schema_changes`). No server has rights on definitions.

mod apply;
pub(crate) mod args;
mod show;

use std::process::ExitCode;

use anyhow::{anyhow, ensure};
use ledger::Ledger;
use ledger::schema_changes::{Loaded, SchemaChanges};
use review::sentences::{count, refused_change};
use types::{Failure, IdPrefix, visible};

use self::args::{ListArgs, RejectArgs, SchemaCommand};
use crate::commands::proposals::open_to_decide;
use crate::commands::several::{done, on_each, on_owner};
use crate::settings::{DatabaseSettings, Settings, With};
use crate::terminal::os_user;
use crate::terminal::short_id::{self, short};
use crate::terminal::table::{table, to_the_second, with_heading, without_empty_columns};
use crate::terminal::{print_json, print_line, print_lines, width};

/// The state of a change that was altered in the database after it was proposed.
const ALTERED: &str = "altered";

pub(crate) async fn run(command: SchemaCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    match command {
        SchemaCommand::List(With { own: arguments, .. }) => {
            on_each(settings, arguments.json, async |own| done(list(&arguments, own).await)).await
        }
        SchemaCommand::Show(With { own: arguments, .. }) => {
            let run = async |own| done(show::run(&arguments, own).await);
            on_owner(settings, &arguments.id, arguments.json, async |own| has(own, &arguments.id).await, run).await
        }
        SchemaCommand::Apply(With { own: arguments, .. }) => apply::run(&arguments, settings).await,
        SchemaCommand::Reject(With { own: arguments, .. }) => {
            let run = async |own| done(reject(&arguments, own).await);
            on_owner(settings, &arguments.id, false, async |own| has(own, &arguments.id).await, run).await
        }
    }
}

/// Whether the ledger of a database has a schema change whose id begins with this prefix.
async fn has(settings: &DatabaseSettings, prefix: &IdPrefix) -> anyhow::Result<bool> {
    let found = open(settings).await?.schema_changes().find(prefix, 1).await.map_err(|failure| refused(&failure))?;
    Ok(!found.is_empty())
}

async fn open(settings: &DatabaseSettings) -> anyhow::Result<Ledger> {
    open_to_decide(settings).await
}

/// The only schema change whose id begins with this prefix.
async fn find(changes: &SchemaChanges, prefix: &IdPrefix) -> anyhow::Result<Loaded> {
    let matches = changes.find(prefix, short_id::LOOKED_FOR).await.map_err(|failure| refused(&failure))?;
    let describe = |one: &Loaded| match one {
        Ok(one) => format!("{} {} {}", one.change_id, one.status.as_str(), visible(&one.reason)),
        Err(altered) => format!("{} {ALTERED}", altered.change_id),
    };
    let found = short_id::only(prefix, matches, describe)?;
    found.ok_or_else(|| {
        anyhow!("no schema change has the id {}: `countersign schema list` has those that there are", prefix.as_str())
    })
}

async fn list(arguments: &ListArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let found = open(settings).await?.schema_changes().list(arguments.status, arguments.limit).await;
    let found = found.map_err(|failure| refused(&failure))?;
    if arguments.json {
        found.iter().flatten().for_each(print_json);
    } else if found.is_empty() {
        print_line("No schema changes.");
    } else {
        let row = |change: &Loaded| match change {
            Ok(change) => vec![
                short(&change.change_id.to_string()),
                change.status.as_str().to_owned(),
                to_the_second(&change.created_at),
                visible(change.account_id.as_str()),
                visible(&change.reason),
            ],
            Err(altered) => {
                let id = short(&altered.change_id.to_string());
                vec![id, ALTERED.to_owned(), String::new(), String::new(), String::new()]
            }
        };
        let rows = with_heading(["ID", "STATE", "PROPOSED", "ACCOUNT", "REASON"], found.iter().map(row));
        print_lines(table(&without_empty_columns(rows), width()));
    }
    let altered: Vec<String> = found.iter().filter_map(|one| one.as_ref().err()).map(ToString::to_string).collect();
    ensure!(altered.is_empty(), "{}", altered.join("\n"));
    Ok(())
}

async fn reject(arguments: &RejectArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let changes = open(settings).await?.schema_changes();
    let id = find(&changes, &arguments.id).await?.map_or_else(|altered| altered.change_id, |change| change.change_id);
    let ended = changes.reject(id, &os_user::name(), arguments.reason.as_deref()).await;
    print_line(&match ended.map_err(|failure| refused(&failure))? {
        None => "Rejected: nothing was changed.".to_owned(),
        Some(steps) => format!(
            "Given up; what had ended stays ({}). `countersign schema show {id}` says what to look at.",
            count(steps, "step")
        ),
    });
    Ok(())
}

fn refused(failure: &Failure) -> anyhow::Error {
    anyhow!(refused_change(failure))
}
