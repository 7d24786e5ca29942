//! OpenTelemetry: what a collector receives of reads, writes and errors, and what never leaves the server
//! (docs/topics/monitoring.md).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testkit::{Collector, HttpServer, Observed, RawStdioServer, Server, database, poll};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

const PROTOCOL: &str = "2025-06-18";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// The marks of what must not be exported.
const SECRETS: [&str; 3] = ["s3cret-value", "s3cret-text", "no_such_table"];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A call with a trace context of its own.
fn traced(id: u32, tool: &str, arguments: &Value) -> String {
    let meta = json!({"traceparent": format!("00-{TRACE}-{PARENT}-01"), "tracestate": "rojo=1"});
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// The attributes of a span of a call, but for the session's id.
fn of_call(span: &opentelemetry_proto::tonic::trace::v1::Span) -> BTreeMap<String, String> {
    let mut attributes = Observed::attributes(span);
    assert_eq!(attributes.remove("mcp.session.id").map(|id| id.len()), Some(32));
    attributes
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_a_write_and_an_error_are_spans_below_the_callers_without_values() {
    let (db, collector) = (database().await, Collector::start().await);
    let mut command = Server::command(&db);
    collector.apply(&mut command);
    let mut server = RawStdioServer::start(command, PROTOCOL).await;
    let read = json!({"query": "select $1::text as \"s3cret-text\"", "params": ["s3cret-value"]});
    for (id, tool, arguments) in [
        (11, "query_database", read),
        (12, "post_tweet", json!({"text": "s3cret-value"})),
        (13, "query_database", json!({"query": "select * from no_such_table"})),
        (14, "s3cret-text", json!({})),
    ] {
        server.send(&traced(id, tool, &arguments)).await;
        assert_eq!(server.receive().await["id"], id);
    }
    let (unknown, _) = collector.span("tools/call").await;
    let observed = collector.observed();
    let by_id = |id: &str| {
        let of_id = |span: &&_| Observed::attributes(span).get("jsonrpc.request.id").is_some_and(|found| found == id);
        observed.spans.iter().find(of_id).unwrap_or_else(|| panic!("no span of {id}: {:?}", observed.spans))
    };
    let namespace = db.name();
    let common = [
        ("db.namespace", namespace),
        ("db.system.name", "postgresql"),
        ("mcp.method.name", "tools/call"),
        ("mcp.protocol.version", PROTOCOL),
        ("network.transport", "pipe"),
    ];
    let call = |id: &'static str, tool: &'static str, more: &[(&str, &str)]| {
        let own = [("jsonrpc.request.id", id), ("gen_ai.operation.name", "execute_tool"), ("gen_ai.tool.name", tool)];
        map(&[&common[..], &own, more].concat())
    };
    let (read, write, failed) = (by_id("11"), by_id("12"), by_id("13"));
    for span in [read, write, failed, &unknown] {
        assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
        assert_eq!((span.kind, span.trace_state.as_str()), (2, "rojo=1"), "a server's span");
        assert!(span.end_time_unix_nano > span.start_time_unix_nano && span.events.is_empty());
    }
    assert_eq!((read.name.as_str(), of_call(read)), ("tools/call query_database", call("11", "query_database", &[])));
    assert_eq!((write.name.as_str(), of_call(write)), ("tools/call post_tweet", call("12", "post_tweet", &[])));
    let error = [("error.type", "tool_error"), ("countersign.error.code", "sql_error")];
    assert_eq!(of_call(failed), call("13", "query_database", &error));
    assert_eq!(failed.status.clone().unwrap_or_default().code, 2, "an error");
    assert_eq!(read.status.clone().unwrap_or_default().code, 0);
    let refused = [("jsonrpc.request.id", "14"), ("error.type", "-32602"), ("rpc.response.status_code", "-32602")];
    assert_eq!(of_call(&unknown), map(&[&common[..], &refused].concat()));
    assert_eq!(observed.resource["service.name"], "countersign");

    // The rest is sent when the server ends.
    assert!(server.close().await);
    let observed = collector.observed();
    let exported = String::from_utf8_lossy(&observed.bytes);
    for secret in SECRETS {
        assert!(!exported.contains(secret), "{secret} was exported");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_statements_are_exported_if_asked_for_and_values_never() {
    let (db, collector) = (database().await, Collector::start().await);
    let mut command = Server::command(&db);
    // The settings of this program go before the variables of OpenTelemetry.
    collector.apply(&mut command);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1").env("OTEL_SERVICE_NAME", "shop-agents");
    command.env("COUNTERSIGN_OTEL_ENDPOINT", collector.endpoint()).env("COUNTERSIGN_OTEL_SQL_TEXT", "true");
    let server = Server::start(command).await;
    let hostile = format!("select $1::text as a -- \u{1b}[2J{}", "x".repeat(20_000));
    server.succeed("query_database", json!({"query": hostile, "params": ["s3cret-value"]})).await;
    let (span, observed) = collector.span("tools/call query_database").await;
    let text = &Observed::attributes(&span)["db.query.text"];
    assert!(text.starts_with("select $1::text as a -- \\u001b[2Jxxx") && text.len() < 8300, "{text}");
    assert!(!String::from_utf8_lossy(&observed.bytes).contains("s3cret-value"));
    assert_eq!(observed.resource["service.name"], "shop-agents");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_the_header_names_the_parent_unless_the_request_does() {
    let (db, collector) = (database().await, Collector::start().await);
    let mut command = HttpServer::command(&db);
    collector.apply(&mut command);
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc");
    let server = HttpServer::start(command).await;
    let other = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let header = format!("00-{other}-{PARENT}-01");
    let call = |id: u32, meta: Value| {
        let params = json!({"name": "query_database", "arguments": {"query": "select 1"}, "_meta": meta});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    let session = server.session(PROTOCOL).await.with("traceparent", &header);
    for (id, meta) in [(1, json!({})), (2, json!({"traceparent": format!("00-{TRACE}-{PARENT}-01")}))] {
        session.post(&call(id, meta)).await;
    }
    let both = async || {
        let spans = collector.observed().spans;
        let calls: Vec<_> = spans.into_iter().filter(|span| span.name == "tools/call query_database").collect();
        Some(calls).filter(|calls| calls.len() == 2)
    };
    let calls = poll::until_some("two spans", both).await;
    let traces: Vec<String> = calls.iter().map(|span| hex(&span.trace_id)).collect();
    assert!(traces.contains(&other.to_owned()) && traces.contains(&TRACE.to_owned()), "{traces:?}");
    assert!(calls.iter().all(|span| Observed::attributes(span)["network.transport"] == "tcp"));
    let heads = collector.observed().heads;
    assert!(heads.iter().all(|head| head.to_ascii_lowercase().contains("authorization: bearer abc")), "{heads:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_collector_costs_nothing_but_one_line_of_the_log() {
    let db = database().await;
    let mut command = Server::command(&db);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1").env("OTEL_BSP_SCHEDULE_DELAY", "5");
    let (mut server, mut log) = RawStdioServer::start_logged(command, PROTOCOL).await;
    for _ in 0..50 {
        let answer = server.call("query_database", json!({"query": "select 1 as n"})).await;
        assert_eq!(answer["success"], true);
    }
    let mut first = Vec::new();
    while !String::from_utf8_lossy(&first).contains("Connection refused") {
        assert!(log.read_buf(&mut first).await.unwrap() > 0, "{}", String::from_utf8_lossy(&first));
    }
    for _ in 0..50 {
        server.call("query_database", json!({"query": "select 1 as n"})).await;
    }
    assert!(server.close().await);
    log.read_to_end(&mut first).await.unwrap();
    let log = String::from_utf8_lossy(&first);
    assert_eq!(log.matches("the collector of OpenTelemetry does not take them").count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_endpoint_stops_the_start() {
    let db = database().await;
    for (variable, value, said) in [
        ("COUNTERSIGN_OTEL_ENDPOINT", "localhost:4318", "is not a URL of a collector"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "no url at all", "OpenTelemetry cannot be used"),
    ] {
        let mut command: Command = Server::command(&db);
        let output = testkit::run(command.env(variable, value)).await;
        assert!(output.code != 0 && output.err.contains(said), "{}", output.err);
    }
}
