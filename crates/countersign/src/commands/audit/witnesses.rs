//! `countersign audit witness`: which witnesses servers ask to cosign the log.

use anyhow::{Context, ensure};
use ledger::audit::{Witness, WitnessState};
use tlog::KeyKind;

use super::args::{WitnessAddArgs, WitnessesCommand};
use super::open;
use crate::settings::DatabaseSettings;
use crate::terminal::os_user;
use crate::terminal::print_line;

pub(super) async fn run(command: WitnessesCommand, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let audit = open(settings).await?;
    match command {
        WitnessesCommand::List(_) => {
            for WitnessState { witness, cosigned } in audit.witness_states().await? {
                let cosigned = match cosigned {
                    Some((size, age_s)) => format!("cosigned {size} entries, {age_s} s ago"),
                    None => "has not cosigned yet".to_owned(),
                };
                print_line(&format!("{}  {}  ({cosigned})", witness.key, witness.url.as_str()));
            }
        }
        WitnessesCommand::Add(arguments) => {
            let WitnessAddArgs { url, vkey } = arguments.own;
            ensure!(vkey.kind() == KeyKind::Witness, "this is the key of a log: the key of a witness has the type 4");
            let added = audit.add_witness(&Witness { key: vkey, url }, &os_user::name()).await;
            added.context("the witness cannot be added; this takes a member of countersign_owner")?;
            print_line(
                "The witness is asked to cosign each checkpoint from now on. Its operator has to add a key of the log:",
            );
            for key in audit.keys().await?.iter().filter(|key| !key.is_retired) {
                print_line(&format!("  {}", key.vkey));
            }
        }
        WitnessesCommand::Remove(arguments) => {
            let removed = audit.remove_witness(&arguments.own.vkey.to_string(), &os_user::name()).await;
            removed.context("the witness cannot be removed; this takes a member of countersign_owner")?;
            print_line("The witness is not asked any more.");
        }
    }
    Ok(())
}
