//! The transport of protocol 2024-11-05.

use futures_util::StreamExt;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use testkit::{HttpAnswer, HttpClient, HttpServer, database, send_signal};

/// A session: messages go by POST, and come as events.
pub(crate) struct Session {
    visitor: HttpClient,
    endpoint: String,
    events: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<Vec<u8>>> + Send>>,
    text: String,
}

impl Session {
    /// Opens a stream, and says nothing of the client.
    pub(crate) async fn connected(visitor: HttpClient) -> Self {
        let stream = visitor.request(Method::GET, "/sse").send().await.unwrap();
        assert_eq!(stream.status(), StatusCode::OK);
        assert_eq!(stream.headers()["content-type"], "text/event-stream");
        let events = stream.bytes_stream().map(|piece| piece.map(|bytes| bytes.to_vec())).boxed();
        let mut session = Self { visitor, endpoint: String::new(), events, text: String::new() };
        let (kind, endpoint) = session.event().await;
        assert_eq!(kind, "endpoint");
        session.endpoint = endpoint;
        session
    }

    pub(crate) async fn open(visitor: HttpClient) -> Self {
        let mut session = Self::connected(visitor).await;
        let client = json!({"name": "test", "version": "0"});
        let params = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": client});
        let hello = session.request(0, "initialize", params).await;
        assert_eq!(hello["result"]["protocolVersion"], "2024-11-05", "{hello}");
        session.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        session
    }

