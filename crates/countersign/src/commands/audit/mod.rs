//! `countersign audit`: the commands for auditors. The crate `ledger` answers (`ledger::audit`); this module prints.

pub(crate) mod age;
pub(crate) mod args;
mod bundle;
mod counts;
pub(crate) mod erase;
mod export;
mod fork;
mod list;
pub(crate) mod log_keys;
pub(crate) mod masks;
mod prove;
mod prune;
mod row;
mod seal;
mod show;
mod verify;
mod witnesses;

use std::process::ExitCode;

use ledger::Ledger;
use ledger::audit::{Audit, RecordName};
use types::{CorrelationId, IdPrefix, visible};

use self::args::AuditCommand;
use crate::commands::several::{done, on_each, on_owner};
use crate::connection;
use crate::settings::{DatabaseSettings, Settings, With};
use crate::terminal::short_id;

pub(crate) async fn run(command: AuditCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    match command {
        AuditCommand::List(arguments) => {
            let is_json = arguments.own.json;
            return on_each(settings, is_json, async |own| done(list::run(arguments.own.clone(), own).await)).await;
        }
        AuditCommand::Show(With { own: arguments, .. }) => {
            let (id, is_json) = (arguments.correlation_id.clone(), arguments.json);
            let run = async |own| done(show::run(arguments, own).await);
            return on_owner(settings, &id, is_json, async |own| has(own, &id).await, run).await;
        }
        AuditCommand::Counts(arguments) => {
            let is_json = arguments.own.json;
            return on_each(settings, is_json, async |own| done(counts::run(arguments.own.clone(), own).await)).await;
        }
        AuditCommand::Seal(_) => return on_each(settings, false, async |own| done(seal::run(own).await)).await,
        AuditCommand::Verify(With { own: arguments, .. }) if arguments.is_of_files() => {
            return Ok(verify::run(&arguments, None).await);
        }
        AuditCommand::Verify(With { own: arguments, .. }) => {
            return on_each(settings, false, async |own| Ok(verify::run(&arguments, Some(own)).await)).await;
        }
        AuditCommand::Erase(arguments) => return erase::run(arguments.own, settings.database()?).await,
        AuditCommand::Row(arguments) => row::run(arguments.own, settings.database()?).await?,
        AuditCommand::Export(arguments) => export::run(&arguments.own, settings.database()?).await?,
        AuditCommand::Prove(arguments) => prove::entry(&arguments.own, settings.database()?).await?,
        AuditCommand::Consistency(arguments) => prove::consistency(&arguments.own, settings.database()?).await?,
        AuditCommand::Keys(command) => log_keys::run(&command, settings.database()?).await?,
        AuditCommand::Witness(command) => witnesses::run(command, settings.database()?).await?,
        AuditCommand::Prune(arguments) => prune::run(arguments.own, settings.database()?).await?,
        AuditCommand::Fork(arguments) => fork::run(&arguments.own, settings.database()?).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the ledger of a database has a record whose correlation id begins with this prefix.
pub(crate) async fn has(settings: &DatabaseSettings, prefix: &IdPrefix) -> anyhow::Result<bool> {
    Ok(!open(settings).await?.find(prefix, 1).await?.is_empty())
}

/// The ledger of the configured database; an error if there is none.
pub(crate) async fn open(settings: &DatabaseSettings) -> anyhow::Result<Audit> {
    let ledger = Ledger::new(connection::configured(settings)?, settings.ledger.clone());
    ledger.check().await?;
    Ok(ledger.audit())
}

/// The only record whose correlation id begins with this prefix.
pub(crate) async fn find(audit: &Audit, prefix: &IdPrefix) -> anyhow::Result<CorrelationId> {
    let matches = audit.find(prefix, short_id::LOOKED_FOR).await?;
    let describe = |one: &RecordName| {
        format!("{} {} {} {}", one.correlation_id, one.created_at, one.status, visible(&one.tool_name))
    };
    let one = short_id::only(prefix, matches, describe)?;
    one.map(|one| one.correlation_id).ok_or_else(|| unknown(prefix))
}

fn unknown(prefix: &IdPrefix) -> anyhow::Error {
    anyhow::anyhow!(
        "no record has the correlation id {}: this ledger never gave it out, or the record was pruned",
        prefix.as_str()
    )
}
