//! A client of the load: reads, writes, repeats what it must, and keeps a journal of what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::{HttpAnswer, HttpClient, HttpServer};
use tokio::time::Instant;

use crate::http::sse::Session;

/// How long an answer may take: longer than any limit of the server lets it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What all clients were told.
#[derive(Default)]
pub(super) struct Journal {
    /// The receipts of acknowledged posts, by text.
    pub(super) tweets: BTreeMap<String, String>,
    /// The tweets whose like was acknowledged.
    pub(super) likes: BTreeSet<i64>,
    /// How often which answer came.
    answers: BTreeMap<&'static str, usize>,
    /// How long calls took that were answered.
    took: Vec<Duration>,
    /// What no client should be told.
    pub(super) surprises: Vec<String>,
}

impl fmt::Display for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (answer, count) in &self.answers {
            write!(f, "{count} {answer}, ")?;
        }
        let mut took = self.took.clone();
        took.sort_unstable();
        let quantile = |percent: usize| took.get(took.len() * percent / 100).map_or(0, Duration::as_millis);
        write!(
            f,
            "{} tweets; an answer took {} ms (median), {} ms (p99)",
            self.tweets.len(),
            quantile(50),
            quantile(99)
        )
    }
}

enum Way {
    /// `/mcp`, with a session or without.
    Streamable(HttpClient),
    Sse(Session),
}

/// The result of a call.
enum CallResult {
    Envelope(Value),
    /// The server asks to wait.
    Wait(Duration),
}

pub(super) struct Client {
    way: Way,
    number: usize,
    /// Of the last request.
    id: u32,
    rng: fastrand::Rng,
    journal: Arc<Mutex<Journal>>,
}

impl Client {
    /// One of every kind in turn: sessions of three revisions, none, and the old transport.
    pub(super) async fn open(server: &HttpServer, number: usize, journal: Arc<Mutex<Journal>>) -> Self {
        let way = match number % 5 {
            0 => Way::Streamable(server.session("2025-03-26").await),
            1 => Way::Streamable(server.session("2025-06-18").await),
            2 => Way::Streamable(server.session("2025-11-25").await),
            3 => Way::Streamable(server.http_client()),
            _ => Way::Sse(Session::open(server.http_client()).await),
        };
        Self { way, number, id: 0, rng: fastrand::Rng::with_seed(number as u64), journal }
    }

    /// A read and a write, before the load that is measured.
    pub(super) async fn warm_up(&mut self) {
        self.read().await;
        self.post(usize::MAX).await;
    }

    pub(super) async fn work(mut self, until: Instant) {
        let mut tweet = None;
        for count in 0.. {
            if Instant::now() >= until {
                return;
            }
            match self.rng.u8(..10) {
                0..6 => self.read().await,
                6 if tweet.is_some() => self.like(tweet.take().unwrap_or_default()).await,
                _ => tweet = Some(self.post(count).await),
            }
        }
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap()
    }

    fn note(&self, answer: &'static str) {
        *self.journal().answers.entry(answer).or_default() += 1;
    }

    async fn read(&mut self) {
        let (tool, arguments) = match self.rng.u8(..10) {
            0..5 => {
                let id = self.rng.u32(1..50);
                ("query_database", json!({"query": "select id, text from social.tweet where id = $1", "params": [id]}))
            }
            5..7 => ("query_database", json!({"query": "select n, repeat('x', 100) from generate_series(1, 400) n"})),
            7 => ("explain_query", json!({"query": "select count(*) from social.tweet"})),
            8 => ("get_recent_mutations", json!({"limit": 20})),
            _ => ("describe_database", json!({"table": "social.tweet"})),
        };
        self.until_answered(tool, &arguments).await;
        self.note("reads");
    }

    /// Writes a unique text: once, with a key or without, twice at once, or abandoned and sent again.
    async fn post(&mut self, count: usize) -> i64 {
        let text = format!("load-{}-{count}", self.number);
        let keyed = self.rng.bool();
        let call = if keyed { json!({"text": text, "idempotency_key": text}) } else { json!({"text": text}) };
        match self.rng.u8(..6) {
            0 => self.give_up("post_tweet", &call).await,
            1 => self.at_once("post_tweet", &call).await,
            2 => drop(self.until_answered("post_tweet", &call).await),
            _ => {}
        }
        let envelope = self.until_answered("post_tweet", &call).await;
        let data = &envelope["data"];
        let (data, receipt) = match &data["original_correlation_id"] {
            Value::Null => (data, &envelope["meta"]["correlation_id"]),
            original => (&data["cached_result"], original),
        };
        let receipt = receipt.as_str().unwrap_or_else(|| panic!("{envelope}")).to_owned();
        self.journal().tweets.insert(text, receipt);
        self.note("writes");
        data["id"].as_i64().unwrap_or_else(|| panic!("{envelope}"))
    }

