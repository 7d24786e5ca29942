//! `countersign uninstall --ledger`: removes the ledger from a database, after it has shown what that does.

use anyhow::ensure;
use ledger::RemovalReport;
use types::visible;

use super::cli::UninstallArgs;
use crate::connection;
use crate::settings::DatabaseSettings;
use crate::terminal::print_line;
use crate::terminal::shell_word::shell_word;

pub(crate) async fn run(arguments: &UninstallArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let target = connection::configured(settings)?;
    if let Some(named) = &arguments.run {
        ensure!(
            *named == target.dbname,
            "--run names the database {}, and the connection is to {}. Nothing was changed",
            visible(named),
            visible(&target.dbname)
        );
    }
    let report = ledger::remove(&target, arguments.run.is_none()).await?;
    let RemovalReport { database, records, tables, statements, kept_roles } = &report;
    let tables = format!("{tables} tracked table{}", if *tables == 1 { "" } else { "s" });
    if arguments.run.is_some() {
        print_line(&format!(
            "The ledger of {} is removed, with {records} records and the triggers of {tables}.",
            visible(database)
        ));
    } else {
        statements.iter().for_each(|statement| print_line(&format!("{};", visible(statement))));
        print_line(&format!(
            "-- {records} records go, which `countersign audit export` can keep, and the triggers of {tables}."
        ));
    }
    kept_roles.iter().for_each(|kept| print_line(&format!("-- The role {}.", visible(kept))));
    print_line(
        "-- Files stay: the keys of the log and connection strings below ~/.config/countersign, and the entries of",
    );
    print_line("-- clients, which `countersign uninstall --client NAME` removes.");
    if arguments.run.is_none() {
        print_line(&format!(
            "-- Nothing was changed. To remove it: countersign uninstall --ledger --run {}",
            shell_word(database)
        ));
    }
    Ok(())
}
