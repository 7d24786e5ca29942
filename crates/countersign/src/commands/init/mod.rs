//! `countersign init`: creates the ledger's schema, its roles, the reader's login and, on request, what servers need to
//! write the tables of a schema, or the demo's data.

mod config_file;
mod report;

use anyhow::Context;
use ledger::read::SearchPath;
use ledger::{InitOptions, InitReport};
use tokio::sync::Notify;
use types::visible;

use self::config_file::NewConfigFile;
use crate::commands::audit::{self, log_keys};
use crate::commands::cli::InitArgs;
use crate::commands::demo;
use crate::commands::track::report_progress;
use crate::connection;
use crate::settings::DatabaseSettings;
use crate::terminal::shell_word::shell_word;
use crate::terminal::{print_line, print_lines};

pub(crate) async fn run(arguments: &InitArgs, settings: &DatabaseSettings, step: &Notify) -> anyhow::Result<()> {
    let target = connection::configured(settings)?;
    let config = arguments.config.as_deref().map(|path| NewConfigFile::new(path, &arguments.writer, settings));
    let config = config.transpose()?;
    let options = InitOptions {
        writer: arguments.writer.clone(),
        writer_password: config.as_ref().map(|config| config.password().clone()),
        schemas: arguments.schemas.clone(),
        reader_tables: arguments.reader_tables,
        reader_schemas: arguments.reader_schemas.clone(),
        dry_run: arguments.dry_run,
    };
    let mut report = ledger::init(&target, &options).await?;
    if arguments.dry_run {
        report::print_sql(&report);
        return Ok(());
    }
    let unpinned = report.schemas.iter().filter(|schema| schema.unpinned_functions > 0);
    let unpinned: Vec<String> = unpinned.map(|schema| schema.schema.clone()).collect();
    // The file has the only copy of the new password, so nothing keeps it from its place.
    let path = SearchPath::of(&target, &unpinned).await.unwrap_or_default();
    if let Some(mut config) = config {
        if !path.schemas.is_empty() {
            config.add_search_path(&path.schemas)?;
        }
        config.publish()?;
    }
    let progress =
        |schema: &str, done: usize, of: usize| report_progress(step, &format!(" of {}", visible(schema)), done, of);
    let tracked = ledger::track_new(&target, &mut report, &progress).await;
    report::print(&report, &target.dbname, arguments);
    print_lines(report::search_path(&report, &path, arguments.config.is_some()));
    tracked.context("not all tables are tracked; the command can be repeated, and goes on where it stopped")?;
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
        Ok(lines) => print_lines(lines),
        // The ledger exists and works. The key can be made later.
        Err(error) => print_line(&format!("  warning  the log of the ledger is not signed: {error:#}")),
    }
    report::print_for_owners(&report);
    print_lines(next_step(&report, arguments));
    Ok(())
}

async fn ensure_key(settings: &DatabaseSettings) -> anyhow::Result<Vec<String>> {
    log_keys::ensure_key(&audit::open(settings).await?, &settings.ledger.signing).await
}

/// The commands to run next.
fn next_step(report: &InitReport, arguments: &InitArgs) -> Vec<String> {
    let writer = visible(&arguments.writer);
    if let Some(path) = &arguments.config {
        let path = shell_word(&path.to_string_lossy());
        return vec![
            format!("Next: countersign install --client cursor --config {path}"),
            format!("  or  countersign serve --config {path}"),
        ];
    }
    let login = format!("Next: let servers log in as {writer} (\\password {writer} in psql)");
    match (report.is_new, arguments.schemas.is_empty()) {
        (false, _) => Vec::new(),
        (true, true) => vec![
            format!("{login}, grant {writer} what the tools write, then"),
            "  countersign check --manifest FILE".to_owned(),
            "  countersign serve --manifest FILE".to_owned(),
        ],
        (true, false) => vec![
            format!("{login}, write its connection string into a configuration file, then"),
            "  countersign serve --config FILE".to_owned(),
        ],
    }
}
