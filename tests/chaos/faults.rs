//! Faults, one after the other, in an order that the seed decides.

use std::time::Duration;

use nix::sys::signal::Signal;
use testkit::{ConnectionFault, Database, FaultPoint};
use tokio::time::Instant;

use super::fleet::Fleet;
use super::history::HistoryFile;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// kill -9 of a server.
    KillServer,
    /// A server that stands still while what it has begun is swept, and then goes on.
    PauseServer,
    /// pg_terminate_backend of a session of a server.
    TerminateBackend,
    /// `pg_ctl stop -m immediate`, and a restart.
    StopPostgres,
    /// kill -9 of the postmaster, and a restart.
    KillPostgres,
    /// Both at once.
    KillBoth,
    CutBeforeCommit,
    CutAfterCommit,
    FreezeBeforeCommit,
    FreezeAfterCommit,
    /// kill -9 of the pooler, and a restart, where there is one.
    KillPooler,
}

const ALL: [Fault; 11] = [
    Fault::CutBeforeCommit,
    Fault::KillServer,
    Fault::PauseServer,
    Fault::TerminateBackend,
    Fault::StopPostgres,
    Fault::KillPostgres,
    Fault::KillBoth,
    Fault::CutAfterCommit,
    Fault::FreezeBeforeCommit,
    Fault::FreezeAfterCommit,
    Fault::KillPooler,
];

/// Cuts before the COMMIT of a success, which the control needs: while nothing has gone wrong and nothing is swept, no
/// write fails.
pub(super) async fn cut_before_a_success(fleet: &Fleet, history: &HistoryFile) {
    history.fault("CutBeforeCommit", false);
    at_commit(fleet, FaultPoint::BeforeCommit, ConnectionFault::Cut).await;
    history.fault("CutBeforeCommit", true);
}

/// Plays every fault once, and then any until the time is over.
pub(super) async fn play(
    db: &Database,
    fleet: &Fleet,
    history: &HistoryFile,
    rng: &mut fastrand::Rng,
    at_least: Duration,
) {
    let end = Instant::now() + at_least;
    let mut first = ALL;
    rng.shuffle(&mut first);
    let mut first = first.into_iter();
    loop {
        let fault = match first.next() {
            Some(fault) => fault,
            None if Instant::now() >= end => return,
            None => ALL[rng.usize(..ALL.len())],
        };
        if fault == Fault::KillPooler && !fleet.is_pooled() {
            continue;
        }
        // Not to wait for anything: faults should not follow each other in one rhythm.
        tokio::time::sleep(Duration::from_millis(rng.u64(20..300))).await;
        let name = format!("{fault:?}");
        history.fault(&name, false);
        inject(fault, db, fleet, rng).await;
        history.fault(&name, true);
    }
}

async fn inject(fault: Fault, db: &Database, fleet: &Fleet, rng: &mut fastrand::Rng) {
    let server = rng.usize(..fleet.len());
    match fault {
        Fault::KillServer => {
            fleet.kill9(server).await;
            fleet.replace(server).await;
        }
        Fault::PauseServer => {
            fleet.signal(server, Signal::SIGSTOP).await;
            tokio::time::sleep(super::OLD_ENOUGH).await;
            super::sweep(db).await;
            fleet.signal(server, Signal::SIGCONT).await;
        }
        Fault::KillPooler => fleet.crash_pooler().await,
        Fault::TerminateBackend => terminate_a_backend(db, rng).await,
        Fault::StopPostgres => crash(db, |cluster| cluster.stop_immediate()).await,
        Fault::KillPostgres => crash(db, |cluster| cluster.kill9()).await,
        Fault::KillBoth => {
            fleet.kill9(server).await;
            crash(db, |cluster| cluster.kill9()).await;
            fleet.replace(server).await;
        }
        Fault::CutBeforeCommit => at_commit(fleet, FaultPoint::BeforeCommit, ConnectionFault::Cut).await,
        Fault::CutAfterCommit => at_commit(fleet, FaultPoint::AfterCommit, ConnectionFault::Cut).await,
        Fault::FreezeBeforeCommit => {
            at_commit(fleet, FaultPoint::BeforeCommit, ConnectionFault::Freeze).await;
            thaw(fleet, rng).await;
        }
        Fault::FreezeAfterCommit => {
            at_commit(fleet, FaultPoint::AfterCommit, ConnectionFault::Freeze).await;
            thaw(fleet, rng).await;
        }
    }
}

/// Waits until it has really happened: there is always a next COMMIT.
async fn at_commit(fleet: &Fleet, when: FaultPoint, what: ConnectionFault) {
    let fired = fleet.proxy().arm(when, what);
    let fired = tokio::time::timeout(Duration::from_secs(60), fired).await;
    fired.expect("the load goes on").expect("the proxy meets it");
}

async fn thaw(fleet: &Fleet, rng: &mut fastrand::Rng) {
    tokio::time::sleep(Duration::from_millis(rng.u64(..500))).await;
    fleet.proxy().thaw();
}

async fn terminate_a_backend(db: &Database, rng: &mut fastrand::Rng) {
    let pids = db.rows("select pid from pg_stat_activity where application_name = 'countersign' order by pid").await;
    if let Some(row) = rng.choice(&pids) {
        db.rows(&format!("select pg_terminate_backend({})", row[0])).await;
    }
}

async fn crash(db: &Database, how: fn(&pg_embedded::Cluster) -> Result<(), pg_embedded::Error>) {
    let cluster = std::sync::Arc::clone(db.cluster());
    let crashed = tokio::task::spawn_blocking(move || how(&cluster).and_then(|()| cluster.restart()));
    crashed.await.expect("no panic").expect("PostgreSQL comes back");
}
