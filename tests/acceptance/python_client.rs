//! The Python SDK's client, which most agent frameworks are built on.

use std::path::PathBuf;

use testkit::{Server, countersign, database, repository};
use tokio::process::Command;

/// A Python that has the `mcp` package: `COUNTERSIGN_TEST_PYTHON`, else the repository's `.venv`.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("COUNTERSIGN_TEST_PYTHON").map(PathBuf::from);
    named.or_else(|| Some(repository().join(".venv/bin/python")).filter(|python| python.exists()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_reads_writes_and_validates_every_answer_against_its_schema() {
    let Some(python) = python() else {
        let advice = "SKIPPED: no Python with the mcp package; CONTRIBUTING.md says how to make .venv";
        std::io::Write::write_all(&mut std::io::stderr(), format!("{advice}\n").as_bytes()).unwrap();
        assert!(std::env::var_os("CI").is_none(), "CI never skips this test");
        return;
    };
    let db = database().await;
    drop(Server::on(&db).await);
    let output = Command::new(python)
        .arg(repository().join("tests/python/session.py"))
        .arg(countersign())
        .arg(repository().join("manifests/social.toml"))
        .env("DATABASE_URL", db.url())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.ends_with("session complete\n"), "{said}");
    assert_eq!(db.value("select count(*) from countersign.mutation_audit where status = 'success'").await, "2");
}
