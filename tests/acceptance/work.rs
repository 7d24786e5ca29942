//! The work of a call, which is the same on every machine: statements on the wire, calls of SQL functions, rows written,
//! bytes of WAL and of the ledger. Time and processor time are for the benchmarks. Buffers and rows read are not here: they
//! depend on the dead rows of the ledger's small tables, and differ by a factor of three between two runs.
//!
//! `UPDATE_GOLDEN=1` writes `tests/golden/work.json`, and the diff shows what a change costs. The file is of PostgreSQL 15.

use std::collections::BTreeMap;

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use testkit::{
    Database, HttpServer, Server, TestManifest, database, external, lone_database_with, repository, run_countersign,
    send_signal,
};

/// What autovacuum, checkpoints and hints of other sessions would add.
const SETTINGS: [(&str, &str); 6] = [
    ("autovacuum", "off"),
    ("bgwriter_lru_maxpages", "0"),
    ("checkpoint_timeout", "1d"),
    ("max_wal_size", "8GB"),
    ("shared_preload_libraries", "pg_stat_statements"),
    ("track_functions", "all"),
];

const FIXTURE: &str = "
create extension pg_stat_statements;
create schema work;
create table work.plain (id int primary key, n int not null default 0, note text not null default 'a note of some length');
create table work.tracked (like work.plain including all);
create table work.stamped (like work.plain including all, updated_at timestamptz not null default now());
create function work.stamp() returns trigger language plpgsql as $$ begin new.updated_at := clock_timestamp(); return new; end $$;
create trigger stamp before update on work.stamped for each row execute function work.stamp();
insert into work.plain select g from generate_series(1, 2000) g;
insert into work.tracked select g from generate_series(1, 2000) g;
insert into work.stamped select g from generate_series(1, 2000) g;
grant usage on schema work to public;
grant select, update on all tables in schema work to countersign_writer;
grant select on all tables in schema work to countersign_reader;
select countersign.track('work.tracked'), countersign.track('work.stamped');
analyze;
select pg_stat_force_next_flush();
";

/// The numbers since the start of the cluster. Sessions of this process belong to the superuser.
const SEEN: &str = "
select (select coalesce(sum(calls), 0) from pg_stat_statements where userid <> 10 and toplevel),
    (select coalesce(sum(calls), 0) from pg_stat_user_functions),
    tup_inserted + tup_updated + tup_deleted, (pg_current_wal_insert_lsn() - '0/0')::bigint,
    (select coalesce(sum(pg_column_size(r)), 0) from countersign.record r)
        + (select coalesce(sum(pg_column_size(e)), 0) from countersign.effect e)
from pg_stat_database where datname = current_database()";

/// How many calls are measured. What a server does when it starts is subtracted, by a run with `FEW` calls.
const MANY: usize = 60;
const FEW: usize = 10;

/// What a call costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Work {
    statements: i64,
    function_calls: i64,
    rows_written: i64,
    wal_bytes: i64,
    /// The size of the record and of its effects.
    ledger_bytes: i64,
}

impl Work {
    /// The work of one call. What runs beside the calls adds less than one to each, so a number is rounded down unless it
    /// is close to the next one.
    fn of_call(few: &[f64], many: &[f64]) -> Self {
        let of_call = |index: usize| ((many[index] - few[index]) / (MANY - FEW) as f64 + 0.3).floor() as i64;
        Self {
            statements: of_call(0),
            function_calls: of_call(1),
            rows_written: of_call(2),
            wal_bytes: of_call(3),
            ledger_bytes: of_call(4),
        }
    }

    /// Whether it is that of the file. The bytes of WAL depend on how pages fill, so only much more of them counts.
    fn is_as(&self, expected: &Self) -> bool {
        let Self { wal_bytes, ledger_bytes, .. } = *expected;
        let is_close = |own: i64, expected: i64, most: i64| (own - expected).abs() <= most;
        is_close(self.wal_bytes, wal_bytes, (wal_bytes / 4).max(100))
            && is_close(self.ledger_bytes, ledger_bytes, (ledger_bytes / 30).max(8))
            && Self { wal_bytes, ledger_bytes, ..self.clone() } == *expected
    }
}

/// The version, and whether it has the extension.
const AVAILABLE: &str = "
select concat(current_setting('server_version_num')::int / 10000, ' ', count(*)) from pg_available_extensions
where name = 'pg_stat_statements'";

/// What a feature that writes a row for each call would add.
const CONTROL: &str = "
create table work.more (note text);
create function work.more() returns trigger language plpgsql security definer as $$
begin insert into work.more values (new.note); return null; end $$;
create trigger more after update on work.plain for each row execute function work.more();
select pg_stat_force_next_flush()";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Write(&'static str),
    /// A tracked write in a session over HTTP.
    HttpWrite,
    ExecuteSql,
    Duplicate,
    Undo,
    NewText,
    SeenText,
}

