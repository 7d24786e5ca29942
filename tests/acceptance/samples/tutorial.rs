//! The tutorial: every sample of it, in the order of the page.

use serde_json::Value;
use testkit::{Server, countersign};
use tokio::process::Command;

use super::commands::without_ids;
use super::samples_of;
use super::shop::Shop;

const PAGE: &str = "docs/tutorial.md";

/// The ids that the page shows; each run has others.
const PROPOSAL: &str = "dcd345d9";
/// The one that is approved on a terminal, where the command asks.
const ASKED: &str = "2f7091b7";
const DIGEST: &str = "284695fc1e928629d2432338cee23bfce47130683a8c1ca727f079596cfceeb5";
/// The records of the page, and the tools that wrote them.
const RECORDS: [(&str, &str); 2] = [("cc8d9ad4", "delete_orders"), ("979aefec", "execute_sql")];

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_leads_to_a_write_that_is_approved_undone_and_verified() {
    let shop = Shop::without_tables().await;
    let mut connection = String::new();
    let mut server = None;
    let mut proposal = Value::Null;
    for sample in samples_of(PAGE) {
        if sample.text.starts_with("create schema") {
            shop.run(&sample.text).await;
        } else if sample.text.starts_with('{') {
            if server.is_none() {
                server = Some(installed(&shop).await);
            }
            let call: Value = serde_json::from_str(&sample.text).unwrap();
            let answer = server.as_ref().unwrap().call(call["name"].as_str().unwrap(), call["arguments"].clone()).await;
            assert_eq!(answer["success"], true, "{call}: {answer}");
            if call["name"] == "query_database" {
                assert_eq!(answer["data"]["rows"][0]["customer"], "Linus", "{answer}");
            }
            proposal = answer["data"]["proposal"].clone();
        } else {
            for step in sample.text.split("$ ").filter(|step| !step.is_empty()) {
                let (command, shown) = step.split_once('\n').unwrap();
                if command.starts_with("export DATABASE_URL=") {
                    connection = shop.filled_in(command);
                    continue;
                }
                let command = with_ids_of_this_run(&shop, command, &proposal).await;
                let printed = shop.shell(&format!("{connection}; {command}"), "").await;
                assert_shown(&command, &printed, shown);
                if command.starts_with("countersign install ") {
                    server = None;
                }
            }
        }
    }
    let left = shop.shell("psql -At shop -c 'select count(*), max(status) from shop.orders where id = 1'", "").await;
    assert_eq!(left.trim(), "1|shipped", "the deleted order is back");
    let paid = shop.shell("psql -At shop -c 'select status from shop.orders where id = 3'", "").await;
    assert_eq!(paid.trim(), "open", "and the payment undone");
}

/// The server that the client would start.
async fn installed(shop: &Shop) -> Server {
    let file = std::fs::read_to_string(shop.folder().join(".cursor/mcp.json")).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    let entry = &file["mcpServers"]["shop"];
    assert_eq!(entry["command"], countersign().to_str().unwrap());
    let mut command = Command::new(countersign());
    command.args(entry["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()));
    command.env_remove("DATABASE_URL").env("HOME", shop.folder()).kill_on_drop(true);
    Server::start(command).await
}

async fn with_ids_of_this_run(shop: &Shop, command: &str, proposal: &Value) -> String {
    let mut command = command.to_owned();
    if command.contains(PROPOSAL) {
        command = command
            .replace(PROPOSAL, proposal["proposal_id"].as_str().unwrap())
            .replace(DIGEST, proposal["digest"].as_str().unwrap());
    }
    if command.contains(ASKED) {
        command = command.replace(ASKED, &format!("{} --yes", proposal["proposal_id"].as_str().unwrap()));
    }
    for (record, tool) in RECORDS {
        if !command.contains(record) {
            continue;
        }
        let written = format!("select correlation_id from countersign.record where tool_name = $${tool}$$");
        let id = shop.shell(&format!("psql -At shop -c '{written}'"), "").await;
        command = command.replace(record, id.trim());
    }
    command
}

/// Each shown line is printed, in this order; `…` stands for lines that are not shown, and a shown line may end early.
fn assert_shown(command: &str, printed: &str, shown: &str) {
    let printed_lines = comparable(printed);
    let mut printed_lines = printed_lines.lines();
    for line in comparable(shown).lines().filter(|line| *line != "…") {
        assert!(printed_lines.any(|found| found.starts_with(line)), "{command} does not print {line:?}:\n{printed}");
    }
}

/// Without what differs from one run to the next.
fn comparable(text: &str) -> String {
    let line = |line: &str| {
        let words = line.split(' ');
        let ages = ["min", "s", "ago", "AGO"];
        words.filter(|word| !ages.contains(word) && word.parse::<u32>().is_err()).collect::<Vec<_>>().join(" ")
    };
    without_ids(text).lines().map(line).collect::<Vec<_>>().join("\n")
}
