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
