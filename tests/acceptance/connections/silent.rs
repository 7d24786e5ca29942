//! A network that drops the packets of open connections silently, while a server answers new ones.
//! The first read detects it; idle sessions do not detect it again one by one.

use pg::{ConnectOptions, ReadLimits};
use serde_json::Value;
use testkit::Proxy;
use tokio::time::Instant;

use super::*;
use crate::metrics::World;

/// Longer than any answer takes here, and shorter than the deadlines.
const QUICK: Duration = Duration::from_secs(15);

/// What it takes to write and read through a proxy, with this many sessions that are open.
async fn warm(db: &Database, sessions: usize, deadline: Duration, probe_after: Duration) -> (Proxy, World) {
    let proxy = Proxy::before(db);
    let mut target = ConnectOptions::parse(&proxy.url().replace("user=postgres", "user=countersign_writer")).unwrap();
    target.keepalive.probe_after = probe_after;
    target.keepalive.probe_timeout = Duration::from_millis(300);
    let world = World::over(target, ReadLimits { sessions, deadline, ..ReadLimits::default() }).await;
    let lock = barrier(db).await;
    let release = async {
        db.first_value(&format!("select 1 where ({HAVE_COME}) = {sessions}")).await;
        lock.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
    };
    let (answers, ()) = tokio::join!(join_all((0..sessions).map(|_| read(&world, WAITING))), release);
    assert!(answers.iter().all(|answer| answer["error"].is_null()), "{answers:?}");
    // A session whose reset is not answered is not used again.
    proxy.until_answered().await;
    (proxy, world)
}

async fn read(world: &World, sql: &str) -> Value {
    world.call("query_database", json!({"query": sql})).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sessions_detect_a_lost_peer_at_once_and_the_read_is_repeated() {
    // H1
    let db = database().await;
    let (proxy, world) = warm(&db, 6, Duration::from_secs(30), Duration::ZERO).await;
    proxy.swallow();
    for number in 0..5 {
        let began = Instant::now();
        let answer = read(&world, "select 1 as n").await;
        assert_eq!(answer["data"]["rows"], json!([{"n": 1}]), "H1, call {number}: {answer}");
        assert!(began.elapsed() < QUICK, "H1, call {number}: {:?}", began.elapsed());
    }
    // A probe is answered before the statement is done: silence is no proof without one.
    assert_eq!(read(&world, "select pg_sleep(0.5), 1 as n").await["data"]["rows"][0]["n"], 1, "H1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_intent_goes_to_a_peer_that_is_gone_is_done_once_and_soon() {
    // H1
    let db = database().await;
    let (proxy, world) = warm(&db, 1, Duration::from_secs(30), Duration::ZERO).await;
    let post = async |text: &str| {
        let began = Instant::now();
        let answer = world.call("post_tweet", json!({"text": text})).await.unwrap();
        assert!(answer["error"].is_null(), "H1: {answer}");
        assert!(began.elapsed() < QUICK, "H1: {:?}", began.elapsed());
    };
    post("before").await;
    proxy.swallow();
    post("after").await;
    post("later").await;
    let posted =
        "select text, count(*) from social.tweet where text in ('before', 'after', 'later') group by 1 order by 1";
    assert_eq!(db.rows(posted).await, [["after", "1"], ["before", "1"], ["later", "1"]], "H1");
    let records = "select status, count(*) from countersign.mutation group by 1";
    assert_eq!(db.rows(records).await, [["success", "3"]], "H1");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_call_without_a_response_the_idle_sessions_are_not_trusted() {
    // H1
    let db = database().await;
    let never = Duration::from_secs(3600);
    let (proxy, world) = warm(&db, 6, Duration::from_secs(5), never).await;
    proxy.swallow();
    assert_eq!(read(&world, "select 1 as n").await["error"]["code"], "timeout", "H1");
    for number in 1..5 {
        let answer = read(&world, "select 1 as n").await;
        assert_eq!(answer["data"]["rows"], json!([{"n": 1}]), "H1, call {number}: {answer}");
    }
}
