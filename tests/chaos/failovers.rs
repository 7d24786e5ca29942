//! Failovers of Patroni under the load of the chaos run. Servers, the worker of proposals, sealing and the console are
//! started once: each must find the new primary by itself. Nothing that was acknowledged may be lost or doubled.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chaos_checker::{Outcome, Request};
use nix::sys::signal::Signal;
use reqwest::StatusCode;
use testkit::{Database, HttpServer, Patroni, Role, Successes, countersign, poll, run_countersign, say};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fleet::Fleet;
use super::history::{HistoryFile, Judgement};
use super::operator::Operator;
use super::reviewer::{Decision, Reviewer};

/// An event of a cluster of Patroni.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Switchover,
    /// kill -9 of the primary's postmaster; Patroni goes on.
    KillPostmaster,
    /// kill -9 of every process of the primary's node. It is started after the failover.
    KillNode,
    /// SIGSTOP of every process of the primary's node, for less than the ttl of 20 s.
    FreezeNode,
    /// The same for longer: another node is the primary when it goes on.
    FreezeNodeBeyondTtl,
    EtcdAway,
    /// kill -9 of the node of the synchronous standby. It is started once writes go on.
    KillStandby,
    /// kill -9 of both standbys.
    KillBothStandbys,
}

const ALL: [Event; 8] = [
    Event::Switchover,
    Event::KillPostmaster,
    Event::KillNode,
    Event::FreezeNode,
    Event::FreezeNodeBeyondTtl,
    Event::EtcdAway,
    Event::KillStandby,
    Event::KillBothStandbys,
];

/// How long a frozen node stands still.
const FROZEN: Duration = Duration::from_secs(15);
const FROZEN_BEYOND_TTL: Duration = Duration::from_secs(30);
const ETCD_AWAY: Duration = Duration::from_secs(30);

/// Until everything works after an event.
const DEADLINE: Duration = Duration::from_secs(120);

/// Servers seal once a minute and sign every 45 seconds.
const SIGNED_WITHIN: Duration = Duration::from_secs(240);

/// Between two reads of a server.
const PAUSE: Duration = Duration::from_millis(20);

/// The login of the console.
const SCHEMA: &str = "create role console login in role countersign_console;";

/// How many servers use the addresses of all nodes, and how many use HAProxy's.
const SERVERS_EACH: usize = 2;

/// What an event did to clients, in seconds.
struct Effect {
    event: Event,
    without_writes_s: f64,
    without_reads_s: f64,
    /// Until the worker, the console and all nodes worked again.
    whole_s: f64,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event, without_writes_s, without_reads_s, whole_s } = self;
        let event = format!("{event:?}");
        write!(f, "{event:20} {without_writes_s:>8.1} {without_reads_s:>8.1} {whole_s:>8.1}")
    }
}

pub(super) async fn run(name: &str, at_least: Duration) -> Judgement {
    let (seed, mut rng) = super::seeded(name);
    let mut patroni = Patroni::start(true).await;
    let db = patroni.database().clone();
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = Arc::new(Fleet::start_configured(&db, files(&patroni, &folder)).await);
    let history = Arc::new(HistoryFile::start(name, seed, &db, fleet.len(), at_least).await);
    let console = PersonAtConsole::start(&patroni).await;
    let mut reviewer = Reviewer::new(&patroni.url_as("postgres"), &fleet, &history, &mut rng);
    let load = super::start_load(&db, &fleet, &history, &mut rng).await;
    let operator = Operator::start(&db, &history, &mut rng);
    let sweeping = tokio::spawn(super::keep_swept(db.clone()));
    let reading = Reading::start(&fleet, &history);

    let mut outcomes: Vec<Effect> = Vec::new();
    let mut first = ALL;
    rng.shuffle(&mut first);
    let mut first = first.into_iter();
    let begun = Instant::now();
    loop {
        let event = match first.next() {
            Some(event) => event,
            None if begun.elapsed() >= at_least => break,
            None => ALL[rng.usize(..ALL.len())],
        };
        patroni.until_whole().await;
        tokio::time::sleep(Duration::from_millis(rng.u64(200..3000))).await;
        reading.reads.take_longest_gap_s();
        fleet.writes().take_longest_gap_s();
        let began = Instant::now();
        history.fault(&format!("{event:?}"), false);
        inject(event, &mut patroni).await;
        goes_on(&fleet, &reading.reads).await;
        bring_back(event, &mut patroni).await;
        reviewer.decide(Decision::Approve).await;
        console.until_it_answers().await;
        patroni.until_whole().await;
        history.fault(&format!("{event:?}"), true);
        let outcome = Effect {
            event,
            without_writes_s: fleet.writes().take_longest_gap_s(),
            without_reads_s: reading.reads.take_longest_gap_s(),
            whole_s: began.elapsed().as_secs_f64(),
        };
        say(&format!("{name}: {outcome}"));
        outcomes.push(outcome);
    }
    until_signed(&db).await;
    operator.finish().await;
    reading.finish().await;
    load.finish().await;
    drop(reviewer);
    sweeping.abort();
    patroni.until_whole().await;

    let table: Vec<String> = outcomes.iter().map(Effect::to_string).collect();
    say(&format!("event (s)              no writes  no reads  whole\n{}", table.join("\n")));
    super::end(&db, fleet, &history).await
}

