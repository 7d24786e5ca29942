//! `countersign proposals`: reviewers read and decide on proposals. The ledger decides which decisions are valid
//! (`ledger::proposals`); this module shows proposals and asks.

pub(crate) mod args;
mod decide;
mod list;
pub(crate) mod show;
mod watch;

use std::process::ExitCode;

use anyhow::anyhow;
use ledger::proposals::Proposal;
use ledger::schema_changes::SchemaChange;
use ledger::{Ledger, SchemaError};
use review::sentences::{PROPOSAL_REMOVED, refused_decision};
use types::{Failure, IdPrefix};

use self::args::ProposalsCommand;
use crate::commands::several::{done, on_each, on_owner};
use crate::connection;
use crate::settings::{DatabaseSettings, Settings, With};
use crate::terminal::short_id;

pub(crate) async fn run(command: ProposalsCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    match command {
        ProposalsCommand::List(With { own: arguments, .. }) => {
            on_each(settings, arguments.json, async |own| done(list::run(&arguments, own).await)).await
        }
        ProposalsCommand::Watch(arguments) => done(watch::run(&arguments.own, settings).await),
        ProposalsCommand::Show(With { own: arguments, .. }) => {
            let run = async |own| done(show::run(&arguments, own).await);
            on_owner(settings, &arguments.id, arguments.json, async |own| has(own, &arguments.id).await, run).await
        }
        ProposalsCommand::Approve(With { own: arguments, .. }) => {
            let run = async |own| decide::approve(&arguments, own).await;
            on_owner(settings, &arguments.id, false, async |own| has(own, &arguments.id).await, run).await
        }
        ProposalsCommand::Ask(With { own: arguments, .. }) => {
            let run = async |own| done(decide::ask_agent(&arguments, own).await);
            on_owner(settings, &arguments.id, false, async |own| has(own, &arguments.id).await, run).await
        }
        ProposalsCommand::Reject(With { own: arguments, .. }) => {
            let run = async |own| done(decide::reject(&arguments, own).await);
            on_owner(settings, &arguments.id, false, async |own| has(own, &arguments.id).await, run).await
        }
    }
}

/// Whether the ledger of a database has a proposal whose id begins with this prefix.
async fn has(settings: &DatabaseSettings, prefix: &IdPrefix) -> anyhow::Result<bool> {
    let ledger = open(settings).await?;
    let found = ledger.proposals().find(prefix, 1).await.map_err(|failure| refused(&failure))?;
    Ok(!found.is_empty() || find_change(&ledger, prefix).await?.is_some())
}

/// The ledger of the configured database; an error if it does not exist or cannot be read.
async fn open(settings: &DatabaseSettings) -> anyhow::Result<Ledger> {
    let ledger = Ledger::new(connection::configured(settings)?, settings.ledger.clone());
    ledger.check().await.map_err(|error| {
        let may_not = matches!(&error, SchemaError::Database(error)
            if error.server_error().is_some_and(|error| error.sqlstate == "42501"));
        let error = anyhow::Error::from(error);
        if may_not { error.context(format!("this login may not read the ledger: {GRANT}")) } else { error }
    })?;
    Ok(ledger)
}

/// Opens the ledger, if it was made for this database: a decision in a copy would apply to a proposal of the
/// original.
pub(crate) async fn open_to_decide(settings: &DatabaseSettings) -> anyhow::Result<Ledger> {
    let ledger = open(settings).await?;
    ledger.check_identity().await?;
    Ok(ledger)
}

/// The remedy for a login without the privilege for these commands.
const GRANT: &str = "use one that has the role, or grant countersign_approver to <login>";

/// The only proposal whose id begins with this prefix, of any account.
async fn find(ledger: &Ledger, prefix: &IdPrefix) -> anyhow::Result<Proposal> {
    let proposals = ledger.proposals();
    let matches = proposals.find(prefix, short_id::LOOKED_FOR).await.map_err(|failure| refused(&failure))?;
    let found = short_id::only(prefix, matches, |one| {
        format!("{} {} {}", one.proposal_id, one.status.as_str(), types::visible(&one.tool_name))
    })?;
    let Some(found) = found else {
        return Err(match find_change(ledger, prefix).await? {
            Some(change) => anyhow!(
                "{} is a schema change: `countersign schema show {}` shows it, and `countersign schema apply` carries it out",
                prefix.as_str(),
                change.change_id
            ),
            None => not_found(prefix),
        });
    };
    let whole = proposals.get(None, found.proposal_id).await.map_err(|failure| refused(&failure))?;
    whole.ok_or_else(|| not_found(prefix))
}

/// A schema change whose id begins with this prefix.
async fn find_change(ledger: &Ledger, prefix: &IdPrefix) -> anyhow::Result<Option<SchemaChange>> {
    let found = ledger.schema_changes().find(prefix, 1).await.map_err(|failure| refused(&failure))?;
    Ok(found.into_iter().next().transpose()?)
}

fn not_found(prefix: &IdPrefix) -> anyhow::Error {
    anyhow!(
        "no proposal has the id {}: `countersign proposals list` has those that there are; {PROPOSAL_REMOVED}",
        prefix.as_str()
    )
}

fn refused(failure: &Failure) -> anyhow::Error {
    anyhow!(refused_decision(failure))
}
