//! A cancel after the end of its query must hit nothing: 200 tries around the end of the query, and 1,000 in
//! the long form.

use super::*;

const SERVERS: u64 = 4;

/// When the first cancel comes, in microseconds: what the cancelled query takes at least.
const FIRST_DELAY_US: u64 = 3000;

async fn race(db: Database, first: u64, tries: u64) -> (u64, u64) {
    let mut command = quick(&db);
    // One session: if it were used again after a cancel, the next query would be on it.
    command.args(["--read-sessions", "1"]);
    let mut session = Session::start(command, HANDSHAKE).await;
    let (mut answered, mut cancelled) = (0, 0);
    // An answer that was on its way when its cancel came may be overtaken by the next one.
    let mut overtaken = None;
    // Later after a cancel that came before the answer, and earlier after one that came behind it. So it stays around
    // the end of the query, however busy the machine is.
    let mut delay_us = FIRST_DELAY_US;
    for number in (first..tries).step_by(SERVERS as usize) {
        let victim = session.query("select pg_sleep(0.003)").await;
        sleep_us(delay_us).await;
        session.cancel(victim).await;
        let next = session.query("select 1 as n from pg_sleep(0.003)").await;
        let mut answer = session.server.receive().await;
        if overtaken.take().is_some_and(|id| answer["id"] == id) {
            (answered, cancelled) = (answered + 1, cancelled - 1);
            answer = session.server.receive().await;
        }
        if answer["id"] == victim {
            answered += 1;
            delay_us -= delay_us / 10;
            answer = session.server.receive().await;
        } else {
            cancelled += 1;
            delay_us += delay_us / 10;
            overtaken = Some(victim);
        }
        assert_eq!(answer["id"], next, "try {number}: {answer}");
        let rows = &answer["result"]["structuredContent"]["data"]["rows"];
        assert_eq!(*rows, json!([{"n": 1}]), "try {number}, {delay_us} us after the query was sent: {answer}");
    }
    assert!(session.server.close().await);
    (answered, cancelled)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_cancel_never_hits_the_next_query() {
    let db = database().await;
    let tries = long_form::choose(200, 1000);
    let started = Instant::now();
    let races: Vec<_> = (0..SERVERS).map(|first| tokio::spawn(race(db.clone(), first, tries))).collect();
    let (mut answered, mut cancelled) = (0, 0);
    for race in races {
        let (late, early) = race.await.unwrap();
        answered += late;
        cancelled += early;
    }
    println!("{tries} late cancels: {cancelled} before the answer, {answered} after it, {:?}", started.elapsed());
    assert!(answered > tries / 10 && cancelled > tries / 10, "the race was none: {answered} answered, {cancelled} not");
}