    /// The next event: its kind and its data.
    async fn event(&mut self) -> (String, String) {
        loop {
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    event.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim().to_owned())
                };
                let found = field("event:").zip(field("data:"));
                self.text = rest.to_owned();
                if let Some(found) = found {
                    return found;
                }
            }
            let piece = tokio::time::timeout(std::time::Duration::from_secs(20), self.events.next()).await;
            let piece = piece.expect("an event in time").expect("the stream goes on").unwrap();
            self.text.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }

    fn try_post(&self, message: &Value) -> impl Future<Output = HttpAnswer> + use<> {
        let visitor = self.visitor.clone();
        let request = visitor.request(Method::POST, &self.endpoint).body(message.to_string());
        async move { visitor.send(request).await }
    }

    async fn post(&self, message: &Value) {
        let answer = self.try_post(message).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
    }

    pub(crate) async fn request(&mut self, id: u32, method: &str, params: Value) -> Value {
        self.try_request(id, method, params).await.unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    /// The message that answers a request.
    ///
    /// # Errors
    /// What was answered instead of taking it.
    pub(crate) async fn try_request(&mut self, id: u32, method: &str, params: Value) -> Result<Value, HttpAnswer> {
        let taken = self.try_post(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        if taken.status != StatusCode::ACCEPTED {
            return Err(taken);
        }
        let (kind, data) = self.event().await;
        assert_eq!(kind, "message");
        let message: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(message["id"], id, "{message}");
        Ok(message)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_the_old_transport_reads_writes_and_leaves_nothing_running() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let mut session = Session::open(server.http_client()).await;
    let call = json!({"name": "post_tweet", "arguments": {"text": "by SSE"}});
    let written = session.request(1, "tools/call", call.clone()).await;
    assert_eq!(written["result"]["structuredContent"]["data"]["text"], "by SSE", "{written}");
    let again = session.request(2, "tools/call", call).await;
    assert_eq!(again["result"]["structuredContent"]["data"]["duplicate"], true, "{again}");

    // A client that disconnects leaves no busy backend.
    let sleep = json!({"name": "query_database", "arguments": {"query": "select pg_sleep(60)"}});
    session.post(&json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": sleep})).await;
    let sleeping = "from pg_stat_activity where usename = 'countersign_reader' and datname = current_database() \
                    and state = 'active' and query like '%pg_sleep%'";
    db.first_value(&format!("select 1 {sleeping}")).await;
    let endpoint = session.endpoint.clone();
    drop(session);
    db.first_value(&format!("select 1 where not exists (select {sleeping})")).await;
    // And the session is over.
    let visitor = server.http_client();
    let late = visitor.request(Method::POST, &endpoint).body(r#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#);
    assert_eq!(visitor.send(late).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_stream_was_lost_goes_on_in_a_new_session() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    // As the event source of TypeScript clients does: no `initialize` after the first stream.
    for id in [1, 7] {
        let mut session = Session::connected(server.http_client()).await;
        let ping = session.request(id, "ping", json!({})).await;
        assert_eq!(ping["result"], json!({}), "{ping}");
        let call = json!({"name": "post_tweet", "arguments": {"text": format!("again, {id}")}});
        let written = session.request(id + 1, "tools/call", call).await;
        assert_eq!(written["result"]["structuredContent"]["success"], true, "{written}");
        let listed = session.request(id + 2, "tools/list", json!({})).await;
        assert!(!listed["result"]["tools"].as_array().unwrap().is_empty(), "{listed}");
        let wrong = session.request(id + 3, "tools/list", json!({"cursor": "nowhere"})).await;
        assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    }
    assert_eq!(db.value("select count(*) from social.tweet where text like 'again, %'").await, "2");
    // Several at once.
    let mut session = Session::connected(server.http_client()).await;
    for id in 0..5 {
        session.post(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"})).await;
    }
    for _ in 0..5 {
        let message: Value = serde_json::from_str(&session.event().await.1).unwrap();
        assert!(message["result"]["tools"].is_array(), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_at_once_are_all_answered_in_one_stream() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let mut session = Session::open(server.http_client()).await;
    let visitor = session.visitor.clone();
    let endpoint = session.endpoint.clone();
    let sending = tokio::spawn(async move {
        for id in 1..=50 {
            let query = json!({"query": "select $1::int as n", "params": [id]});
            let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": {"name": "query_database", "arguments": query}});
            let sent = visitor.request(Method::POST, &endpoint).body(message.to_string());
            assert_eq!(visitor.send(sent).await.status, StatusCode::ACCEPTED);
        }
    });
    let mut answered = Vec::new();
    for _ in 1..=50 {
        let message: Value = serde_json::from_str(&session.event().await.1).unwrap();
        assert_eq!(message["result"]["structuredContent"]["data"]["rows"][0]["n"], message["id"], "{message}");
        answered.push(message["id"].as_u64().unwrap());
    }
    sending.await.unwrap();
    answered.sort_unstable();
    assert_eq!(answered, (1..=50).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_request_keeps_nothing_and_does_not_delay_the_stop() {
    let db = database().await;
    let mut server = HttpServer::on(&db).await;
    let mut session = Session::open(server.http_client()).await;
    let sleep = json!({"name": "query_database", "arguments": {"query": "select pg_sleep(60)"}});
    let call = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": sleep});
    session.post(&call).await;
    let sleeping = "from pg_stat_activity where usename = 'countersign_reader' and datname = current_database() \
                    and state = 'active' and query like '%pg_sleep%'";
    db.first_value(&format!("select 1 {sleeping}")).await;
    // Another one with its id could not be told apart.
    let again = session.visitor.request(Method::POST, &session.endpoint).body(call.to_string());
    assert_eq!(session.visitor.send(again).await.status, StatusCode::BAD_REQUEST);
    session.post(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})).await;
    db.first_value(&format!("select 1 where not exists (select {sleeping})")).await;
    assert_eq!(session.request(6, "ping", json!({})).await["result"], json!({}));
    send_signal(server.pid(), nix::sys::signal::Signal::SIGTERM);
    assert!(server.ended().await.success(), "it does not wait for what was cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_before_its_answer_is_no_error_of_the_server() {
    // I-8
    let db = database().await;
    let mut command = HttpServer::command(&db);
    command.args(["--log", "debug"]);
    let server = HttpServer::start(command).await;
    let session = Session::open(server.http_client()).await;
    let sleep = json!({"name": "query_database", "arguments": {"query": "select pg_sleep(60)"}});
    session.post(&json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": sleep})).await;
    let sleeping = "select 1 from pg_stat_activity where usename = 'countersign_reader' \
                    and datname = current_database() and state = 'active' and query like '%pg_sleep%'";
    db.first_value(sleeping).await;
    drop(session);
    server.logged("an answer is dropped: its client has left").await;
    assert!(!server.log().contains("ERROR"), "{}", server.log());
}