const KINDS: [(&str, Kind); 9] = [
    ("write", Kind::Write("plain")),
    ("tracked write", Kind::Write("tracked")),
    ("tracked write under updated_at", Kind::Write("stamped")),
    ("tracked write over HTTP", Kind::HttpWrite),
    ("execute_sql", Kind::ExecuteSql),
    ("duplicate", Kind::Duplicate),
    ("undo", Kind::Undo),
    ("read of a new text", Kind::NewText),
    ("read of a seen text", Kind::SeenText),
];

fn manifest() -> TestManifest {
    let tool = |table: &str| {
        let undo = if table == "plain" { "undo = { irreversible = \"It is a test.\" }\n" } else { "" };
        format!(
            "[[tool]]\nname = \"add_{table}\"\naccess = \"write\"\ndescription = \"Add.\"\nrows = \"one\"\n{undo}\
             sql = \"update work.{table} set n = n + $2 where id = $1 returning id, n\"\n\
             param = [{{ name = \"id\", description = \"Which.\" }}, {{ name = \"by\", description = \"How much.\" }}]\n"
        )
    };
    TestManifest::new(&["plain", "tracked", "stamped"].map(tool).concat())
}

struct Meter {
    db: Database,
    manifest: TestManifest,
    /// The next row, so that each call changes another one.
    next: usize,
}

impl Meter {
    /// Leaves the server of a run nothing to seal.
    async fn seal(&self) {
        self.db.run("select countersign.seal(100000)").await;
    }

    async fn seen(&self) -> Vec<f64> {
        // The sessions of this process report what they have done, and it is theirs.
        self.db.run("select pg_stat_force_next_flush()").await;
        self.db.rows(SEEN).await[0].iter().map(|number| number.parse().unwrap()).collect()
    }

    /// What `calls` calls cost, with the start and the end of their server. A session reports its numbers at its end.
    async fn run(&mut self, kind: Kind, calls: usize) -> Vec<f64> {
        if kind == Kind::HttpWrite {
            return self.run_over_http(calls).await;
        }
        let mut command = self.manifest.command(&self.db);
        command.env("COUNTERSIGN_EXECUTE_SQL", "rows").env("COUNTERSIGN_EXECUTE_SQL_TIER", "auto");
        command.env("COUNTERSIGN_DUPLICATE_MEMORY_S", "0").args(["--profile", "admin"]);
        let written = if kind == Kind::Undo { self.writes(calls).await } else { Vec::new() };
        let mut undone = written.into_iter();
        self.seal().await;
        let before = self.seen().await;
        let server = self.db.settled(Server::start(command)).await;
        for _ in 0..calls {
            self.next += 1;
            let id = 1 + self.next % 2000;
            let (tool, arguments) = match kind {
                Kind::Write(table) => (format!("add_{table}"), json!({"id": id, "by": self.next})),
                Kind::HttpWrite => unreachable!("it has a server of its own"),
                Kind::ExecuteSql => (
                    "execute_sql".to_owned(),
                    json!({"sql": format!("update work.tracked set n = n + 1 where id = {id}")}),
                ),
                Kind::Duplicate => ("add_tracked".to_owned(), json!({"id": 1, "by": 1})),
                Kind::Undo => ("undo_mutation".to_owned(), json!({"correlation_id": undone.next()})),
                Kind::NewText => (
                    "query_database".to_owned(),
                    json!({"query": format!("select id, note from work.plain where id = {id}")}),
                ),
                Kind::SeenText => {
                    ("query_database".to_owned(), json!({"query": "select id, note from work.plain where id = 1"}))
                }
            };
            let answer = server.call(&tool, arguments).await;
            let is_done = answer["success"] == true || kind == Kind::Duplicate && answer["data"]["duplicate"] == true;
            assert!(is_done && answer["data"]["requires_approval"].is_null(), "{answer}");
        }
        server.close().await;
        self.since(before).await
    }

    /// What was seen since, once every session has reported.
    async fn since(&self, before: Vec<f64>) -> Vec<f64> {
        self.db.until_value("select count(*) from pg_stat_activity where usename <> 'postgres'", "0").await;
        self.seen().await.iter().zip(before).map(|(after, before)| after - before).collect()
    }

    async fn run_over_http(&mut self, calls: usize) -> Vec<f64> {
        let mut command = HttpServer::command(&self.db);
        command.args(["--profile", "admin"]).arg("--manifest").arg(self.manifest.path());
        command.env("COUNTERSIGN_DUPLICATE_MEMORY_S", "0");
        self.seal().await;
        let before = self.seen().await;
        let mut server = self.db.settled(HttpServer::start(command)).await;
        let client = server.session("2025-11-25").await;
        for _ in 0..calls {
            self.next += 1;
            let arguments = json!({"id": 1 + self.next % 2000, "by": self.next});
            let answer = client.call("add_tracked", arguments).await;
            assert_eq!(answer["success"], true, "{answer}");
        }
        send_signal(server.pid(), Signal::SIGTERM);
        server.ended().await;
        self.since(before).await
    }

