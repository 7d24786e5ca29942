//! `countersign audit`: what people ask the ledger. The ledger answers (`ledger::audit`); here is what they see of it.

pub(crate) mod args;
mod counts;
mod list;
mod prune;
mod show;
mod text;
mod verify;

use std::process::ExitCode;

use anyhow::Context;
use ledger::Ledger;
use ledger::audit::Audit;

use self::args::AuditCommand;
use crate::cli::DatabaseArgs;
use crate::connection;
use crate::terminal::say;

pub(crate) async fn run(command: AuditCommand) -> anyhow::Result<ExitCode> {
    match command {
        AuditCommand::List(arguments) => list::run(arguments).await?,
        AuditCommand::Show(arguments) => show::run(arguments).await?,
        AuditCommand::Counts(arguments) => counts::run(arguments).await?,
        AuditCommand::Seal(arguments) => seal(&arguments.database).await?,
        AuditCommand::Verify(arguments) => return verify::run(arguments).await,
        AuditCommand::Prune(arguments) => prune::run(arguments).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The ledger of the configured database, which must be there.
async fn open(database: &DatabaseArgs) -> anyhow::Result<Audit> {
    let target = connection::configured(database)?;
    ledger::check(&target).await?;
    Ok(Ledger::new(target).audit())
}

async fn seal(database: &DatabaseArgs) -> anyhow::Result<()> {
    let audit = open(database).await?;
    audit.seal().await.context("the records cannot be sealed")?;
    say(&serde_json::to_string(&audit.checkpoint().await?)?);
    Ok(())
}
