//! Hostile arguments of a write tool are written exactly or refused with nothing written.

use serde_json::{Value, json};
use testkit::{Database, RawStdioServer, Server, TestManifest, database, repository};

const TOOL: &str = r#"
[[tool]]
name = "keep"
access = "write"
description = "Keep it."
sql = "insert into social.kept (id, size, name) values ($1, $2, $3) returning id, size, name"
rows = "one"
param = [
    { name = "id", description = "Which." },
    { name = "size", description = "How large.", optional = true },
    { name = "name", description = "What.", optional = true },
]
undo = { irreversible = "It is." }
"#;

async fn kept(db: &Database) -> String {
    db.value("select count(*) from social.kept").await
}

fn call(arguments: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"keep","arguments":{arguments}}}}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_written_exactly_or_refused() {
    let db = database().await;
    db.run("create table social.kept (id bigint, size float8, name text)").await;
    let mut server = RawStdioServer::start(TestManifest::new(TOOL).command(&db), "2025-06-18").await;
    for (arguments, refused) in [
        // The schema refuses these before the gate.
        (r#"{"id": 1.5}"#, "invalid_params"),
        (r#"{"id": 1e400}"#, "invalid_params"),
        (r#"{"id": 9223372036854775808}"#, "invalid_params"),
        (r#"{"id": "1; drop table social.kept"}"#, "invalid_params"),
        // PostgreSQL refuses this one and does not make Infinity of it.
        (r#"{"id": 1, "size": 1e400}"#, "invalid_params"),
        (r#"{"id": 1, "name": "a\u0000b"}"#, "invalid_params"),
    ] {
        server.send(&call(arguments)).await;
        let answer = server.receive().await;
        assert_eq!(answer["result"]["structuredContent"]["error"]["code"], refused, "{arguments}: {answer}");
    }
    for (arguments, code) in [
        (r#"{"id": NaN}"#, -32700),
        (r#"{"id": 1, "size": Infinity}"#, -32700),
        (r#"{"id": 1, "name": "\ud800"}"#, -32700),
        (r#"{"id": 1, "id": 2}"#, -32602),
    ] {
        server.send(&call(arguments)).await;
        let answer = server.receive().await;
        assert_eq!(answer["error"]["code"], code, "{arguments}: {answer}");
    }
    assert_eq!(kept(&db).await, "0");
    // 2^53 + 1, and the largest of all.
    for id in ["9007199254740993", "9223372036854775807"] {
        // I-2: a JavaScript client sends and shows another number, so it is refused, and its digits are text.
        server.send(&call(&format!(r#"{{"id": {id}}}"#))).await;
        let answer = server.receive().await;
        assert_eq!(answer["result"]["structuredContent"]["error"]["code"], "invalid_params", "{answer}");
        server.send(&call(&format!(r#"{{"id": "{id}"}}"#))).await;
        let answer = server.receive().await;
        assert_eq!(answer["result"]["structuredContent"]["data"]["id"], id, "{answer}");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(&format!(r#""id":{id}"#)), "{answer}");
        assert_eq!(db.value(&format!("select count(*) from social.kept where id = {id}")).await, "1");
    }
    let text = "Robert'); drop table social.kept;-- \"\\ \u{202e}";
    server.send(&call(&json!({"id": 5, "name": text}).to_string())).await;
    let answer: Value = server.receive().await;
    assert_eq!(answer["result"]["structuredContent"]["data"]["name"], text, "{answer}");
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nul_in_any_text_of_a_built_in_tool_is_the_callers_mistake() {
    // PostgreSQL cannot store it, so the error is not retryable.
    let db = database().await;
    let server = Server::with(&db, |it| it.arg("--manifest").arg(repository().join("manifests/studio.toml"))).await;
    let tools = server.tool_names().await;
    let nul = "a\0b";
    let id = "00000000-0000-0000-0000-000000000000";
    for (tool, arguments) in [
        ("get_recent_mutations", json!({"tool_name": nul})),
        ("get_mutation_detail", json!({"correlation_id": nul})),
        ("query_database", json!({"query": nul})),
        ("query_database", json!({"query": "select $1::text", "params": [nul]})),
        ("explain_query", json!({"query": nul})),
        ("describe_database", json!({"schema": nul})),
        ("describe_database", json!({"schema": "social", "table": nul})),
        ("describe_database", json!({"search": nul})),
        ("preview_mutation", json!({"tool": nul, "params": {}})),
        ("get_proposal", json!({"proposal_id": nul})),
        ("confirm_proposal", json!({"proposal_id": id, "digest": nul})),
        ("reject_proposal", json!({"proposal_id": id, "reason": nul})),
        ("like_tweet", json!({"tweet_id": 1, "idempotency_key": nul})),
    ] {
        assert!(tools.iter().any(|name| name == tool), "{tool} is not among {tools:?}");
        let error = server.fail(tool, arguments, "invalid_params").await;
        assert_eq!(error["retryable"], false, "{tool}: {error}");
    }
}
