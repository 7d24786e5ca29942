//! `countersign init`: the ledger's schema and the reader's login, and the demo's data if asked.

use crate::cli::InitArgs;
use crate::settings::Settings;
use crate::terminal::say;
use crate::{connection, demo_data};

pub(crate) async fn run(arguments: &InitArgs, settings: &Settings) -> anyhow::Result<()> {
    let target = connection::configured(settings)?;
    ledger::init(&target, &arguments.writer).await?;
    say(&format!("The ledger (schema countersign) in database \"{}\" is ready.", target.dbname));
    if arguments.demo {
        for (schema, loaded) in demo_data::load(&target).await? {
            say(&if loaded {
                format!("The demo's schema \"{schema}\" and its data are loaded.")
            } else {
                format!("The schema \"{schema}\" is there already; left as it is.")
            });
        }
    }
    Ok(())
}
