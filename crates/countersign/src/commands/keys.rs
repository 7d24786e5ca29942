//! `countersign keys`: the keys that seal data which clients keep for the servers (session ids, states of questions).

use clap::{Args, Subcommand};
use ledger::Ledger;

use crate::connection;
use crate::settings::{DatabaseSettings, With};
use crate::terminal::print_line;

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Add a key that replaces the current one. It is used after 3 minutes, when every running server has it.
    /// Values sealed with older keys remain valid for a day.
    Rotate(With<RotateArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct RotateArgs {
    /// Remove the older keys at once: within a minute every session over HTTP and every question to a user
    /// becomes void. Use it if a key may have been copied.
    #[arg(long)]
    at_once: bool,
}

pub(crate) async fn run(command: KeysCommand, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let KeysCommand::Rotate(With { own: arguments, .. }) = command;
    let ledger = Ledger::new(connection::configured(settings)?, settings.ledger.clone());
    ledger.check().await?;
    let rotated = ledger.state_keys().rotate(arguments.at_once).await;
    let id = rotated.map_err(|error| {
        let may_not = error.server_error().is_some_and(|error| error.sqlstate == "42501");
        let error = anyhow::Error::from(error);
        if may_not {
            error.context("this login may not change the keys: use a member of countersign_owner")
        } else {
            error
        }
    })?;
    print_line(&if arguments.at_once {
        format!("Key {id} is the only one. Servers take it within a minute; what older keys have sealed is void then.")
    } else {
        format!(
            "Key {id} was added. Servers seal with it in 3 minutes; older keys open what they have sealed for 25 hours."
        )
    });
    Ok(())
}
