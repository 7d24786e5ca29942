//! Several servers over one database, behind a proxy that sends each request to another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Database, External, HaProxy, HttpClient, HttpServer, PgBouncer, database, long_form, skip_without};
use tokio::process::Command;
use tokio::task::{JoinHandle, JoinSet};

use super::HANDSHAKE;

const SERVERS: usize = 3;

async fn servers(db: &Database) -> Vec<HttpServer> {
    servers_with(db, |_| {}).await
}

async fn servers_with(db: &Database, settings: impl Fn(&mut Command)) -> Vec<HttpServer> {
    let one = || async {
        let mut command = HttpServer::command(db);
        command.args(["--http-requests-per-s", "0"]);
        settings(&mut command);
        HttpServer::start(command).await
    };
    futures_util::future::join_all((0..SERVERS).map(|_| one())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_session_works_through_every_server_and_a_repeated_call_has_one_effect() {
    if skip_without(&[External::HaProxy]) {
        return;
    }
    let db = database().await;
    let servers = servers(&db).await;
    let proxy = HaProxy::before(&servers).await;
    for client in [proxy.http_client().open(HANDSHAKE, json!({})).await, proxy.http_client()] {
        let text = json!({"text": format!("once, {}", client.has_session())});
        let calls = (0..12).map(|id| client.try_call(id, "post_tweet", &text));
        let answers = futures_util::future::join_all(calls).await;
        let receipts: Vec<Value> = answers
            .into_iter()
            .map(|answer| {
                let message = answer.unwrap().message();
                let envelope = &message["result"]["structuredContent"];
                assert_eq!(envelope["success"], true, "{message}");
                match &envelope["data"]["original_correlation_id"] {
                    Value::Null => envelope["meta"]["correlation_id"].clone(),
                    original => original.clone(),
                }
            })
            .collect();
        assert!(receipts.iter().all(|receipt| *receipt == receipts[0]), "{receipts:?}");
    }
    assert_eq!(db.value("select count(*) from social.tweet where text like 'once, %'").await, "2");
}

/// Writes one tweet after the other, each until it is acknowledged; the receipts by text.
pub(super) async fn write(
    client: HttpClient,
    name: usize,
    written: Arc<AtomicU32>,
    enough: u32,
) -> Vec<(String, String)> {
    let mut receipts = Vec::new();
    let mut id = 0;
    while written.load(Ordering::Relaxed) < enough {
        let text = format!("{name}-{}", receipts.len());
        let call = json!({"text": text, "idempotency_key": text});
        let receipt = loop {
            id += 1;
            // Lost on its way, or on its way to a server that is not there any more: the very same call again.
            let Ok(answer) = client.try_call(id, "post_tweet", &call).await else { continue };
            if answer.status.is_server_error() {
                continue;
            }
            let message = answer.message();
            let envelope = &message["result"]["structuredContent"];
            if envelope["success"] == true {
                let original = &envelope["data"]["original_correlation_id"];
                let receipt = if original.is_null() { &envelope["meta"]["correlation_id"] } else { original };
                break receipt.as_str().unwrap().to_owned();
            }
            assert_eq!(envelope["error"]["retryable"], true, "{message}");
        };
        written.fetch_add(1, Ordering::Relaxed);
        receipts.push((text, receipt));
    }
    receipts
}

/// Ends what a killed server has left pending. The servers do so each minute; this often, it also meets writes that are under
/// way, and has to fence them.
pub(super) async fn sweep(db: Database) {
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    loop {
        ticks.tick().await;
        db.run("select countersign.sweep(interval '0.3 s', 1000)").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_in_the_middle_of_writes_loses_none_and_doubles_none() {
    if skip_without(&[External::HaProxy]) {
        return;
    }
    let db = database().await;
    let mut servers = servers(&db).await;
    let proxy = HaProxy::before(&servers).await;
    let writing = Writing::through(&db, &proxy).await;
    for (number, server) in servers.iter_mut().take(2).enumerate() {
        writing.until(u32::try_from(number).unwrap() + 1).await;
        server.kill().await;
    }
    writing.accounted_for(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_holds_with_a_pooler_that_is_killed_as_well() {
    if skip_without(&[External::HaProxy, External::PgBouncer]) {
        return;
    }
    let db = database().await;
    let pooler = PgBouncer::start(&db).await;
    let behind = |command: &mut Command| {
        command.env("DATABASE_URL", pooler.url()).env("COUNTERSIGN_POOLER", "transaction");
    };
    let mut servers = servers_with(&db, behind).await;
    let proxy = HaProxy::before(&servers).await;
    let writing = Writing::through(&db, &proxy).await;
    writing.until(1).await;
    servers[0].kill().await;
    writing.until(2).await;
    pooler.crash().await;
    writing.until(3).await;
    writing.accounted_for(&db).await;
}

/// How many tweets are written in one of four parts.
fn part() -> u32 {
    long_form::choose(30, 100)
}

/// Eight clients that write four parts together, half of them with sessions, which move; what is left pending is swept.
struct Writing {
    written: Arc<AtomicU32>,
    writers: JoinSet<Vec<(String, String)>>,
    sweeping: JoinHandle<()>,
}

impl Writing {
    async fn through(db: &Database, proxy: &HaProxy) -> Self {
        let written = Arc::new(AtomicU32::new(0));
        let sweeping = tokio::spawn(sweep(db.clone()));
        let mut writers = JoinSet::new();
        for name in 0..8 {
            let client =
                if name % 2 == 0 { proxy.http_client() } else { proxy.http_client().open(HANDSHAKE, json!({})).await };
            writers.spawn(write(client, name, Arc::clone(&written), 4 * part()));
        }
        Self { written, writers, sweeping }
    }

    /// Waits until so many parts are acknowledged.
    async fn until(&self, parts: u32) {
        until_written(&self.written, parts * part()).await;
    }

    /// Each text once, each receipt that of a success record, and no other success.
    async fn accounted_for(self, db: &Database) {
        let receipts: Vec<_> = self.writers.join_all().await.into_iter().flatten().collect();
        self.sweeping.abort();
        assert!(receipts.len() >= 4 * part() as usize);
        are_accounted_for(db, receipts).await;
    }
}

/// Waits until so many writes are acknowledged.
pub(super) async fn until_written(written: &AtomicU32, enough: u32) {
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    while written.load(Ordering::Relaxed) < enough {
        ticks.tick().await;
    }
}

/// Each text once, each receipt that of a success record, and no other success.
pub(super) async fn are_accounted_for(db: &Database, receipts: Vec<(String, String)>) {
    let tweets = "select text, count(*) from social.tweet where text ~ '^[0-9]+-' group by text";
    let tweets = db.rows(tweets).await;
    assert!(tweets.iter().all(|row| row[1] == "1"), "{tweets:?}");
    assert_eq!(tweets.len(), receipts.len());
    for (text, receipt) in receipts {
        let record =
            format!("select status, result->>'text' from countersign.mutation where correlation_id = '{receipt}'");
        assert_eq!(db.rows(&record).await, [["success".to_owned(), text]], "{receipt}");
    }
    let successes = "select count(*) from countersign.mutation where status = 'success'";
    assert_eq!(db.value(successes).await, tweets.len().to_string());
}
