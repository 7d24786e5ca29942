//! `countersign init`: creates the ledger's schema, its roles, the reader's login and, on request, the demo's data.

use ledger::{InitOptions, InitReport};
use types::visible;

use crate::commands::audit::{self, log_keys};
use crate::commands::cli::InitArgs;
use crate::commands::demo;
use crate::connection;
use crate::settings::Settings;
use crate::terminal::print_line;

const MAX_NAMES: usize = 12;

pub(crate) async fn run(arguments: &InitArgs, settings: &Settings) -> anyhow::Result<()> {
    let target = connection::configured(settings)?;
    let options = InitOptions {
        writer: arguments.writer.clone(),
        reader_tables: arguments.reader_tables,
        dry_run: arguments.dry_run,
    };
    let report = ledger::init(&target, &options).await?;
    if arguments.dry_run {
        for statement in &report.statements {
            print_line(&format!("{statement};"));
        }
        for warning in &report.warnings {
            print_line(&format!("-- warning: {}", visible(warning)));
        }
        return Ok(());
    }
    print(&report, &target.dbname, &arguments.writer);
    if arguments.demo {
        for (schema, loaded) in demo::database::load(&target).await? {
            print_line(&if loaded {
                format!("The demo's schema \"{schema}\" and its data are loaded.")
            } else {
                format!("The schema \"{schema}\" exists already, and stays as it is.")
            });
        }
    }
    match ensure_key(settings).await {
        Ok(lines) => lines.iter().for_each(|line| print_line(line)),
        // The ledger exists and works. The key can be made later.
        Err(error) => print_line(&format!("  warning  the log of the ledger is not signed: {error:#}")),
    }
    if report.is_new {
        print_line(&format!(
            "Next: let servers log in as {0} (\\password {0} in psql), grant {0} what the tools write, then\n  \
             countersign check --manifest FILE\n  countersign serve --manifest FILE",
            arguments.writer
        ));
    }
    Ok(())
}

async fn ensure_key(settings: &Settings) -> anyhow::Result<Vec<String>> {
    log_keys::ensure_key(&audit::open(settings).await?, &settings.ledger.signing).await
}

fn print(report: &InitReport, dbname: &str, writer: &str) {
    print_line(&format!(
        "The ledger (schema countersign, version {}) in database \"{dbname}\" is ready.",
        report.version
    ));
    for role in &report.roles {
        let what = match role.as_str() {
            ledger::OWNER => "owns the ledger, without login",
            ledger::APPROVER => "approves proposals, without login: grant it to people",
            ledger::CONSOLE => "decides for people, without login: grant it to the console",
            ledger::OPERATOR => "undoes writes of any account, without login: grant it to people",
            role if role == writer => "the login of servers, without a password yet",
            _ => "the login of reads, its password in the ledger",
        };
        print_line(&format!("  created  {role}: {what}"));
    }
    let reader = report.reader.as_deref().unwrap_or_default();
    list("granted", &format!("SELECT to {reader} on"), &report.granted);
    let skipped: Vec<String> =
        report.skipped.iter().map(|skipped| format!("{} (of {})", skipped.relation, skipped.owner)).collect();
    list("skipped", "this login may not grant SELECT on", &skipped);
    list("left", &format!("{reader} cannot read, as after the last init:"), &report.unreadable);
    for change in &report.changes {
        print_line(&format!("  changed  {}", visible(change)));
    }
    for warning in &report.warnings {
        print_line(&format!("  warning  {}", visible(warning)));
    }
}

fn list(what: &str, sentence: &str, names: &[String]) {
    if names.is_empty() {
        return;
    }
    let shown: Vec<String> = names.iter().take(MAX_NAMES).map(|name| visible(name).to_string()).collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    print_line(&format!("  {what:<7}  {sentence} {}{more}", shown.join(", ")));
}
