//! Hostile requests.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use testkit::{HttpClient, HttpServer, ProcessMemory, database};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

const ROUTES: [(&str, &str); 7] = [
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("GET", "/sse"),
    ("POST", "/message?sessionId=x"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/.well-known/oauth-protected-resource"),
];

async fn status(visitor: &HttpClient, method: &str, path: &str) -> StatusCode {
    visitor.send(visitor.request(method.parse().unwrap(), path)).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_another_name_or_from_a_page_is_refused_on_every_route() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    for (method, path) in ROUTES {
        for (name, value) in [
            ("host", "evil.example:8080"),
            ("host", "localhost.evil.example"),
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://localhost"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            let visitor = server.http_client().with(name, value);
            assert_eq!(status(&visitor, method, path).await, StatusCode::FORBIDDEN, "{method} {path} {name}: {value}");
        }
    }
    let mut command = HttpServer::command(&db);
    // However an operator writes them: clients leave the port out, and browsers write small letters.
    command.args(["--http-public-url", "https://MCP.example.com:443", "--http-allowed-origins", "https://App.example"]);
    let server = HttpServer::start(command).await;
    let visitor = server.http_client().with("host", "mcp.example.com").with("origin", "https://app.example");
    assert_eq!(status(&visitor, "GET", "/readyz").await, StatusCode::OK);
    // A browser asks first, and then lets the page see the answer.
    let asking = visitor.request(Method::OPTIONS, "/mcp").header("access-control-request-method", "POST");
    let asked = visitor.send(asking.header("access-control-request-headers", "authorization, mcp-session-id")).await;
    assert!(asked.status.is_success(), "{}", asked.status);
    assert_eq!(asked.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(asked.header("access-control-allow-headers"), Some("authorization, mcp-session-id"));
    let answer = visitor.send(visitor.calling(1, "query_database", &json!({"query": "select 1"}))).await;
    assert_eq!(
        (answer.status, answer.header("access-control-allow-origin")),
        (StatusCode::OK, Some("https://app.example"))
    );
    assert!(answer.header("access-control-expose-headers").unwrap().contains("mcp-session-id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_judged_by_its_type_its_size_and_its_shape_before_anything_else() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let visitor = server.http_client();
    let post = |body: Vec<u8>| visitor.request(Method::POST, "/mcp").body(body);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"] {
        let other = visitor.clone().with("content-type", kind);
        let answer = other.send(other.request(Method::POST, "/mcp").body("{}")).await;
        assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    let memory = ProcessMemory::of(server.pid());
    // What is too long is refused while it is being sent, so the client may not see the answer.
    if let Ok(answer) = post(vec![b'['; 64 << 20]).send().await {
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
    let pieces = futures_util::stream::iter((0..64).map(|_| Ok::<_, std::io::Error>(vec![b'['; 1 << 20])));
    if let Ok(answer) = visitor.request(Method::POST, "/mcp").body(reqwest::Body::wrap_stream(pieces)).send().await {
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
    let grown = memory.peak_above_idle_kib();
    assert!(grown < 32 << 10, "{grown} KiB");

    let deep = "{\"a\":".repeat(100_000);
    let call = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x","arguments":{"a":1,"a":2}}}"#;
    for (body, code, id) in [
        (deep.as_bytes(), -32700, Value::Null),
        (b"{bad", -32700, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"ping\",\"params\":{\"a\":NaN}}", -32700, json!(4)),
        (b"[]", -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/call\",\"params\":[]}", -32602, json!(3)),
        (call, -32602, json!(7)),
    ] {
        let answer = visitor.send(post(body.to_vec())).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.body);
        let message = answer.message();
        assert_eq!(message["error"]["code"], code, "{message}");
        assert_eq!(message["id"], id, "{message}");
    }
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    for batch in [json!([]), json!([list]), json!([list, list])] {
        let answer = visitor.post(&batch).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert!(answer.body.contains("batches (JSON arrays of messages) are not supported"), "{}", answer.body);
    }
    assert_eq!(visitor.call("query_database", json!({"query": "select 1 as n"})).await["success"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_contradict_the_body_are_refused() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let visitor = server.http_client();
    let request = visitor.calling(1, "post_tweet", &json!({"text": "hidden"})).build().unwrap();
    let mut contradicting = request.try_clone().unwrap();
    contradicting.headers_mut().insert("mcp-name", "query_database".parse().unwrap());
    let answer = reqwest::Client::new().execute(contradicting).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    let message: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(message["error"]["code"], -32020, "{message}");
    assert_eq!(db.value("select count(*) from countersign.mutation").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_a_byte_a_second_is_cut_off_and_holds_no_session_of_the_database() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let mut slow = TcpStream::connect(server.address()).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: 1000\r\n\r\n",
        server.address()
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    let started = Instant::now();
    let (mut reading, mut writing) = slow.into_split();
    let dripping = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        loop {
            ticks.tick().await;
            if writing.write_all(b" ").await.is_err() {
                return;
            }
        }
    });
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(30), reading.read_to_string(&mut answer)).await.expect("cut off").unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(started.elapsed() > Duration::from_secs(10), "the time that a slow line has");
    let held = "select count(*) from pg_stat_activity where usename = 'countersign_reader' and datname = current_database() \
                and state <> 'idle'";
    assert_eq!(db.value(held).await, "0");
    dripping.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_from_another_machine_need_authentication() {
    let db = database().await;
    for address in ["0.0.0.0:0", "[::]:0"] {
        let mut command = Command::new(testkit::countersign());
        command.env("DATABASE_URL", db.writer_url()).args(["serve", "--http", address]);
        let output = command.output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(said.contains("token new"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_text_cannot_forge_a_log_line_or_reach_a_terminal() {
    let db = database().await;
    for format in ["text", "json"] {
        let mut command = HttpServer::command(&db);
        command.env("COUNTERSIGN_LOG_FORMAT", format);
        let server = HttpServer::start(command).await;
        let session = server.session(super::HANDSHAKE).await;
        let post = async |body: String| session.send(session.request(Method::POST, "/mcp").body(body)).await;
        let mut longest = 0;
        for word in ["x\r\n2026-01-01T00:00:00Z ERROR forged\u{1b}[31m\u{202e}".to_owned(), "y".repeat(1 << 20)] {
            let escaped = json!(word);
            let params = json!({"name": word, "arguments": {}, "requestState": "none of yours"});
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            assert_eq!(post(call.to_string()).await.message()["error"]["code"], -32602);
            let unreadable = format!(r#"{{"jsonrpc":"2.0","id":2,"method":{escaped},"params":{{"a":1,"a":2}}}}"#);
            let twice = format!(r#"{{"jsonrpc":"2.0","id":3,{escaped}:1,{escaped}:2}}"#);
            let of_no_kind = format!(r#"{{"jsonrpc":"2.0","id":4,"method":"initialize","params":{escaped}}}"#);
            for body in [unreadable, twice, of_no_kind] {
                let answer = post(body).await;
                assert!(answer.message()["error"]["code"].is_i64(), "{}", answer.body);
                longest = longest.max(answer.body.len());
            }
        }
        // The last of all these.
        let other = session.clone().with("content-type", "text/plain");
        other.send(other.request(Method::POST, "/mcp").body("{}")).await;
        server.logged("the content type application/json").await;
        let log = server.log();
        for line in log.lines() {
            assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
            assert!(line.len() < 1000, "{} bytes", line.len());
            let is_ours = match format {
                "json" => serde_json::from_str::<Value>(line).is_ok_and(|event| event["timestamp"].is_string()),
                _ => line.starts_with("20") && !line.starts_with("2026-01-01T00:00:00Z ERROR"),
            };
            assert!(is_ours, "{line:?}");
        }
        assert!(log.contains("a requestState was refused") && log.contains("a body is not a message"), "{log}");
        assert!(longest < 1000, "{longest} bytes");
    }
}