    async fn like(&mut self, tweet: i64) {
        self.until_answered("like_tweet", &json!({"tweet_id": tweet})).await;
        self.journal().likes.insert(tweet);
        self.note("writes");
    }

    /// Sends a call and goes away in the middle.
    async fn give_up(&mut self, tool: &str, arguments: &Value) {
        let Way::Streamable(visitor) = &self.way else { return };
        let moment = Duration::from_millis(self.rng.u64(0..8));
        self.id += 1;
        // Whatever became of it, it is called again.
        let _abandoned = tokio::time::timeout(moment, visitor.try_call(self.id, tool, arguments)).await;
        self.note("given up");
    }

    /// The same call twice at the same time: what the second one is told counts, as does that of the call that follows.
    async fn at_once(&mut self, tool: &str, arguments: &Value) {
        let Way::Streamable(visitor) = &self.way else { return };
        let ids = [self.id + 1, self.id + 2];
        self.id += 2;
        let answers = ids.map(|id| visitor.try_call(id, tool, arguments));
        for answer in futures_util::future::join_all(answers).await {
            let told = answer.map_err(|error| error.to_string()).and_then(|answer| self.told(answer));
            if let Err(surprise) = told {
                self.journal().surprises.push(surprise);
            }
        }
    }

    /// Calls until it is answered, and waits as it is told to; the envelope.
    async fn until_answered(&mut self, tool: &str, arguments: &Value) -> Value {
        let end = Instant::now() + TIMEOUT;
        while Instant::now() < end {
            self.id += 1;
            let begun = Instant::now();
            match self.call(tool, arguments).await {
                Ok(CallResult::Envelope(envelope)) => {
                    self.journal().took.push(begun.elapsed());
                    return envelope;
                }
                Ok(CallResult::Wait(time)) => tokio::time::sleep(time).await,
                Err(surprise) => {
                    self.journal().surprises.push(format!("client {}: {tool} {arguments}: {surprise}", self.number));
                }
            }
        }
        panic!("client {} was never answered: {tool} {arguments}", self.number);
    }

    async fn call(&mut self, tool: &str, arguments: &Value) -> Result<CallResult, String> {
        match &mut self.way {
            Way::Streamable(visitor) => {
                let answer = visitor.try_call(self.id, tool, arguments).await.map_err(|error| format!("{error:?}"))?;
                self.told(answer)
            }
            Way::Sse(session) => {
                let call = json!({"name": tool, "arguments": arguments});
                match session.try_request(self.id, "tools/call", call).await {
                    Ok(message) => self.envelope(&message),
                    Err(answer) => self.told(answer),
                }
            }
        }
    }

    fn told(&self, answer: HttpAnswer) -> Result<CallResult, String> {
        if answer.status == StatusCode::OK {
            return self.envelope(&answer.message());
        }
        let said = answer.message()["error"]["message"].as_str().unwrap_or_default().to_owned();
        let seconds: Option<u64> = answer.header("retry-after").and_then(|seconds| seconds.parse().ok());
        let limit = match (answer.status, seconds) {
            (StatusCode::TOO_MANY_REQUESTS, Some(_)) if said.contains("requests than") => "limit: rate",
            (StatusCode::TOO_MANY_REQUESTS, Some(_)) if said.contains("under way would be too much") => "limit: weight",
            _ => return Err(format!("{}: {}", answer.status, answer.body)),
        };
        self.note(limit);
        Ok(CallResult::Wait(Duration::from_secs(seconds.unwrap_or(1))))
    }

    fn envelope(&self, message: &Value) -> Result<CallResult, String> {
        let envelope = &message["result"]["structuredContent"];
        if envelope["success"] == true {
            self.note(if envelope["data"]["duplicate"] == true { "duplicates" } else { "successes" });
            return Ok(CallResult::Envelope(envelope.clone()));
        }
        let error = &envelope["error"];
        // Every connection to PostgreSQL was busy for as long as the call could wait.
        if error["code"] == "database_unavailable" && error["message"].as_str().is_some_and(|it| it.contains("busy")) {
            self.note("limit: connections");
            return Ok(CallResult::Wait(Duration::from_millis(100)));
        }
        Err(message.to_string())
    }
}
