//! Samples of the log of reads.

use serde_json::json;
use testkit::{Server, countersign};
use tokio::process::Command;

use super::sample;
use super::shop::Shop;

#[tokio::test(flavor = "multi_thread")]
async fn the_statements_about_the_log_of_reads_run_as_an_operator() {
    let shop = Shop::ready().await;
    shop.run("create role olga login; grant countersign_operator to olga").await;
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", shop.url("countersign_writer")).kill_on_drop(true);
    command.args(["--log", "warn", "serve", "--actor", "anna", "--reads-log", "metadata", "--manifest"]);
    let server = Server::start({
        command.arg(shop.manifest());
        command
    })
    .await;
    for query in [
        "select id, status from shop.orders order by id",
        "select count(*) from shop.orders",
        "select status::int from shop.orders",
    ] {
        server.call("query_database", json!({"query": query})).await;
    }
    server.close().await;
    let statements = sample("docs/topics/read-log.md", "select read_at");
    let printed = shop.shell(&format!("psql -X -A -t '{}' <<'END'\n{statements}\nEND", shop.url("olga")), "").await;
    assert!(printed.contains("|anna|query_database|sql_error|"), "{printed}");
    assert!(printed.contains("shop.orders|3|1|"), "{printed}");
    shop.run("select countersign.make_read_partitions(current_date - 100, current_date - 99)").await;
    let removal = sample("docs/topics/read-log.md", "select p.day");
    let removed = shop.shell(&format!("psql -X -A -t '{}' <<'END'\n{removal}\nEND", shop.url("postgres")), "").await;
    assert_eq!(removed.lines().count(), 2, "{removed}");
}
