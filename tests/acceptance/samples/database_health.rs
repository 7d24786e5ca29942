//! The samples of docs/topics/database-health.md.

use serde_json::json;
use testkit::{ConfigDir, Server, database, repository};

use super::sample;

const PAGE: &str = "docs/topics/database-health.md";

#[tokio::test(flavor = "multi_thread")]
async fn the_login_of_the_page_reads_what_the_tools_show() {
    let db = database().await;
    // Roles belong to the cluster, which other tests use.
    let role = format!("health_{}", db.name());
    let sql = sample(PAGE, "create extension if not exists pg_stat_statements")
        .replace("create role health", &format!("create role {role}"));
    db.run(&sql).await;
    let url = "postgresql://health:change%20me@db.example.com/shop";
    let manifest = repository().join("manifests/dba.toml");
    let config = sample(PAGE, "# countersign.toml")
        .replace(url, &db.url_as(&role))
        .replace("manifests/dba.toml", &manifest.display().to_string());
    let folder = ConfigDir::new();
    let mut command = folder.command(&format!("database_url = {:?}\nlog = \"warn\"\n{config}", db.writer_url()));
    command.arg("serve");
    let server = Server::start(command).await;
    for tool in ["blocking_sessions", "table_health", "settings_that_differ"] {
        server.succeed(tool, json!({})).await;
    }
    // It is in no library that this cluster loads.
    let error = server.fail("top_queries", json!({}), "sql_error").await;
    assert!(error["message"].as_str().unwrap().contains("shared_preload_libraries"), "{error}");
}
