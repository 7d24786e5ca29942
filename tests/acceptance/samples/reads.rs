//! Samples of the log of reads.

use serde_json::json;
use testkit::{Server, countersign};
use tokio::process::Command;

use super::commands::without_ids;
use super::sample;
use super::shop::Shop;

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_log_of_reads_print_what_the_page_shows() {
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
    for step in sample("docs/topics/read-log.md", "$ countersign audit reads list").split("$ ").skip(1) {
        let (command, output) = step.split_once('\n').unwrap();
        let printed = shop.shell(&format!("DATABASE_URL='{}' {command}", shop.url("olga")), "").await;
        assert_eq!(without_times(&printed), without_times(output), "{command}:\n{printed}");
    }
}

/// Without ages and milliseconds.
fn without_times(text: &str) -> String {
    let is_duration = |word: &str| word.contains('.') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let line = |line: &str| {
        let words = line.split(' ').map(|word| if is_duration(word) { "MS" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    without_ids(text).lines().map(line).collect::<Vec<_>>().join("\n")
}
