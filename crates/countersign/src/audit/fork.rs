//! `countersign audit fork`: makes the ledger of a copied database a ledger of its own.

use anyhow::{Context, ensure};

use crate::connection;
use crate::settings::Settings;
use crate::terminal::{ask, is_interactive, print_line};

use super::args::ForkArgs;

pub(super) async fn run(arguments: &ForkArgs, settings: &Settings) -> anyhow::Result<()> {
    let target = connection::configured(settings)?;
    ledger::check(&target).await?;
    if ledger::check_identity(&target).await.is_ok() {
        print_line(&format!("The ledger in database \"{}\" was made for it. Nothing was changed.", target.dbname));
        return Ok(());
    }
    if !arguments.yes {
        print_line(&format!(
            "The database \"{}\" is a copy. Its proposals that are still open end here, and its ledger gets a name of its own.",
            target.dbname
        ));
        ensure!(is_interactive(), "nobody can be asked here, since this is no terminal: give --yes");
        ensure!(ask("Go on? Type yes:").await? == "yes", "nothing was changed");
    }
    let forked =
        ledger::fork(&target).await.context("the ledger cannot go on; this takes a member of countersign_owner")?;
    print_line(&format!(
        "The ledger goes on as {}. {} open proposals of the original have ended.",
        forked.ledger_id, forked.proposals
    ));
    Ok(())
}
