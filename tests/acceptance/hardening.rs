//! Other users of the database against the ledger: its owner, the creator of a schema, a member of a group, a login that was
//! stolen. The tests run attacks that once worked, and every command over a hostile database.

mod database;
mod init;
mod inventory;
mod logins;
mod prepared;
mod reads;
mod state_keys;

use std::process::Output;

use testkit::{Database, config_home, countersign};
use tokio::process::Command;

/// Runs a command of the binary on this connection string; what it printed on both streams, and whether it succeeded.
pub(crate) async fn run(url: &str, arguments: &[&str]) -> (String, bool) {
    let mut command = Command::new(countersign());
    let Output { stdout, stderr, status } = command
        .env("DATABASE_URL", url)
        .env("XDG_CONFIG_HOME", config_home())
        .args(arguments)
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    (String::from_utf8([stdout, stderr].concat()).unwrap(), status.success())
}

/// Runs a command that has to succeed.
pub(crate) async fn succeed(url: &str, arguments: &[&str]) -> String {
    let (said, succeeded) = run(url, arguments).await;
    assert!(succeeded, "{arguments:?}: {said}");
    said
}

/// Runs a command that has to fail with this text.
async fn refused(url: &str, arguments: &[&str], words: &[&str]) {
    let (said, succeeded) = run(url, arguments).await;
    assert!(!succeeded, "{arguments:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{arguments:?} does not say {word:?}: {said}");
    }
}

/// Runs statements as another role.
pub(crate) async fn run_as(db: &Database, role: &str, sql: &str) {
    let client = testkit::connect(&db.url_as(role)).await;
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{role}: {sql}: {error:?}"));
}

/// A name that no other test on the cluster has: roles belong to the whole cluster.
fn named(db: &Database, role: &str) -> String {
    format!("{role}_{}", db.name())
}
