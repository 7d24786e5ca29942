//! `countersign audit fork`: makes the ledger of a copied database a ledger of its own.

use anyhow::{Context, ensure};
use ledger::Ledger;

use crate::connection;
use crate::settings::DatabaseSettings;
use crate::terminal::{ask, is_interactive, print_line};

use super::args::ForkArgs;
use super::log_keys;

pub(super) async fn run(arguments: &ForkArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let target = connection::configured(settings)?;
    let dbname = target.dbname.clone();
    let ledger = Ledger::new(target, settings.ledger.clone());
    ledger.check().await?;
    if !arguments.restored && ledger.is_original().await? {
        print_line(&format!("The ledger in database \"{dbname}\" was made for it. Nothing was changed."));
        print_line("If the database was restored from a backup in its own place, give --restored.");
        return Ok(());
    }
    if !arguments.yes {
        print_line(&format!(
            "The ledger in database \"{dbname}\" gets an id and a log of its own. Proposals that are still open end here."
        ));
        ensure!(is_interactive(), "nobody can be asked here, since this is no terminal: give --yes");
        ensure!(ask("Go on? Type yes:").await? == "yes", "nothing was changed");
    }
    let audit = ledger.audit();
    let previous = audit.newest_checkpoint().await?;
    let forked = ledger
        .fork(arguments.restored, previous.as_ref())
        .await
        .context("the ledger cannot go on; this takes a member of countersign_owner")?;
    print_line(&format!(
        "The ledger goes on as {}. {} open proposals of the original have ended.",
        forked.ledger_id, forked.proposals
    ));
    for line in log_keys::ensure_key(&audit, &settings.ledger.signing).await? {
        print_line(&line);
    }
    Ok(())
}
