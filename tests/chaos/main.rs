//! Exactly once, through everything: agents write through three servers while servers, backends and PostgreSQL are
//! killed and connections are cut and frozen on both sides of COMMIT.
//!
//! An agent repeats what got lost on another server until it is acknowledged. Everything that agents and people ask for
//! and are told, the faults, and in the end the tables, the ledger and its log are written to a file, the history
//! (`target/chaos`). The checker, a program of its own (`tests/chaos-checker`), judges it. The controls show that it can
//! see: the same run, with the outcome written in a transaction of its own, and plans that undo other rows.
//!
//! A person takes back by plans what agents write into tables of their own, and is interrupted in all ways meanwhile
//! (`operator`). Another one decides on proposals, and stops writes for a moment (`reviewer`).
//!
//! Further runs have PgBouncer in transaction mode between the servers and PostgreSQL, or only one server, or Patroni with three nodes
//! (in the long form: `failovers`).
//!
//! Each run plays every fault and every way to run a plan once, and in its long form goes on for some seconds. `COUNTERSIGN_CHAOS_SECONDS` makes it longer,
//! `COUNTERSIGN_CHAOS_SEED` plays the same faults again.

mod command;
mod control;
mod failovers;
mod faults;
mod fleet;
mod history;
mod load;
mod operator;
mod reviewer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chaos_checker::{Promise, Request};

use testkit::{Database, External, external, lone_database, long_form, say, skip_without, skip_without_patroni};

use command::Person;
use fleet::Fleet;
use history::{HistoryFile, Judgement};
use load::Load;
use operator::Operator;
use reviewer::Reviewer;
use tokio::sync::Semaphore;

/// How many servers there are, but for the run with one.
const SERVERS: usize = 3;

/// What is pending for longer is swept. The server itself waits for a minute; this short, the sweep also meets records
/// whose server is alive, and has to fence them.
const OLD_ENOUGH: Duration = Duration::from_millis(300);

/// How often a sweep comes. On a loaded machine a write takes longer than [`OLD_ENOUGH`], and has this time to end.
const SWEEP_EVERY: Duration = Duration::from_secs(3);