    /// Writes to be undone.
    async fn writes(&mut self, count: usize) -> Vec<Value> {
        let server = self.manifest.serve(&self.db).await;
        let mut written = Vec::new();
        for _ in 0..count {
            self.next += 1;
            let arguments = json!({"id": 1 + self.next % 2000, "by": self.next});
            written.push(server.succeed("add_tracked", arguments).await["meta"]["correlation_id"].clone());
        }
        server.close().await;
        self.db.until_value("select count(*) from pg_stat_activity where usename <> 'postgres'", "0").await;
        written
    }

    /// The least of two runs: the first of a kind pays for what happens once.
    async fn least(&mut self, kind: Kind, calls: usize) -> Vec<f64> {
        let (first, second) = (self.run(kind, calls).await, self.run(kind, calls).await);
        first.iter().zip(second).map(|(first, second)| first.min(second)).collect()
    }

    async fn work(&mut self, kind: Kind) -> Work {
        let (few, many) = (self.least(kind, FEW).await, self.least(kind, MANY).await);
        Work::of_call(&few, &many)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_does_more_work_than_the_file_says() {
    let found = database().await.value(AVAILABLE).await;
    if found != "15 1" {
        return external::skip_unprivileged("the work of a call is counted on PostgreSQL 15 with pg_stat_statements");
    }
    let db = lone_database_with(&SETTINGS).await;
    db.run(FIXTURE).await;
    let mut meter = Meter { db, manifest: manifest(), next: 0 };
    let mut found = BTreeMap::new();
    for (name, kind) in KINDS {
        found.insert(name.to_owned(), meter.work(kind).await);
    }
    let file = repository().join("tests/golden/work.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, serde_json::to_string_pretty(&found).unwrap() + "\n").unwrap();
    }
    let expected: BTreeMap<String, Work> = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert!(found.keys().eq(expected.keys()));
    for (name, work) in &found {
        assert!(
            work.is_as(&expected[name]),
            "{name}: {work:?}, and the file has {:?}. UPDATE_GOLDEN=1",
            expected[name]
        );
    }
    // The control: a trigger that writes a row for each call, as a feature would.
    meter.db.run(CONTROL).await;
    let more = meter.work(Kind::Write("plain")).await;
    let expected = &expected["write"];
    assert!(!more.is_as(expected) && more.rows_written == expected.rows_written + 1, "{more:?} {expected:?}");
    assert_eq!(more.function_calls, expected.function_calls + 1);
}

/// The calls of each function in an undo of this many rows under an `updated_at` trigger, which sets the column again.
async fn calls_of_undo(rows: u32) -> BTreeMap<String, i64> {
    let db = database().await;
    let left_out = ["create extension pg_stat_statements;", "select pg_stat_force_next_flush();", "analyze;"];
    let stamped = left_out.iter().fold(FIXTURE.to_owned(), |fixture, line| fixture.replace(line, ""));
    db.run(&format!("{stamped} alter database \"{}\" set track_functions = 'all'", db.name())).await;
    let mut command = Server::bare_command(&db);
    command.args(["--profile", "admin", "--execute-sql", "--execute-sql-tier", "auto"]);
    command.args(["--execute-sql-max-rows", "2000"]);
    let server = Server::start(command).await;
    let sql = format!("update work.stamped set n = n + 1 where id <= {rows}");
    let written = server.succeed("execute_sql", json!({"sql": sql})).await["meta"]["correlation_id"].clone();
    server.close().await;
    // A session reports what it has called after a transaction, or when it ends.
    let finished = "select coalesce(sum(calls), 0) from pg_stat_user_functions where funcname = 'finish'";
    db.until_value(finished, "1").await;
    let calls = async || {
        // Functions of a table are named by its oid.
        let name = |row: &[String]| row[0].trim_end_matches(|letter: char| letter.is_ascii_digit()).to_owned();
        let rows = db.rows("select funcname, calls from pg_stat_user_functions").await;
        rows.into_iter().map(|row| (name(&row), row[1].parse().unwrap())).collect::<BTreeMap<String, i64>>()
    };
    let before = calls().await;
    let undone = run_countersign(&db.url(), &["undo", written.as_str().unwrap()]).await;
    assert!(undone.out.contains("set again"), "{undone:?}");
    db.until_value(finished, "2").await;
    let mut found = calls().await;
    found.iter_mut().for_each(|(name, calls)| *calls -= before.get(name).unwrap_or(&0));
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_under_a_trigger_reads_each_row_a_few_times_and_the_catalog_once() {
    let [few, many] = [calls_of_undo(100).await, calls_of_undo(600).await];
    let of_row: BTreeMap<&str, f64> = many
        .iter()
        .map(|(name, calls)| (name.as_str(), (calls - few.get(name).unwrap_or(&0)) as f64 / 500.0))
        .filter(|(_, calls)| *calls > 0.01)
        .collect();
    // PostgreSQL 18 has NOT NULL as a constraint, for which the undo of the undo is tried.
    let rounds = of_row["stamp"];
    assert!(rounds <= 2.0, "{of_row:?}");
    // Two images for each comparison: after the restoration, in its own check and in that of the ledger.
    assert!((4.0..=6.0).contains(&(of_row["fields"] / rounds)), "{of_row:?}");
    assert!(of_row.values().filter(|calls| **calls > rounds).count() == 1, "{of_row:?}");
}
