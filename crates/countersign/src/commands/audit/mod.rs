//! `countersign audit`: the commands for auditors. The crate `ledger` answers (`ledger::audit`); this module prints.

pub(crate) mod age;
pub(crate) mod args;
mod bundle;
mod counts;
mod export;
mod fork;
mod list;
pub(crate) mod log_keys;
pub(crate) mod masks;
mod prove;
mod prune;
mod reads;
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
use crate::connection;
use crate::settings::Settings;
use crate::terminal::short_id;

pub(crate) async fn run(command: AuditCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    match command {
        AuditCommand::List(arguments) => list::run(arguments.own, settings).await?,
        AuditCommand::Show(arguments) => show::run(arguments.own, settings).await?,
        AuditCommand::Row(arguments) => row::run(arguments.own, settings).await?,
        AuditCommand::Counts(arguments) => counts::run(arguments.own, settings).await?,
        AuditCommand::Reads(command) => reads::run(command, settings).await?,
        AuditCommand::Seal(_) => seal::run(settings).await?,
        AuditCommand::Verify(arguments) => return Ok(verify::run(arguments.own, settings).await),
        AuditCommand::Export(arguments) => export::run(&arguments.own, settings).await?,
        AuditCommand::Prove(arguments) => prove::entry(&arguments.own, settings).await?,
        AuditCommand::Consistency(arguments) => prove::consistency(&arguments.own, settings).await?,
        AuditCommand::Keys(command) => log_keys::run(&command, settings).await?,
        AuditCommand::Witness(command) => witnesses::run(command, settings).await?,
        AuditCommand::Prune(arguments) => prune::run(arguments.own, settings).await?,
        AuditCommand::Fork(arguments) => fork::run(&arguments.own, settings).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The ledger of the configured database; an error if there is none.
pub(crate) async fn open(settings: &Settings) -> anyhow::Result<Audit> {
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
