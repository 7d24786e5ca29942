//! Compiling against a real PostgreSQL.

use contract::Describe;
use countersign_manifest::{Catalog, Mistakes, Source};
use ledger::Ledger;

/// A database with the schema `social` and what `sql` makes, ready to describe statements.
pub(crate) async fn database(sql: &str) -> Ledger {
    let database = testkit::database().await;
    database.run(sql).await;
    Ledger::new(database.target(), ledger::Settings::default())
}

/// Compiles these texts as `m0.toml`, `m1.toml`, ...
pub(crate) async fn compile(texts: &[&str], database: &impl Describe) -> Result<Catalog, Mistakes> {
    let sources: Vec<Source> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| Source { path: format!("m{index}.toml").into(), text: (*text).to_owned() })
        .collect();
    countersign_manifest::compile(&sources, &["query_database"], database).await
}
