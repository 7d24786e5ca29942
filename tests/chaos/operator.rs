//! An operator who undoes by plans what agents write. Every kind of interruption happens: another operator runs the plan as well,
//! the process or its backend is killed, or the connection is lost on either side of COMMIT.
//!
//! The tables of this schema belong to the operator's plans: agents write to them and undo none of it, so what stands is what no plan
//! has taken back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chaos_checker::{Arguments, Id, Outcome, Request};
use serde::Deserialize;
use testkit::{ConnectionFault, Database, FaultPoint, Proxy};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::command::{Ended, Person, Started};
use super::history::HistoryFile;

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
/// How long a command is repeated until it ends with 0 or 2.
const TIMEOUT: Duration = Duration::from_secs(180);
/// How long the operator goes on for the ways that have not been played yet.
const OVERTIME: Duration = Duration::from_secs(300);

/// What the operator has done: how many plans were run in which way, where what it is named for has happened.
pub(super) type Played = BTreeMap<Way, usize>;

pub(super) struct Operator {
    db: Database,
    proxy: Proxy,
    person: Person,
    rng: fastrand::Rng,
    history: Arc<HistoryFile>,
    played: Played,
    /// The last command that has ended.
    last: Ended,
    /// What the commands about one plan or write have undone.
    undone: Vec<Id>,
}

/// A plan as the command prints it.
#[derive(Deserialize)]
struct Plan {
    plan_id: String,
    digest: String,
    parts: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    writes: Vec<String>,
}

/// The task of an operator.
pub(super) struct RunningOperator {
    task: JoinHandle<Played>,
    stopping: Arc<AtomicBool>,
}

impl RunningOperator {
    /// Lets every way be played once.
    pub(super) async fn finish(self) -> Played {
        self.stopping.store(true, Ordering::Relaxed);
        self.task.await.expect("no panic")
    }
}

impl Operator {
    pub(super) fn start(db: &Database, history: &Arc<HistoryFile>, rng: &mut fastrand::Rng) -> RunningOperator {
        let stopping = Arc::<AtomicBool>::default();
        let proxy = Proxy::before(db);
        let url = proxy.url().replace("user=postgres", "user=olga");
        let operator = Self {
            db: db.clone(),
            proxy,
            person: Person::new("olga", url, history),
            rng: rng.fork(),
            history: Arc::clone(history),
            played: Played::new(),
            last: Ended::default(),
            undone: Vec::new(),
        };
        RunningOperator { task: tokio::spawn(operator.work(Arc::clone(&stopping))), stopping }
    }

    async fn work(mut self, stopping: Arc<AtomicBool>) -> Played {
        let mut missing = WAYS.to_vec();
        self.rng.shuffle(&mut missing);
        let mut end = None;
        loop {
            if stopping.load(Ordering::Relaxed) {
                let end = *end.get_or_insert_with(|| Instant::now() + OVERTIME);
                if missing.is_empty() {
                    return self.played;
                }
                if Instant::now() > end {
                    self.history.surprise(format!("no plan could be run like this: {missing:?}"));
                    return self.played;
                }
            }
            let way = missing.last().copied().unwrap_or_else(|| WAYS[self.rng.usize(..WAYS.len())]);
            let Some((plan, digest)) = self.plan().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let arguments = ["undo", "run", plan.as_str(), "--digest", &digest, "--json"];
            if self.carry_out(&Request::RunPlan { plan: plan.clone() }, &arguments, way).await {
                missing.retain(|other| *other != way);
                *self.played.entry(way).or_default() += 1;
            }
            self.redo().await;
        }
    }