/// The configuration files of the servers, which are those of the page.
fn files(patroni: &Patroni, folder: &tempfile::TempDir) -> Vec<PathBuf> {
    let texts = [("nodes", patroni.settings()), ("haproxy", patroni.settings_through_haproxy())];
    let paths = texts.map(|(name, text)| {
        let path = folder.path().join(format!("{name}.toml"));
        std::fs::write(&path, text).expect("a file");
        path
    });
    paths.iter().cycle().take(SERVERS_EACH * paths.len()).cloned().collect()
}

async fn inject(event: Event, patroni: &mut Patroni) {
    let primary = patroni.node_with(Role::Leader).await;
    match event {
        Event::Switchover => patroni.switchover().await,
        Event::KillPostmaster => patroni.signal_postmaster(primary, Signal::SIGKILL),
        Event::KillNode => patroni.kill_node(primary).await,
        Event::FreezeNode => freeze(patroni, primary, FROZEN).await,
        Event::FreezeNodeBeyondTtl => freeze(patroni, primary, FROZEN_BEYOND_TTL).await,
        Event::EtcdAway => {
            patroni.kill_etcd().await;
            tokio::time::sleep(ETCD_AWAY).await;
        }
        Event::KillStandby => {
            let standby = patroni.node_with(Role::SyncStandby).await;
            patroni.kill_node(standby).await;
        }
        Event::KillBothStandbys => {
            for standby in (0..Patroni::NODES).filter(|number| *number != primary) {
                patroni.kill_node(standby).await;
            }
        }
    }
}

async fn freeze(patroni: &Patroni, node: usize, time: Duration) {
    patroni.signal_node(node, Signal::SIGSTOP);
    tokio::time::sleep(time).await;
    patroni.signal_node(node, Signal::SIGCONT);
}

/// Starts what an event has ended.
async fn bring_back(event: Event, patroni: &mut Patroni) {
    if event == Event::EtcdAway {
        patroni.start_etcd();
    }
    patroni.start_ended_nodes();
}

/// Waits until agents write and read.
async fn goes_on(fleet: &Fleet, reads: &Successes) {
    fleet.writes().more(DEADLINE, "writes", 30).await;
    reads.more(DEADLINE, "reads", 30).await;
}

/// Tasks that read through each server.
struct Reading {
    readers: JoinSet<()>,
    reads: Arc<Successes>,
    stopping: Arc<AtomicBool>,
}

impl Reading {
    fn start(fleet: &Arc<Fleet>, history: &Arc<HistoryFile>) -> Self {
        let mut reading = Self { readers: JoinSet::new(), reads: Arc::default(), stopping: Arc::default() };
        for server in 0..fleet.len() {
            let (fleet, history, reads, stopping) =
                (Arc::clone(fleet), Arc::clone(history), Arc::clone(&reading.reads), Arc::clone(&reading.stopping));
            reading.readers.spawn(async move {
                let query = Request::Query { sql: "select count(*) from social.tweet".to_owned() };
                while !stopping.load(Ordering::Relaxed) {
                    match fleet.ask(&history, "reading", server, &query).await {
                        Outcome::Read => reads.add(),
                        Outcome::Refused { retryable: true, .. } => {}
                        outcome => panic!("{outcome:?}"),
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        reading
    }

    async fn finish(self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.readers.join_all().await;
    }
}

/// A console in which a person is logged in.
struct PersonAtConsole {
    console: HttpServer,
    http: reqwest::Client,
    cookie: String,
}

impl PersonAtConsole {
    async fn start(patroni: &Patroni) -> Self {
        patroni.database().run(SCHEMA).await;
        let mut command = Command::new(countersign());
        command.env("DATABASE_URL", patroni.url_as("console")).kill_on_drop(true);
        command.args(["--log", "info", "console", "--listen", "127.0.0.1:0"]);
        let console = HttpServer::listening(command).await;
        let base = console.url("");
        let login = ["console", "login", "--as", "Olga", "--url", &base];
        let link = run_countersign(&patroni.url_as("postgres"), &login).await.succeeded().out;
        let token = link.trim().rsplit('/').next().expect("a token");
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
        let form = http.post(console.url("/login")).form(&[("link", token)]);
        let answer = form.header("origin", &base).header("sec-fetch-site", "same-origin").send().await;
        let answer = answer.expect("the console listens");
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        let cookie = answer.headers()["set-cookie"].to_str().expect("text").split(';').next().expect("a cookie");
        Self { console, http, cookie: cookie.to_owned() }
    }

    async fn until_it_answers(&self) {
        let answers = async || {
            let request = self.http.get(self.console.url("/")).header("cookie", &self.cookie);
            let answer = request.header("sec-fetch-site", "same-origin").send().await;
            answer.expect("the console listens").status() == StatusCode::OK
        };
        poll::until_within(DEADLINE, "the console answers", answers).await;
    }
}

/// Waits until the servers have signed what was written after the last event.
async fn until_signed(db: &Database) {
    let last = db.value("select clock_timestamp()").await;
    let signed = format!("select count(*) > 0 from countersign.checkpoint where signed_at > '{last}'");
    poll::until_within(SIGNED_WITHIN, "a server has signed the log", async || db.value(&signed).await == "t").await;
}
