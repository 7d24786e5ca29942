//! Exactly once, through everything: agents write through three servers while servers, backends and PostgreSQL are
//! killed and connections are cut and frozen on both sides of COMMIT.
//!
//! An agent repeats what got lost on another server until it is acknowledged, so it knows what the tables must look
//! like. In the end the checker compares tables, ledger and answers. The control shows that it can see: the same run,
//! with the outcome written in a transaction of its own.
//!
//! A person takes back by plans what agents write into tables of their own, and is interrupted in all ways meanwhile (`operator`).
//!
//! Further runs have PgBouncer in transaction mode between the servers and PostgreSQL, or only one server, or Patroni with three nodes
//! (in the long form: `failovers`).
//!
//! Each run plays every fault and every way to run a plan once, and in its long form goes on for some seconds. `COUNTERSIGN_CHAOS_SECONDS` makes it longer,
//! `COUNTERSIGN_CHAOS_SEED` plays the same faults again.

mod checker;
mod control;
mod failovers;
mod faults;
mod fleet;
mod load;
mod operator;

use std::sync::Arc;
use std::time::Duration;

use testkit::{Database, External, external, lone_database, long_form, say, skip_without, skip_without_patroni};

use fleet::Fleet;
use load::{Journal, Load};
use operator::{Operations, Operator};
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
    let broken = run("chaos", &db, Fleet::start(&db, SERVERS).await, at_least()).await;
    assert!(broken.is_empty(), "{} promises broken:\n{}", broken.len(), some_of(&broken));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_holds_with_one_server() {
    let _turn = TURNS.acquire().await;
    let db = lone_database().await;
    let broken = run("chaos with one server", &db, Fleet::start(&db, 1).await, at_least()).await;
    assert!(broken.is_empty(), "{} promises broken:\n{}", broken.len(), some_of(&broken));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_holds_behind_a_pooler_that_is_killed_as_well() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let _turn = TURNS.acquire().await;
    let db = lone_database().await;
    let broken = run("chaos behind PgBouncer", &db, Fleet::start_pooled(&db, SERVERS).await, at_least()).await;
    assert!(broken.is_empty(), "{} promises broken:\n{}", broken.len(), some_of(&broken));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_holds_through_every_failover_of_patroni() {
    if long_form::is_left_out() || skip_without_patroni() {
        return;
    }
    let _turns = TURNS.acquire_many(2).await;
    let broken = failovers::run("chaos with Patroni", at_least()).await;
    assert!(broken.is_empty(), "{} promises broken:\n{}", broken.len(), some_of(&broken));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_run_with_the_outcome_in_a_second_transaction_is_caught() {
    let _turn = TURNS.acquire().await;
    let db = lone_database().await;
    if let Err(reason) = control::write_outcomes_in_a_second_transaction(&db).await {
        return external::skip(&format!("PostgreSQL has no extension dblink: {reason}"));
    }
    // The first cut alone makes a success record without its row.
    let broken = run("control", &db, Fleet::start(&db, SERVERS).await, Duration::ZERO).await;
    let sees = |what: &str| broken.iter().any(|sentence| sentence.contains(what));
    assert!(!broken.is_empty(), "a success that is not atomic with its write went unnoticed");
    assert!(sees("has no such row") || sees("has no effects"), "{}", some_of(&broken));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_undoes_other_rows_than_it_marks_is_caught() {
    let _turn = TURNS.acquire().await;
    let db = lone_database().await;
    let fleet = Fleet::start(&db, 1).await;
    control::mark_one_write_more(&db).await;
    let broken = run_without_faults("control that marks one write more", &db, fleet).await;
    let sees = |what: &str| broken.iter().any(|sentence| sentence.contains(what));
    assert!(sees("marked as reversed by what is not its undo"), "{}", some_of(&broken));
    assert!(sees("an entry stands and is not there, or was taken back and is there"), "{}", some_of(&broken));

    let db = lone_database().await;
    let fleet = Fleet::start(&db, 1).await;
    control::leave_a_row_out(&db).await;
    let broken = run_without_faults("control that leaves a row out", &db, fleet).await;
    let sees = |what: &str| broken.iter().any(|sentence| sentence.contains(what));
    assert!(sees("a row of it was not put back"), "{}", some_of(&broken));
    let in_the_tables =
        ["an entry stands and is not there, or was taken back", "a total is not the sum of what stands"];
    assert!(in_the_tables.into_iter().any(sees), "{}", some_of(&broken));
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

/// As much as a person reads.
fn some_of(broken: &[String]) -> String {
    broken.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n")
}

/// The promises that were broken.
async fn run(name: &str, db: &Database, fleet: Fleet, at_least: Duration) -> Vec<String> {
    let mut rng = seeded(name);
    let fleet = Arc::new(fleet);
    let load = start_load(db, &fleet, &mut rng).await;
    faults::cut_before_a_success(&fleet).await;
    let operator = Operator::start(db, load.journal(), &mut rng);
    let sweeping = tokio::spawn(keep_swept(db.clone()));
    let played = faults::play(db, &fleet, &mut rng, at_least).await;
    // While the agents still write what its plans are about.
    let operations = operator.finish().await;
    let journal = load.finish().await;
    sweeping.abort();
    judge(name, db, fleet, &journal, &operations, &format!("{played:?}")).await
}

/// A run in which only the operator is interrupted.
async fn run_without_faults(name: &str, db: &Database, fleet: Fleet) -> Vec<String> {
    let mut rng = seeded(name);
    let fleet = Arc::new(fleet);
    let load = start_load(db, &fleet, &mut rng).await;
    let operations = Operator::start(db, load.journal(), &mut rng).finish().await;
    let journal = load.finish().await;
    judge(name, db, fleet, &journal, &operations, "no faults").await
}

fn seeded(name: &str) -> fastrand::Rng {
    let seed = long_form::variable("COUNTERSIGN_CHAOS_SEED").unwrap_or_else(|| fastrand::u64(..));
    say(&format!("{name}: COUNTERSIGN_CHAOS_SEED={seed}"));
    fastrand::Rng::with_seed(seed)
}

async fn start_load(db: &Database, fleet: &Arc<Fleet>, rng: &mut fastrand::Rng) -> Load {
    db.run("select countersign.track(t) from unnest('{social.tweet, social.tweet_like}'::regclass[]) t").await;
    Load::start(fleet, rng)
}

/// Ends the servers, checks everything, and says the figures.
async fn judge(
    name: &str,
    db: &Database,
    fleet: Arc<Fleet>,
    journal: &Journal,
    operations: &Operations,
    played: &str,
) -> Vec<String> {
    let calls = fleet.calls();
    Arc::into_inner(fleet).expect("no agent is left").close().await;
    // Nothing is on its way any more: what is pending now was abandoned.
    db.run("select countersign.sweep(interval '0', 1000)").await;
    let broken = checker::check(db, journal, operations).await;
    let counts = "select string_agg(n || ' ' || status, ', ' order by status) || ', ' || sum(n) || ' admissions' \
                  from (select status, count(*) as n from countersign.mutation group by 1) as s";
    let undos = "select string_agg(n || ' ' || tool_name || ' of ' || writes || ' writes', ', ' order by tool_name) \
                 from (select tool_name, count(*) as n, sum(cardinality(undo_of)) as writes from countersign.record \
                       where status = 'success' and undo_of is not null group by 1) as s";
    let (counts, undos) = (db.value(counts).await, db.value(undos).await);
    let (answers, lost) = (journal.answers.len(), journal.lost_answers);
    let (plans, ready, runs) = (operations.plans, operations.writes.len(), operations.runs.len());
    say(&format!(
        "{name}: {calls} calls, {answers} answers, {lost} lost; {counts}; {undos}; {plans} plans, {ready} of them run by {runs} commands \
         {:?}; {played}; {} promises broken",
        operations.played,
        broken.len()
    ));
    broken
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