    /// Makes a plan of what was written a moment ago; its name and digest, if it can be run.
    async fn plan(&mut self) -> Option<(Id, String)> {
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
        let scope = [&scope[..], &[mode]].concat().join(" ");
        let command = self.person.begin(&Request::MakePlan { scope }, &arguments);
        let (op, ended) = command.silently_ended().await;
        // Without 0 it has conflicts, or PostgreSQL is down.
        let plan: Option<Plan> = (ended.code == Some(0)).then(|| ended.object());
        let parts: Vec<Vec<Id>> =
            plan.iter().flat_map(|plan| &plan.parts).map(|part| part.writes.iter().map(Id::new).collect()).collect();
        let plan = plan.filter(|_| !parts.is_empty()).map(|plan| (Id::new(plan.plan_id), plan.digest));
        let outcome = Outcome::Planned { plan: plan.as_ref().map(|(id, _)| id.clone()), parts };
        self.history.answer(op, &outcome);
        plan
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
    async fn redo(&mut self) {
        let (Some(of), 0) = (self.undone.pop(), self.rng.u8(..3)) else { return };
        let way = if self.rng.bool() { Way::TwoAtOnce } else { Way::Alone };
        let request = Request::Undo { tool: "undo".to_owned(), of: of.clone(), arguments: Arguments::default() };
        self.carry_out(&request, &["undo", of.as_str(), "--json"], way).await;
    }

    /// Runs a command in this way, and again until it ends with a success or a refusal. Whether what the way is named for has happened.
    async fn carry_out(&mut self, request: &Request, arguments: &[&str], way: Way) -> bool {
        self.undone.clear();
        let has_happened = match way {
            Way::Alone => {
                self.run(request, arguments).await;
                true
            }
            Way::TwoAtOnce => {
                let [one, other] = [(); 2].map(|()| self.person.begin(request, arguments));
                let both = tokio::join!(one.ended(), other.ended());
                self.told(both.0);
                self.told(both.1);
                true
            }
            Way::KilledAnytime => {
                let command = self.person.begin(request, arguments);
                tokio::time::sleep(Duration::from_millis(self.rng.u64(..150))).await;
                self.kill(command).await
            }
            Way::KilledBeforeCommit => {
                self.interrupted(request, arguments, FaultPoint::BeforeCommit, ConnectionFault::Freeze, way).await
            }
            Way::KilledAfterCommit => {
                self.interrupted(request, arguments, FaultPoint::AfterCommit, ConnectionFault::Freeze, way).await
            }
            Way::BackendTerminated => {
                self.interrupted(request, arguments, FaultPoint::BeforeCommit, ConnectionFault::Freeze, way).await
            }
            Way::CutBeforeCommit => {
                self.interrupted(request, arguments, FaultPoint::BeforeCommit, ConnectionFault::Cut, way).await
            }
            Way::CutAfterCommit => {
                self.interrupted(request, arguments, FaultPoint::AfterCommit, ConnectionFault::Cut, way).await
            }
        };
        let end = Instant::now() + TIMEOUT;
        while !matches!(self.last.code, Some(0 | 2)) {
            if Instant::now() > end {
                self.history.surprise(format!("{arguments:?} never came to an end: {:?}", self.last));
                break;
            }
            tokio::time::sleep(PAUSE).await;
            self.run(request, arguments).await;
        }
        has_happened
    }

    /// Stops a command at its COMMIT, if it comes that far, and does there what the way says.
    async fn interrupted(
        &mut self,
        request: &Request,
        arguments: &[&str],
        when: FaultPoint,
        what: ConnectionFault,
        way: Way,
    ) -> bool {
        let mut fired = self.proxy.arm(when, what);
        let mut command = self.person.begin(request, arguments);
        tokio::select! {
            fired = &mut fired => fired.expect("nothing else is armed"),
            ended = command.ended_meanwhile() => {
                let has_happened = fired.try_recv().is_ok();
                self.proxy.disarm();
                self.proxy.thaw();
                self.told(ended);
                return has_happened;
            }
        }
        match way {
            Way::KilledBeforeCommit | Way::KilledAfterCommit => {
                let was_killed = self.kill(command).await;
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
        self.told(command.ended().await);
        true
    }

    /// Whether the process was still running.
    async fn kill(&mut self, command: Started) -> bool {
        let ended = command.killed().await;
        let was_killed = ended.code.is_none();
        self.told(ended);
        was_killed
    }

    async fn run(&mut self, request: &Request, arguments: &[&str]) {
        let ended = self.person.begin(request, arguments).ended().await;
        self.told(ended);
    }

    fn told(&mut self, ended: Ended) {
        self.undone.extend(ended.undone());
        self.last = ended;
    }
}
