//! Load on one server: 200 clients of every transport at once, and thousands of abandoned sessions.
//!
//! `COUNTERSIGN_LOAD_SECONDS` and `COUNTERSIGN_LOAD_IDLE_SECONDS` make them longer. Both print their figures.

mod abandoned;
mod clients;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use testkit::{Database, HttpServer, ProcessMemory, lone_database, long_form, say};
use tokio::task::JoinSet;
use tokio::time::Instant;

use clients::{Client, Journal};

const CLIENTS: usize = 200;

/// What a release build answers more than of, and a debug build less.
const REQUESTS_PER_S: u32 = 500;

/// What allocation may leave behind in a process whose memory is flat.
const FLAT_KIB: u64 = 6 << 10;

/// Every answer is one, or a limit that has a name; memory does not grow; and each acknowledged write is there once.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_clients_get_a_response_or_a_limit_and_every_write_is_accounted_for() {
    let db = lone_database().await;
    let mut command = HttpServer::command(&db);
    command.args(["--http-requests-per-s", &REQUESTS_PER_S.to_string(), "--http-burst", "500"]);
    // A line for each refused request is the reader's business, not the load's.
    command.env("COUNTERSIGN_LOG", "warn,countersign=info");
    let server = HttpServer::start(command).await;
    let journal = Arc::<Mutex<Journal>>::default();
    let opened = (0..CLIENTS).map(|number| Client::open(&server, number, Arc::clone(&journal)));
    let mut clients = futures_util::future::join_all(opened).await;
    // Memory is flat once each client has been answered, however long that takes on this machine.
    futures_util::future::join_all(clients.iter_mut().map(Client::warm_up)).await;

    let length = Duration::from_secs(long_form::variable_or("COUNTERSIGN_LOAD_SECONDS", 2, 10));
    let begun = Instant::now();
    let watching = tokio::spawn(watch(ProcessMemory::of(server.pid()), begun, length));
    let mut working = JoinSet::new();
    for client in clients {
        working.spawn(client.work(begun + length));
    }
    working.join_all().await;
    let took = begun.elapsed();
    let memory = Course::of(&watching.await.unwrap(), length);
    let journal = Arc::into_inner(journal).unwrap().into_inner().unwrap();
    say(&format!("load: {CLIENTS} clients, {:.1} s: {journal}; {memory}", took.as_secs_f64()));

    assert!(journal.surprises.is_empty(), "{:#?}", &journal.surprises[..journal.surprises.len().min(20)]);
    accounted_for(&db, &journal).await;
    assert!(memory.last_kib <= memory.first_kib + FLAT_KIB, "{memory}");
}

/// One row and one success record for each acknowledged write, and for no other; nothing pending, nothing failed.
async fn accounted_for(db: &Database, journal: &Journal) {
    let texts = "select text, count(*) from social.tweet where text like 'load-%' group by text order by text";
    let rows = db.rows(texts).await;
    let doubled: Vec<_> = rows.iter().filter(|row| row[1] != "1").collect();
    assert!(doubled.is_empty(), "written more than once: {doubled:?}");
    let there: BTreeSet<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let told: BTreeSet<&str> = journal.tweets.keys().map(String::as_str).collect();
    assert_eq!(there, told, "the table, and what clients were told");

    let records = "select correlation_id, status, tool_name, result->>'text' from countersign.mutation \
                   where status not in ('success', 'duplicate') or tool_name not in ('post_tweet', 'like_tweet')";
    assert_eq!(db.rows(records).await, Vec::<Vec<String>>::new(), "pending, failed or nobody's");
    let successes = "select correlation_id, result->>'text' from countersign.mutation \
                     where status = 'success' and tool_name = 'post_tweet' order by 2";
    let successes = db.rows(successes).await;
    let receipts: Vec<Vec<String>> =
        journal.tweets.iter().map(|(text, receipt)| vec![receipt.clone(), text.clone()]).collect();
    let (mut successes, mut receipts) = (successes, receipts);
    successes.sort_unstable();
    receipts.sort_unstable();
    assert_eq!(successes, receipts, "the success records, and the receipts that clients have");

    let likes =
        "select tweet_id from social.tweet_like join social.tweet on tweet.id = tweet_id where text like 'load-%'";
    let liked: BTreeSet<String> = db.rows(likes).await.into_iter().map(|mut row| row.remove(0)).collect();
    let told: BTreeSet<String> = journal.likes.iter().map(ToString::to_string).collect();
    assert_eq!(liked, told);
    let likes = "select count(*) from countersign.mutation where status = 'success' and tool_name = 'like_tweet'";
    assert_eq!(db.value(likes).await, told.len().to_string());
}

/// Memory above idle, and when.
type Sample = (Duration, u64);

async fn watch(memory: ProcessMemory, begun: Instant, length: Duration) -> Vec<Sample> {
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let mut samples = Vec::new();
    while begun.elapsed() < length {
        ticks.tick().await;
        samples.push((begun.elapsed(), memory.above_idle_kib()));
    }
    samples
}

/// How much memory a server took above what it had when idle, in KiB: its peaks while it warmed up, and in the first and the last
/// third of the time after.
struct Course {
    warming_kib: u64,
    first_kib: u64,
    last_kib: u64,
}

impl Course {
    /// It warms up for ten seconds, or for a third of a short run.
    fn of(samples: &[Sample], length: Duration) -> Self {
        let warm = Duration::from_secs(10).min(length / 3);
        let third = (length - warm) / 3;
        let peak = |from: Duration, to: Duration| {
            let within = samples.iter().filter(|(at, _)| (from..to).contains(at));
            within.map(|(_, kib)| *kib).max().expect("samples")
        };
        Self {
            warming_kib: peak(Duration::ZERO, warm),
            first_kib: peak(warm, warm + third),
            last_kib: peak(length - third, length + third),
        }
    }
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { warming_kib, first_kib, last_kib } = self;
        write!(
            f,
            "KiB above idle: {warming_kib} warming up, {first_kib} in the first third after, {last_kib} in the last"
        )
    }
}
