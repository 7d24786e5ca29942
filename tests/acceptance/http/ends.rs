//! Outcomes of calls whose client disconnects or whose server stops.

use nix::sys::signal::Signal;
use reqwest::RequestBuilder;
use serde_json::json;
use testkit::social::untouched_tweet;
use testkit::{Database, HttpServer, database, send_signal};
use tokio::task::JoinHandle;

use super::HANDSHAKE;

const SLEEPING: &str = "from pg_stat_activity where usename = 'countersign_reader' and datname = current_database() \
                        and state = 'active' and query like '%pg_sleep%'";

const WAITING: &str = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database() \
                       and usename = 'countersign_writer'";

/// Sends a request and reads its whole answer, beside the test.
fn whole(request: RequestBuilder) -> JoinHandle<reqwest::Result<String>> {
    tokio::spawn(async move { request.send().await?.text().await })
}

async fn until_nobody_sleeps(db: &Database) {
    db.first_value(&format!("select 1 where not exists (select {SLEEPING})")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_ends_with_its_client_in_every_era() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    for client in [server.session(HANDSHAKE).await, server.http_client()] {
        let call = client.calling(1, "query_database", &json!({"query": "select pg_sleep(60)"}));
        let calling = whole(call);
        db.first_value(&format!("select 1 {SLEEPING}")).await;
        let gone = tokio::time::Instant::now();
        calling.abort();
        until_nobody_sleeps(&db).await;
        let took = gone.elapsed();
        assert!(took < std::time::Duration::from_secs(5), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_continues_without_its_client_and_its_repetition_changes_nothing() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    for client in [server.session(HANDSHAKE).await, server.http_client()] {
        let tweet = untouched_tweet(&db).await;
        let lock = db.lock("social.tweet_like").await;
        let calling = whole(client.calling(41, "like_tweet", &json!({"tweet_id": tweet})));
        db.first_value(WAITING).await;
        calling.abort();
        assert!(calling.await.unwrap_err().is_cancelled());
        lock.release().await;
        let again = client.call("like_tweet", json!({"tweet_id": tweet})).await;
        assert_eq!(again["success"], true, "{again}");
        assert_eq!(db.value("select string_agg(distinct status, ' ') from countersign.mutation").await, "success");
        assert_eq!(db.value(&format!("select count(*) from social.tweet_like where tweet_id = {tweet}")).await, "1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_answers_its_writes_first_and_leaves_nothing_pending() {
    for is_stateful in [true, false] {
        let db = database().await;
        let mut server = HttpServer::on(&db).await;
        let client = if is_stateful { server.session(HANDSHAKE).await } else { server.http_client() };
        let tweet = untouched_tweet(&db).await;
        let lock = db.lock("social.tweet_like").await;
        let calling = whole(client.calling(1, "like_tweet", &json!({"tweet_id": tweet})));
        db.first_value(WAITING).await;
        // An open stream must not delay the stop of the server.
        let stream = client.request(reqwest::Method::GET, "/sse").send().await.unwrap();
        send_signal(server.pid(), Signal::SIGTERM);
        server.logged("stopping: ").await;
        lock.release().await;
        let answer = calling.await.unwrap().expect("an answer");
        assert!(answer.contains(r#""liked":true"#), "{answer}");
        assert!(server.ended().await.success());
        assert_eq!(db.value("select string_agg(status, ' ') from countersign.mutation").await, "success");
        drop(stream);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_have_a_moment_to_end_when_the_server_stops_and_then_they_are_cut_off() {
    let db = database().await;
    let mut server = HttpServer::on(&db).await;
    let client = server.session(HANDSHAKE).await;
    let long = whole(client.calling(1, "query_database", &json!({"query": "select pg_sleep(600)"})));
    let short = json!({"query": "select pg_sleep(1), 'in time' as said"});
    let short = whole(client.calling(2, "query_database", &short));
    db.first_value(&format!("select 1 where (select count(*) {SLEEPING}) = 2")).await;
    send_signal(server.pid(), Signal::SIGTERM);
    assert!(short.await.unwrap().unwrap().contains("in time"));
    let cut = long.await.unwrap().unwrap();
    assert!(
        cut.contains("-32000") && cut.contains("the server is stopping") && cut.contains("send the same call again"),
        "{cut}"
    );
    assert!(server.ended().await.success());
    until_nobody_sleeps(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_server_at_once_and_the_next_one_ends_its_writes() {
    let db = database().await;
    let mut server = HttpServer::on(&db).await;
    let client = server.http_client();
    let tweet = untouched_tweet(&db).await;
    let lock = db.lock("social.tweet_like").await;
    let calling = whole(client.calling(1, "like_tweet", &json!({"tweet_id": tweet})));
    db.first_value("select 1 from countersign.mutation where status = 'pending'").await;
    send_signal(server.pid(), Signal::SIGTERM);
    server.logged("stopping: ").await;
    send_signal(server.pid(), Signal::SIGTERM);
    assert_eq!(server.ended().await.code(), Some(128 + 15));
    assert!(calling.await.unwrap().is_err(), "nobody answers any more");
    lock.release().await;
    // Every server sweeps abandoned work each minute.
    db.first_value("select countersign.sweep(interval '0', 1000)").await;
    let next = HttpServer::on(&db).await;
    let again = next.http_client().call("like_tweet", json!({"tweet_id": tweet})).await;
    assert_eq!(again["success"], true, "{again}");
    let likes = format!("select count(*) from social.tweet_like where tweet_id = {tweet}");
    assert_eq!(db.value(&likes).await, "1");
}
