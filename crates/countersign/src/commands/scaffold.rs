//! `countersign scaffold`: writes a manifest for the tables of a schema, and lists what to do before it fits.

use ::manifest::Source;
use ::scaffold::{Scaffold, discover};
use ledger::{ConnectOptions, Ledger};

use crate::commands::check::{CatalogQueries, grants};
use crate::commands::cli::ScaffoldArgs;
use crate::connection;
use crate::settings::DatabaseSettings;
use crate::terminal::shell_word::shell_word;
use crate::terminal::undo_way::UndoWay;
use crate::terminal::{print_error, print_lines, write_bytes};
use crate::tool_catalog;

/// The number of tools above which agents choose badly, and clients warn or truncate the list.
const MANY_TOOLS: usize = 30;

pub(crate) async fn run(arguments: &ScaffoldArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let target = connection::configured(settings)?;
    let scaffold =
        ::scaffold::manifest(&discover(&target, &arguments.schemas, &arguments.tables).await?, &arguments.only);
    anyhow::ensure!(scaffold.tools > 0, "no table can have tools:\n{}", scaffold.left_out.join("\n"));
    if let Some(role) = &arguments.grants {
        return print_grants(&scaffold, role, &target, settings).await;
    }
    write_bytes(scaffold.text.as_bytes());
    scaffold.left_out.iter().for_each(|line| print_error(&format!("left out  {line}")));
    advice(&scaffold, arguments).iter().for_each(|line| print_error(line));
    Ok(())
}

/// Prints the privileges that the tools need, as `check --grants` finds them. Tracking of the tables does not matter
/// for this.
async fn print_grants(
    scaffold: &Scaffold,
    role: &str,
    target: &ConnectOptions,
    settings: &DatabaseSettings,
) -> anyhow::Result<()> {
    let source = Source { path: "scaffold".into(), text: scaffold.text.clone() };
    let ledger = Ledger::new(target.clone(), settings.ledger.clone());
    let catalog = tool_catalog::compile_statements(&[source], &ledger, target).await?;
    let lines = grants::missing(&CatalogQueries::new(target), &catalog, role).await?;
    print_lines(lines);
    Ok(())
}

/// The remaining steps for the operator.
fn advice(scaffold: &Scaffold, arguments: &ScaffoldArgs) -> Vec<String> {
    let tables: Vec<String> = scaffold.tables.iter().map(|table| shell_word(table)).collect();
    let flags = |flag: &str, words: &[String]| -> String {
        words.iter().map(|word| format!(" {flag} {}", shell_word(word))).collect()
    };
    let only: Vec<&str> = arguments.only.iter().map(|kind| kind.as_str()).collect();
    let only = if only.is_empty() { String::new() } else { format!(" --only {}", only.join(",")) };
    let mut lines = vec![
        format!(
            "{} tools, about {} tokens in the list that each session of an agent reads.",
            scaffold.tools, scaffold.tokens
        ),
        format!("Before `countersign check` accepts them, run as the owner of the tables:"),
        format!("  countersign track {}", tables.join(" ")),
        format!(
            "  countersign scaffold{}{}{only} --grants | psql",
            flags("--schema", &arguments.schemas),
            flags("--table", &arguments.tables)
        ),
        format!("Then `countersign check` says of each write: {}.", UndoWay::RecordedChanges),
    ];
    if scaffold.tools > MANY_TOOLS {
        lines.push(format!(
            "{} tools are more than most agents choose well from. Keep those that they need (--table, --only insert,update), or \
             serve execute_sql beside them, whose statements are tried before the user agrees: --execute-sql.",
            scaffold.tools
        ));
    }
    lines
}
