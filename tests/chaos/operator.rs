//! An operator who undoes by plans what agents write. Every kind of interruption happens: another operator runs the plan as well,
//! the process or its backend is killed, or the connection is lost on either side of COMMIT.
//!
//! The tables of this schema belong to the operator's plans: agents write to them and undo none of it, so what stands is what no plan
//! has taken back.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use testkit::{ConnectionFault, Database, FaultPoint, Proxy, countersign, send_signal};
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::load::Journal;

/// Entries are inserted, so plans over them have no conflicts with later writes. Totals are added to by all agents.
pub(super) const SCHEMA: &str = "
create schema chaos;
create table chaos.entry (id bigint generated always as identity primary key, text text not null);
create table chaos.total (id bigint primary key, amount bigint not null);
select countersign.track(t) from unnest('{chaos.entry, chaos.total}'::regclass[]) t;
grant usage on schema chaos to countersign_writer;
grant select, insert, update, delete on all tables in schema chaos to countersign_writer;
create role olga login;
grant countersign_operator to olga;
grant usage on schema chaos to olga;
grant select, insert, update, delete on all tables in schema chaos to olga;
";

pub(super) const TOOLS: &str = r#"
[[tool]]
name = "add_entry"
access = "write"
description = "Add an entry."
sql = "insert into chaos.entry (text) values ($1) returning id"
rows = "one"
param = [{ name = "text", description = "What it says." }]

[[tool]]
name = "add_to_total"
access = "write"
description = "Add to a total, which begins at 0."
sql = """
insert into chaos.total as t (id, amount) values ($1, $2)
on conflict (id) do update set amount = t.amount + excluded.amount
returning id"""
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "amount", description = "How much." }]
"#;

/// The actor of all servers.
pub(super) const ACTOR: &str = "anna";

/// How a plan is run the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Alone,
    TwoAtOnce,
    /// kill -9 of the process while its COMMIT is on its way to PostgreSQL.
    KilledBeforeCommit,
    /// The same while the answer to its COMMIT is on its way.
    KilledAfterCommit,
    KilledAnytime,
    /// pg_terminate_backend before COMMIT.
    BackendTerminated,
    CutBeforeCommit,
    CutAfterCommit,
}

const WAYS: [Way; 8] = [
    Way::Alone,
    Way::TwoAtOnce,
    Way::KilledBeforeCommit,
    Way::KilledAfterCommit,
    Way::KilledAnytime,
    Way::BackendTerminated,
    Way::CutBeforeCommit,
    Way::CutAfterCommit,
];

/// Between two attempts: PostgreSQL may be down for a while.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a command may take, and how long it is repeated until it ends with 0 or 2.
const TIMEOUT: Duration = Duration::from_secs(180);
/// How long the operator goes on for the ways that have not been played yet.
const OVERTIME: Duration = Duration::from_secs(300);

/// One command that undoes, as it ended.
pub(super) struct Run {
    /// The plan, or the write that a single undo is about.
    pub(super) subject: String,
    ended: Ended,
}

/// What a command came to.
struct Ended {
    /// `None`: it was killed.
    code: Option<i32>,
    out: String,
    err: String,
}

impl Run {
    /// The receipts of the undos that it has reported.
    pub(super) fn undone(&self) -> impl Iterator<Item = String> {
        let objects = self.ended.out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        objects
            .filter(|object| object["status"] == "undone")
            .map(|object| object["correlation_id"].as_str().expect("a receipt").to_owned())
    }

    /// Whether it may have undone something without a word about it.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.ended.code.is_none() || self.ended.err.contains("is not known")
    }

    /// Whether it says that everything is undone, by this run or an earlier one.
    pub(super) fn says_all_undone(&self) -> bool {
        self.ended.code == Some(0) || self.ended.out.contains("was carried out before")
    }
}

/// What the operator has done and was told.
#[derive(Default)]
pub(super) struct Operations {
    pub(super) plans: usize,
    pub(super) runs: Vec<Run>,
    /// The writes of each plan that was run.
    pub(super) writes: BTreeMap<String, Vec<String>>,
    /// How many plans were run in which way, where what it is named for has happened.
    pub(super) played: BTreeMap<Way, usize>,
}

pub(super) struct Operator {
    db: Database,
    proxy: Proxy,
    url: String,
    rng: fastrand::Rng,
    journal: Arc<Mutex<Journal>>,
    done: Operations,
}

/// The task of an operator.
pub(super) struct RunningOperator {
    task: JoinHandle<Operations>,
    stopping: Arc<AtomicBool>,
}

impl RunningOperator {
    /// Lets every way be played once.
    pub(super) async fn finish(self) -> Operations {
        self.stopping.store(true, Ordering::Relaxed);
        self.task.await.expect("no panic")
    }
}

