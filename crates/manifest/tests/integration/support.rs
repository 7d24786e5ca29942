//! Compiling against a real PostgreSQL.

use std::ops::Deref;

use countersign_manifest::{Diagnostics, ServerNames, Source, ToolCatalog};
use ledger::Ledger;

/// A database with the schema `social` and what `sql` makes, ready to describe statements.
pub(crate) async fn database(sql: &str) -> Described {
    let database = testkit::database().await;
    database.run(sql).await;
    Described { ledger: Ledger::new(database.target(), ledger::LedgerOptions::default()), _database: database }
}

/// A ledger with the database that it is about, which ends with its handle.
pub(crate) struct Described {
    ledger: Ledger,
    _database: testkit::Database,
}

impl Deref for Described {
    type Target = Ledger;

    fn deref(&self) -> &Ledger {
        &self.ledger
    }
}

/// Compiles these texts as `m0.toml`, `m1.toml`, ...
pub(crate) async fn compile(texts: &[&str], database: &Ledger) -> Result<ToolCatalog, Diagnostics> {
    let sources: Vec<Source> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| Source { path: format!("m{index}.toml").into(), text: (*text).to_owned() })
        .collect();
    let server = ServerNames { builtin: &["query_database"], executors: &["shred_note"], prefix: "" };
    countersign_manifest::compile(&sources, &server, database).await
}

/// The mistakes of a manifest with its first `from` replaced by `to`, one a line.
pub(crate) async fn diagnostics_of(manifest: &str, database: &Ledger, from: &str, to: &str) -> String {
    assert!(manifest.contains(from), "{from}");
    match compile(&[&manifest.replacen(from, to, 1)], database).await {
        Ok(_) => String::new(),
        Err(diagnostics) => diagnostics.to_string(),
    }
}

/// Each: what is replaced by what, and the only mistake that there is then; a mistake in `pairs` comes with a second one.
pub(crate) async fn check_each(manifest: &str, database: &Ledger, replaced: &[(&str, &str, &str)], pairs: &[&str]) {
    let mut wrong = Vec::new();
    for (from, to, message) in replaced {
        let found = diagnostics_of(manifest, database, from, to).await;
        let alone = found.lines().count() == 1 || pairs.iter().any(|pair| message.contains(pair));
        if !found.contains(message) || !alone {
            wrong.push(format!("{from:?} -> {to:?} should give {message:?} but gave:\n{found}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
