//! The smallest MCP server: what a server that only speaks the protocol and runs the same transaction needs. It is this
//! binary again, with [`ARGUMENT`], over stdio.
//!
//! It checks nothing and bounds nothing. What another server takes beyond it is the price of what that server does.

use ledger::read::ReadLimits;
use serde_json::{Map, Value, json};
use testkit::Database;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::IN_FLIGHT;
use crate::stdio::StdioServer;

/// The argument that makes this binary the server.
pub(crate) const ARGUMENT: &str = "smallest-server";

/// Starts the server as a child process.
pub(crate) async fn start(db: &Database) -> StdioServer {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.arg(ARGUMENT).env("DATABASE_URL", db.url());
    StdioServer::start(command, Some("execute_sql")).await.expect("an answer of the smallest server")
}

/// Serves standard input until it ends.
pub(crate) async fn serve() {
    let url = std::env::var("DATABASE_URL").expect("a connection string");
    let connections = ReadLimits::default().sessions;
    let (returned, mut free) = mpsc::channel(connections);
    for _ in 0..connections {
        let client = testkit::connect(&url).await;
        returned.send(client).await.expect("room for it");
    }
    let (answers, mut to_write) = mpsc::channel::<Vec<u8>>(IN_FLIGHT);
    tokio::spawn(async move {
        let mut output = tokio::io::stdout();
        while let Some(mut line) = to_write.recv().await {
            line.push(b'\n');
            output.write_all(&line).await.expect("a client that reads");
            output.flush().await.expect("a client that reads");
        }
    });
    let mut lines = BufReader::with_capacity(1 << 16, tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await.expect("lines of text") {
        let request: Value = serde_json::from_str(&line).expect("JSON");
        let Some(id) = request.get("id").cloned() else { continue };
        let method = request["method"].as_str().expect("a method").to_owned();
        if method != "tools/call" {
            let result = json!({"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": ARGUMENT, "version": "0"}});
            answers.send(answer(&id, &result)).await.expect("a writer");
            continue;
        }
        let client = free.recv().await.expect("a connection");
        let (answers, returned) = (answers.clone(), returned.clone());
        tokio::spawn(async move {
            let rows = run(&client, request["params"]["arguments"]["sql"].as_str().expect("a text")).await;
            returned.send(client).await.expect("room for it");
            let text = Value::from(rows).to_string();
            answers.send(answer(&id, &json!({"content": [{"type": "text", "text": text}]}))).await.expect("a writer");
        });
    }
}

fn answer(id: &Value, result: &Value) -> Vec<u8> {
    serde_json::to_vec(&json!({"jsonrpc": "2.0", "id": id, "result": result})).expect("JSON")
}

/// A transaction of the statement in one round trip, read only unless it is an UPDATE; the rows as objects of texts.
async fn run(client: &Client, sql: &str) -> Vec<Value> {
    let (begin, end) = if sql.starts_with("update") { ("begin", "commit") } else { ("begin read only", "rollback") };
    let (began, messages, ended) =
        tokio::join!(client.batch_execute(begin), client.simple_query(sql), client.batch_execute(end));
    began.and(ended).expect("a transaction");
    let object = |message: SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            let value =
                |(at, column): (usize, &tokio_postgres::SimpleColumn)| (column.name().to_owned(), row.get(at).into());
            Some(Value::Object(row.columns().iter().enumerate().map(value).collect::<Map<_, _>>()))
        }
        _ => None,
    };
    messages.expect("rows").into_iter().filter_map(object).collect()
}