impl Operator {
    pub(super) fn start(db: &Database, journal: &Arc<Mutex<Journal>>, rng: &mut fastrand::Rng) -> RunningOperator {
        let stopping = Arc::<AtomicBool>::default();
        let proxy = Proxy::before(db);
        let url = proxy.url().replace("user=postgres", "user=olga");
        let journal = Arc::clone(journal);
        let operator = Self { db: db.clone(), proxy, url, rng: rng.fork(), journal, done: Operations::default() };
        RunningOperator { task: tokio::spawn(operator.work(Arc::clone(&stopping))), stopping }
    }

    async fn work(mut self, stopping: Arc<AtomicBool>) -> Operations {
        let mut missing = WAYS.to_vec();
        self.rng.shuffle(&mut missing);
        let mut end = None;
        loop {
            if stopping.load(Ordering::Relaxed) {
                let end = *end.get_or_insert_with(|| Instant::now() + OVERTIME);
                if missing.is_empty() {
                    return self.done;
                }
                if Instant::now() > end {
                    self.surprise(format!("no plan could be run like this: {missing:?}"));
                    return self.done;
                }
            }
            let way = missing.last().copied().unwrap_or_else(|| WAYS[self.rng.usize(..WAYS.len())]);
            let Some((plan, digest)) = self.plan().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let arguments = ["undo", "run", &plan, "--digest", &digest, "--json"];
            if self.carry_out(&plan, &arguments, way).await {
                missing.retain(|other| *other != way);
                *self.done.played.entry(way).or_default() += 1;
            }
            self.redo(&plan).await;
        }
    }

    /// Makes a plan of what was written a moment ago; its name and digest, if it can be run.
    async fn plan(&mut self) -> Option<(String, String)> {
        // More often what has no conflicts: a plan that has some in the mode `strict` is not run.
        let (tool, table) =
            if self.rng.u8(..3) > 0 { ("add_entry", "chaos.entry") } else { ("add_to_total", "chaos.total") };
        let scope = match self.rng.u8(..3) {
            0 => vec!["--table", table],
            1 => vec!["--account", "default", "--tool", tool],
            _ => vec!["--actor", ACTOR, "--tool", tool],
        };
        let (from, to) = (self.rng.u64(500..6_000), self.rng.u64(..500));
        let [from, to] = self.ago([from, to]).await?;
        let mode = ["strict", "skip", "skip", "skip", "cascade"][self.rng.usize(..5)];
        let rows = if self.rng.u8(..3) == 0 { "3" } else { "10000" };
        let window = ["--from", &from, "--to", &to, "--mode", mode, "--max-rows", rows, "--json"];
        let arguments = [&["undo", "plan"], &scope[..], &window].concat();
        let Ended { code, out, err } = self.start_command(&arguments).ended().await;
        self.done.plans += 1;
        if code != Some(0) {
            // 2: it has conflicts. 1: PostgreSQL is down.
            return None;
        }
        let plan: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{arguments:?}: {out}{err}"));
        let texts = |list: &Value| -> Vec<String> {
            list.as_array().expect("a list").iter().map(|text| text.as_str().expect("text").to_owned()).collect()
        };
        let writes: Vec<_> = plan["parts"].as_array()?.iter().flat_map(|part| texts(&part["writes"])).collect();
        let [id, digest] = ["plan_id", "digest"].map(|name| plan[name].as_str().expect("text").to_owned());
        if writes.is_empty() {
            return None;
        }
        self.done.writes.insert(id.clone(), writes);
        Some((id, digest))
    }

    /// Times that have passed for so many milliseconds. PostgreSQL may be down.
    async fn ago(&self, milliseconds: [u64; 2]) -> Option<[String; 2]> {
        let (client, connection) = tokio_postgres::connect(&self.db.url(), tokio_postgres::NoTls).await.ok()?;
        tokio::spawn(connection);
        let time = |ms: u64| format!("(clock_timestamp() - interval '{ms} ms')::text");
        let row = client
            .query_one(&format!("select {}, {}", time(milliseconds[0]), time(milliseconds[1])), &[])
            .await
            .ok()?;
        Some([row.get(0), row.get(1)])
    }

    /// Has back what a plan has undone (its last part), every third time; and then every other time two people at once.
    async fn redo(&mut self, plan: &str) {
        let undone = self.done.runs.iter().filter(|run| run.subject == plan).flat_map(Run::undone).last();
        let (Some(undo), 0) = (undone, self.rng.u8(..3)) else { return };
        let way = if self.rng.bool() { Way::TwoAtOnce } else { Way::Alone };
        self.carry_out(&undo, &["undo", &undo, "--json"], way).await;
    }