/// Runs at the same time: each keeps one processor busy.
static TURNS: Semaphore = Semaphore::const_new(2);

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_happen_once_through_kills_crashes_and_cuts() {
    let _turn = TURNS.acquire().await;
    let db = lone_database().await;
    run("chaos", &db, Fleet::start(&db, SERVERS).await, at_least()).await.is_whole();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_holds_with_one_server() {
    let _turn = TURNS.acquire().await;
    let db = lone_database().await;
    run("chaos with one server", &db, Fleet::start(&db, 1).await, at_least()).await.is_whole();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_holds_behind_a_pooler_that_is_killed_as_well() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let _turn = TURNS.acquire().await;
    let db = lone_database().await;
    run("chaos behind PgBouncer", &db, Fleet::start_pooled(&db, SERVERS).await, at_least()).await.is_whole();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_holds_through_every_failover_of_patroni() {
    if long_form::is_left_out() || skip_without_patroni() {
        return;
    }
    let _turns = TURNS.acquire_many(2).await;
    failovers::run("chaos with Patroni", at_least()).await.is_whole();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_run_with_the_outcome_in_a_second_transaction_is_caught() {
    let _turn = TURNS.acquire().await;
    let db = lone_database().await;
    if let Err(reason) = control::write_outcomes_in_a_second_transaction(&db).await {
        return external::skip(&format!("PostgreSQL has no extension dblink: {reason}"));
    }
    // The first cut alone makes a success record without its row.
    let judgement = run_with("control", &db, Fleet::start(&db, SERVERS).await, Duration::ZERO, false).await;
    assert!(judgement.breaks(Promise::Log), "{}", judgement.report);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_undoes_other_rows_than_it_marks_is_caught() {
    let _turn = TURNS.acquire().await;
    let db = lone_database().await;
    let fleet = Fleet::start(&db, 1).await;
    control::mark_one_write_more(&db).await;
    let judgement = run_without_faults("control that marks one write more", &db, fleet).await;
    assert!(judgement.breaks(Promise::Undo), "{}", judgement.report);

    let db = lone_database().await;
    let fleet = Fleet::start(&db, 1).await;
    control::leave_a_row_out(&db).await;
    let judgement = run_without_faults("control that leaves a row out", &db, fleet).await;
    assert!(judgement.breaks(Promise::Undo), "{}", judgement.report);
}

#[tokio::test]
async fn without_a_pooler_its_run_is_skipped() {
    let run = testkit::run_without_externals(&["the_same_holds_behind_a_pooler"], false).await;
    assert!(run.success && run.passed == 1 && run.skipped.len() == 1, "{run:?}");
}

/// For how long faults follow each other once every fault has been played.
fn at_least() -> Duration {
    Duration::from_secs(long_form::variable_or("COUNTERSIGN_CHAOS_SECONDS", 0, 8))
}

async fn run(name: &str, db: &Database, fleet: Fleet, at_least: Duration) -> Judgement {
    run_with(name, db, fleet, at_least, true).await
}

/// The same, perhaps without a reviewer: where no record says that its proposal is carried out, there is none to wait
/// for.
async fn run_with(name: &str, db: &Database, fleet: Fleet, at_least: Duration, has_reviewer: bool) -> Judgement {
    let (seed, mut rng) = seeded(name);
    let history = Arc::new(HistoryFile::start(name, seed, db, fleet.len(), at_least).await);
    let fleet = Arc::new(fleet);
    let load = start_load(db, &fleet, &history, &mut rng).await;
    faults::cut_before_a_success(&fleet, &history).await;
    let operator = Operator::start(db, &history, &mut rng);
    let reviewer = Reviewer::new(&fleet.proxy().url(), &fleet, &history, &mut rng);
    let sweeping = tokio::spawn(keep_swept(db.clone()));
    let stopping = AtomicBool::default();
    let disturbing = async {
        faults::play(db, &fleet, &history, &mut rng, at_least).await;
        // While the agents still write what its plans are about.
        let played = operator.finish().await;
        stopping.store(true, Ordering::Relaxed);
        played
    };
    let reviewing = async {
        if has_reviewer {
            reviewer.work(&stopping).await;
        }
    };
    let ((), played) = tokio::join!(reviewing, disturbing);
    load.finish().await;
    sweeping.abort();
    say(&format!("{name}: plans {played:?}"));
    end(db, fleet, &history).await
}

/// A run in which only the operator is interrupted.
async fn run_without_faults(name: &str, db: &Database, fleet: Fleet) -> Judgement {
    let (seed, mut rng) = seeded(name);
    let history = Arc::new(HistoryFile::start(name, seed, db, fleet.len(), Duration::ZERO).await);
    let fleet = Arc::new(fleet);
    let load = start_load(db, &fleet, &history, &mut rng).await;
    Operator::start(db, &history, &mut rng).finish().await;
    load.finish().await;
    end(db, fleet, &history).await
}

fn seeded(name: &str) -> (u64, fastrand::Rng) {
    let seed = long_form::variable("COUNTERSIGN_CHAOS_SEED").unwrap_or_else(|| fastrand::u64(..));
    say(&format!("{name}: COUNTERSIGN_CHAOS_SEED={seed}"));
    (seed, fastrand::Rng::with_seed(seed))
}

async fn start_load(db: &Database, fleet: &Arc<Fleet>, history: &Arc<HistoryFile>, rng: &mut fastrand::Rng) -> Load {
    db.run("select countersign.track(t) from unnest('{social.tweet, social.tweet_like}'::regclass[]) t").await;
    Load::start(fleet, history, rng)
}

/// Ends the servers, seals and verifies the log, and judges the history.
async fn end(db: &Database, fleet: Arc<Fleet>, history: &Arc<HistoryFile>) -> Judgement {
    Arc::into_inner(fleet).expect("no agent is left").close().await;
    // Nothing is on its way any more: what is pending now was abandoned.
    db.run("select countersign.sweep(interval '0', 1000)").await;
    let owner = Person::new("postgres", db.url(), history);
    owner.begin(&Request::Seal, &["audit", "seal"]).ended().await;
    let verified = owner.begin(&Request::Verify, &["audit", "verify"]).ended().await;
    let judgement = history.finish(db).await;
    say(&format!("{}\naudit verify: {}", judgement.report, verified.out.trim()));
    judgement
}

/// The server's own sweep, more impatient. PostgreSQL may be down.
async fn keep_swept(db: Database) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        ticks.tick().await;
        sweep(&db).await;
    }
}

async fn sweep(db: &Database) {
    if let Ok((client, connection)) = tokio_postgres::connect(&db.url(), tokio_postgres::NoTls).await {
        tokio::spawn(connection);
        let sweep = format!("select countersign.sweep(interval '{} ms', 1000)", OLD_ENOUGH.as_millis());
        let _down = client.batch_execute(&sweep).await;
    }
}
