//! Several servers over one database, behind a proxy that sends each request to another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Database, HaProxy, HttpServer, Visitor, database};

use super::HANDSHAKE;

const SERVERS: usize = 3;

async fn servers(db: &Database) -> Vec<HttpServer> {
    let one = || async {
        let mut command = HttpServer::command(db);
        command.args(["--http-requests-per-s", "0"]);
        HttpServer::start(command).await
    };
    futures_util::future::join_all((0..SERVERS).map(|_| one())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_session_works_through_every_server_and_a_repeated_call_has_one_effect() {
    let db = database().await;
    let servers = servers(&db).await;
    let proxy = HaProxy::before(&servers).await;
    for client in [proxy.visitor().open(HANDSHAKE, json!({})).await, proxy.visitor()] {
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
async fn write(client: Visitor, name: usize, written: Arc<AtomicU32>, enough: u32) -> Vec<(String, String)> {
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
async fn sweep(db: Database) {
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    loop {
        ticks.tick().await;
        db.run("select countersign.sweep(interval '0.3 s', 1000)").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_in_the_middle_of_writes_loses_none_and_doubles_none() {
    let db = database().await;
    let mut servers = servers(&db).await;
    let proxy = HaProxy::before(&servers).await;
    let written = Arc::new(AtomicU32::new(0));
    let sweeping = tokio::spawn(sweep(db.clone()));
    let mut writers = Vec::new();
    for name in 0..8 {
        // Half of them have sessions, which move.
        let client = if name % 2 == 0 { proxy.visitor() } else { proxy.visitor().open(HANDSHAKE, json!({})).await };
        writers.push(tokio::spawn(write(client, name, Arc::clone(&written), 400)));
    }
    for (number, server) in servers.iter_mut().take(2).enumerate() {
        let after = 100 * (u32::try_from(number).unwrap() + 1);
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        while written.load(Ordering::Relaxed) < after {
            ticks.tick().await;
        }
        server.kill().await;
    }
    let mut receipts = Vec::new();
    for writer in writers {
        receipts.extend(writer.await.unwrap());
    }
    sweeping.abort();
    assert!(receipts.len() >= 400);
    let tweets = "select text, count(*) from social.tweet where text ~ '^[0-7]-' group by text";
    let tweets = db.rows(tweets).await;
    assert!(tweets.iter().all(|row| row[1] == "1"), "{tweets:?}");
    assert_eq!(tweets.len(), receipts.len());
    for (text, receipt) in receipts {
        let record = format!(
            "select status, result->>'text' from countersign.mutation_audit where correlation_id = '{receipt}'"
        );
        assert_eq!(db.rows(&record).await, [["success".to_owned(), text]], "{receipt}");
    }
    let successes = "select count(*) from countersign.mutation_audit where status = 'success'";
    assert_eq!(db.value(successes).await, tweets.len().to_string());
}