    /// Runs a command in this way, and again until it ends with a success or a refusal. Whether what the way is named for has happened.
    async fn carry_out(&mut self, subject: &str, arguments: &[&str], way: Way) -> bool {
        let has_happened = match way {
            Way::Alone => {
                self.run(subject, arguments).await;
                true
            }
            Way::TwoAtOnce => {
                let [one, other] = [(); 2].map(|()| self.start_command(arguments));
                let both = tokio::join!(one.ended(), other.ended());
                self.told(subject, both.0);
                self.told(subject, both.1);
                true
            }
            Way::KilledAnytime => {
                let command = self.start_command(arguments);
                tokio::time::sleep(Duration::from_millis(self.rng.u64(..150))).await;
                self.kill(subject, command).await
            }
            Way::KilledBeforeCommit => {
                self.interrupted(subject, arguments, FaultPoint::BeforeCommit, ConnectionFault::Freeze, way).await
            }
            Way::KilledAfterCommit => {
                self.interrupted(subject, arguments, FaultPoint::AfterCommit, ConnectionFault::Freeze, way).await
            }
            Way::BackendTerminated => {
                self.interrupted(subject, arguments, FaultPoint::BeforeCommit, ConnectionFault::Freeze, way).await
            }
            Way::CutBeforeCommit => {
                self.interrupted(subject, arguments, FaultPoint::BeforeCommit, ConnectionFault::Cut, way).await
            }
            Way::CutAfterCommit => {
                self.interrupted(subject, arguments, FaultPoint::AfterCommit, ConnectionFault::Cut, way).await
            }
        };
        let end = Instant::now() + TIMEOUT;
        while !matches!(self.done.runs.last(), Some(Run { ended: Ended { code: Some(0 | 2), .. }, .. })) {
            if Instant::now() > end {
                let last = self.done.runs.last().map(|run| run.ended.err.clone());
                self.surprise(format!("{arguments:?} never came to an end: {last:?}"));
                break;
            }
            tokio::time::sleep(PAUSE).await;
            self.run(subject, arguments).await;
        }
        has_happened
    }

    /// Stops a command at its COMMIT, if it comes that far, and does there what the way says.
    async fn interrupted(
        &mut self,
        subject: &str,
        arguments: &[&str],
        when: FaultPoint,
        what: ConnectionFault,
        way: Way,
    ) -> bool {
        let mut fired = self.proxy.arm(when, what);
        let mut command = self.start_command(arguments);
        tokio::select! {
            fired = &mut fired => fired.expect("nothing else is armed"),
            ended = &mut command.ending => {
                let has_happened = fired.try_recv().is_ok();
                self.proxy.disarm();
                self.proxy.thaw();
                self.told(subject, ended.expect("no panic"));
                return has_happened;
            }
        }
        match way {
            Way::KilledBeforeCommit | Way::KilledAfterCommit => {
                let was_killed = self.kill(subject, command).await;
                self.proxy.thaw();
                return was_killed;
            }
            Way::BackendTerminated => {
                let terminate = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'olga'";
                if let Ok((client, connection)) = tokio_postgres::connect(&self.db.url(), tokio_postgres::NoTls).await {
                    tokio::spawn(connection);
                    let _down = client.batch_execute(terminate).await;
                }
                self.proxy.thaw();
            }
            _ => {}
        }
        self.told(subject, command.ended().await);
        true
    }

    /// Whether the process was still running.
    async fn kill(&mut self, subject: &str, command: Started) -> bool {
        if !command.ending.is_finished() {
            send_signal(command.pid, Signal::SIGKILL);
        }
        let ended = command.ended().await;
        let was_killed = ended.code.is_none();
        self.told(subject, ended);
        was_killed
    }

    async fn run(&mut self, subject: &str, arguments: &[&str]) {
        let ended = self.start_command(arguments).ended().await;
        self.told(subject, ended);
    }

    fn start_command(&self, arguments: &[&str]) -> Started {
        let mut command = Command::new(countersign());
        command.env("DATABASE_URL", &self.url).args(["--log", "off"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let child = command.spawn().expect("the binary");
        let pid = child.id().expect("it has just been started");
        // Reads all along: what is printed may be more than a pipe holds.
        let ending = tokio::spawn(async move {
            let output = tokio::time::timeout(TIMEOUT, child.wait_with_output()).await;
            let output = output.expect("it ends by itself").expect("its output");
            let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
            Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
        });
        Started { pid, ending }
    }

    fn told(&mut self, subject: &str, ended: Ended) {
        self.done.runs.push(Run { subject: subject.to_owned(), ended });
    }

    fn surprise(&self, what: String) {
        self.journal.lock().unwrap().surprises.push(what);
    }
}

/// A command that has been started.
struct Started {
    pid: u32,
    ending: JoinHandle<Ended>,
}

impl Started {
    async fn ended(self) -> Ended {
        self.ending.await.expect("no panic")
    }
}
