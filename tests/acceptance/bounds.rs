//! Bounds: whatever a query asks for, the answer is a clear error or a part that says so, within the deadline, and the
//! server's memory stays within 64 MiB of what it takes when idle (design.md section 1, promise 8; attacks DO02 to DO26).
//!
//! Each bomb prints what became of it: `cargo test -p acceptance bounds:: -- --nocapture`.
#![allow(clippy::print_stdout, clippy::disallowed_macros, reason = "what was measured is for people to read")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Database, Server, database};

use crate::writes::until_some;

const MIB: f64 = 1024.0;

/// What the server may take beyond its idle level, in KiB.
const ALLOWED_KIB: u64 = 64 * 1024;

/// How long after its deadline an answer may come on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

/// What may become of a bomb.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// An error of one of these codes.
    Error(&'static [&'static str]),
    /// A part, with `truncated`.
    Cut,
    /// It is no bomb after all.
    Whole,
}

use Expected::{Cut, Error, Whole};

const TOO_LARGE: Expected = Error(&["result_too_large"]);
const TIMEOUT: Expected = Error(&["timeout"]);
const REFUSED: Expected = Error(&["sql_error"]);

/// A server under watch: its memory, its time, its backends.
struct Watched {
    db: Database,
    server: Server,
    deadline: Duration,
    idle_kib: u64,
}

impl Watched {
    async fn on(db: &Database, deadline_ms: u64) -> Self {
        let mut command = Server::bare_command(db);
        command.args(["--query-timeout-ms", &deadline_ms.to_string()]);
        let server = Server::start(command).await;
        let mut watched = Self { db: db.clone(), server, deadline: Duration::from_millis(deadline_ms), idle_kib: 0 };
        // What every server does in its first minutes: connections opened, errors answered, code read from the disk.
        for query in ["select 1 as n", "select nothing", "select generate_series(1, 2000)", "table social.tweet"] {
            let calls: Vec<_> =
                (0..8).map(|_| watched.server.call("query_database", json!({"query": query}))).collect();
            futures_util::future::join_all(calls).await;
        }
        watched.idle_kib = watched.memory("VmRSS");
        watched
    }

    /// A line of /proc/PID/status, in KiB.
    fn memory(&self, line: &str) -> u64 {
        let pid = self.server.client().pid().unwrap();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let value = status.lines().find_map(|it| it.strip_prefix(line)?.strip_prefix(':')).unwrap();
        value.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }

    /// From here on `VmHWM` is the peak.
    fn forget_peak(&self) {
        let pid = self.server.client().pid().unwrap();
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    }

    async fn explode(&self, name: &str, tool: &str, arguments: Value, expected: Expected) {
        self.forget_peak();
        let started = Instant::now();
        let envelope = self.server.call(tool, arguments).await;
        let took = started.elapsed();
        let outcome = outcome_of(&envelope);
        self.report(name, &outcome, took);
        let fits = match expected {
            Error(codes) => codes.contains(&outcome.as_str()),
            Cut => outcome.starts_with("cut"),
            Whole => outcome.starts_with("whole"),
        };
        let said: String = envelope["error"].to_string().chars().take(600).collect();
        if std::env::var_os("D_SOFT").is_none() || !fits {
            println!("   {}", &said);
        }
        assert!(fits || std::env::var_os("D_SOFT").is_some(), "{name}: {outcome}, not {expected:?}: {said}");
        assert!(std::env::var_os("D_SOFT").is_some() || took < self.deadline + SLACK, "{name} took {took:?}");
        self.lives(name).await;
    }

    fn report(&self, name: &str, outcome: &str, took: Duration) {
        let peak = self.memory("VmHWM");
        let above = peak.saturating_sub(self.idle_kib);
        let after = self.memory("VmRSS").saturating_sub(self.idle_kib);
        println!(
            "{name:<52} {outcome:<28} {:>6} ms  peak +{:>5.1} MiB  after +{:>5.1} MiB",
            took.as_millis(),
            above as f64 / MIB,
            after as f64 / MIB
        );
        if std::env::var_os("D_SOFT").is_none() {
            assert!(above < ALLOWED_KIB, "{name}: {above} KiB above the idle level of {} KiB", self.idle_kib);
        }
    }

    /// The same server answers, and no backend of its reader is at work.
    async fn lives(&self, name: &str) {
        assert_eq!(self.server.query("select 1 as n").await, [json!({"n": 1})], "{name}");
        let free = "select 1 where not exists (select from pg_stat_activity where usename = 'countersign_reader' \
                    and datname = current_database() and state <> 'idle')";
        until_some(&self.db, free).await;
    }

    async fn query(&self, name: &str, sql: &str, expected: Expected) {
        self.explode(name, "query_database", json!({"query": sql}), expected).await;
    }
}

fn outcome_of(envelope: &Value) -> String {
    let data = &envelope["data"];
    match (envelope["error"]["code"].as_str(), data["truncated"].as_bool()) {
        (Some(code), _) => code.to_owned(),
        (None, Some(true)) => format!("cut at {} rows", data["row_count"]),
        (None, _) => format!("whole, {} rows", data["row_count"]),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_value_of_a_gigabyte_is_refused_whatever_its_type() {
    // DO04, DO06, X-14, D5-07
    let db = database().await;
    let watched = Watched::on(&db, 20_000).await;
    for (name, sql) in [
        ("text of 1 GB", "select repeat('x', 1000000000)"),
        ("bytea of 500 MB, 1 GB as text", "select convert_to(repeat('x', 500000000), 'UTF8')"),
        ("json of 300 MB", "select ('\"' || repeat('x', 300000000) || '\"')::json"),
        ("array of 300 MB", "select array[repeat('x', 300000000)]"),
        ("record of 300 MB", "select row(1, repeat('x', 300000000))"),
        (
            "composite of 300 MB",
            "select t from (select id, repeat('x', 300000000) as text from social.tweet limit 1) t",
        ),
        ("folded while planning, 200 MB", "select repeat(repeat('x', 10000), 20000)"),
        ("500 values of 1 MB in one row", "select string_agg(repeat('x', 1000000), '') from generate_series(1, 500)"),
    ] {
        watched.query(name, sql, TOO_LARGE).await;
    }
    let plan = json!({"query": "select repeat(repeat('x', 10000), 20000)"});
    watched.explode("plan of the same", "explain_query", plan, Whole).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_and_wide_rows_are_cut() {
    let db = database().await;
    let columns: Vec<String> = (1..=1600).map(|n| format!("c{n} smallint default 1")).collect();
    let long: Vec<String> = (1..=1600).map(|n| format!("1 as {}{n}", "n".repeat(59))).collect();
    db.run(&format!(
        "create table public.wide ({}); insert into public.wide default values; grant select on public.wide to countersign_reader",
        columns.join(", ")
    ))
    .await;
    let watched = Watched::on(&db, 5000).await;
    let all = |sql: &str| json!({"query": sql, "row_limit": 10_000});
    let million = "select n, repeat('x', 1000) as x from generate_series(1, 1000000) n";
    watched.query("1,000,000 rows of 1 kB", million, Cut).await;
    watched.explode("the same, 10,000 asked", "query_database", all(million), Cut).await;
    let narrow = "select 1 as a from generate_series(1, 1000000)";
    watched.explode("1,000,000 rows of 1 byte, 10,000 asked", "query_database", all(narrow), Cut).await;
    watched.query("1,600 columns", "table public.wide", Whole).await;
    let wide = "select wide.* from public.wide, generate_series(1, 10000)";

    watched.explode("1,600 columns, 10,000 rows asked", "query_database", all(wide), Cut).await;
    let arrays = json!({"query": wide, "row_limit": 10_000, "row_format": "array"});
    watched.explode("the same as arrays", "query_database", arrays, Cut).await;
    let long = format!("select {} from generate_series(1, 10000)", long.join(", "));
    watched.explode("1,600 columns with names of 63 bytes", "query_database", all(&long), Cut).await;
    let nulls: Vec<&str> = vec!["null"; 1600];
    let nulls = format!("select {} from generate_series(1, 10000)", nulls.join(", "));
    watched.explode("1,600 columns without a name, all null", "query_database", all(&nulls), Cut).await;
    let empty = "select from generate_series(1, 1000000)";
    watched.explode("1,000,000 rows without columns", "query_database", all(empty), Cut).await;
    let tiny = "select array_agg(1) from generate_series(1, 500000)";
    watched.query("array of 500,000 numbers", tiny, TOO_LARGE).await;
    watched.query("array of 130,000 numbers", "select array_agg(1) from generate_series(1, 130000)", Whole).await;
    let json = |element: &str, count: u32| format!("select ('[' || repeat('{element},', {count}) || '1]')::json as j");
    watched.query("json of 300,000 empty arrays", &json("[]", 300_000), TOO_LARGE).await;
    watched.query("json of 65,000 empty arrays", &json("[]", 65_000), Whole).await;
    watched.query("json of 26,000 objects", &json("{\"a\":1}", 26_000), Whole).await;
    watched.query("control characters, six bytes each in JSON", "select repeat(chr(1), 1000000) as a", TOO_LARGE).await;
    watched.query("170,000 of them", "select repeat(chr(1), 170000) as a", Whole).await;
    watched.query("quotes, escaped twice in text", "select repeat('\"', 520000) as a", Whole).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_does_not_end_is_ended_at_the_deadline() {
    // D3-01, D4-05, DO02, DO08, DO10, DO12, DO18, DO20, DO24, DO26, X-31
    let db = database().await;
    db.run(
        "create function public.sleeps(n int) returns int immutable language sql as 'select 1 from pg_sleep(60)';
         create function public.slow_row(n int) returns int volatile language sql as 'select n from pg_sleep(0.05)';
         grant execute on all functions in schema public to countersign_reader",
    )
    .await;
    let watched = Watched::on(&db, 1000).await;
    let join: Vec<String> = (1..=20).map(|n| format!("social.tweet t{n}")).collect();
    let join = format!("select count(*) from {}", join.join(" cross join "));
    let planned = "select public.sleeps(1)";
    for (name, sql) in [
        ("pg_sleep(60)", "select pg_sleep(60)"),
        (
            "a recursive query without end",
            "with recursive r(n) as (select 1 union all select n + 1 from r) select max(n) from r",
        ),
        ("count to 10^12", "select count(*) from generate_series(1, 1000000000000)"),
        (
            "doubling text",
            "with recursive r(s) as (select 'x'::text union all select s || s from r where length(s) < 200000000) select max(length(s)) from r, generate_series(1, 100)",
        ),
        ("a join of 20 tables", &join),
        ("its own statement_timeout", "select set_config('statement_timeout', '0', true), pg_sleep(60)"),
        ("a function folded while planning", planned),
        ("rows that come slowly", "select public.slow_row(n) from generate_series(1, 1000) n"),
        (
            "jsonpath",
            "select count(*) from jsonb_path_query((select jsonb_agg(g) from generate_series(1, 30000) g), '$[*] ? (exists($[*] ? (@ > 0 && @ < 0)))')",
        ),
    ] {
        watched.query(name, sql, TIMEOUT).await;
    }
    for tool in ["explain_query"] {
        watched.explode("the plan of a function that is folded", tool, json!({"query": planned}), TIMEOUT).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_postgresql_says_beside_rows_is_bounded_as_well() {
    let db = database().await;
    db.run(
        "create function public.notices(n int, length int) returns int language plpgsql as
             $$ begin for i in 1..n loop raise notice '%', repeat('x', length); end loop; return n; end $$;
         create function public.settings(n int) returns int language plpgsql as
             $$ begin for i in 1..n loop perform set_config('application_name', i::text, true); end loop; return n; end $$;
         create function public.fails(length int) returns int language plpgsql as
             $$ begin raise exception '%', repeat('m', length) using detail = repeat('d', length), hint = repeat('h', length); end $$;
         grant execute on all functions in schema public to countersign_reader",
    )
    .await;
    let watched = Watched::on(&db, 5000).await;
    watched.query("300,000 notices", "select public.notices(300000, 100)", Whole).await;
    watched.query("3 notices of 20 MB", "select public.notices(3, 20000000)", Whole).await;
    watched.query("300,000 changed settings", "select public.settings(300000)", Whole).await;
    watched.query("an error of 30 MB", "select repeat('x', 30000000)::int", REFUSED).await;
    watched.query("an error of 3 x 10 MB", "select public.fails(10000000)", REFUSED).await;
    watched.query("an error of 3 x 300 kB", "select public.fails(300000)", REFUSED).await;
    watched.query("a name of 1 MB", &format!("select 1 as \"{}\"", "n".repeat(1_000_000)), Whole).await;
    watched.query("a column that is not, 1 MB long", &format!("select \"{}\"", "n".repeat(1_000_000)), REFUSED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_sends_is_bounded_as_well() {
    // DO14, DO16
    let db = database().await;
    let watched = Watched::on(&db, 8000).await;
    watched
        .query("parentheses, 100,000 deep", &format!("select {}1{}", "(".repeat(100_000), ")".repeat(100_000)), REFUSED)
        .await;
    watched.query("a sum of 100,000 terms", &format!("select 1{}", " + 1".repeat(100_000)), REFUSED).await;
    watched.query("json, 20,000 deep", "select (repeat('[', 20000) || repeat(']', 20000))::jsonb", REFUSED).await;
    let list: Vec<String> = (0..200_000).map(|n| n.to_string()).collect();
    watched
        .query(
            "IN with 200,000 values",
            &format!("select count(*) from social.tweet where id in ({})", list.join(",")),
            Whole,
        )
        .await;
    watched.query("a query of 10 MB", &format!("select 1 as n -- {}", "x".repeat(10 << 20)), Whole).await;
    let marks: Vec<String> = (1..=65_535).map(|n| format!("(${n}::int)")).collect();
    let values = format!("select count(*) as n from (values {}) v", marks.join(","));
    let params: Vec<u32> = (1..=65_535).collect();
    watched.explode("65,535 parameters", "query_database", json!({"query": values, "params": params}), Whole).await;
    let marks: Vec<String> = (1..=66_000).map(|n| format!("(${n}::int)")).collect();
    let values = format!("select count(*) as n from (values {}) v", marks.join(","));
    let params: Vec<u32> = (1..=66_000).collect();
    watched
        .explode(
            "66,000 parameters",
            "query_database",
            json!({"query": values, "params": params}),
            Error(&["sql_error", "invalid_params"]),
        )
        .await;
    let text = json!({"query": "select length($1) as n", "params": ["x".repeat(15 << 20)]});
    watched.explode("a parameter of 15 MB", "query_database", text, Whole).await;
    let list = json!({"query": "select cardinality($1::int[]) as n", "params": [vec![1; 7 << 20]]});
    watched.explode("a parameter of 7,000,000 numbers", "query_database", list, Whole).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_bombs_at_once_take_no_more_than_one() {
    let db = database().await;
    let watched = Watched::on(&db, 20_000).await;
    for (name, sql, code) in [
        ("8 x text of 200 MB", "select repeat('x', 200000000)", "result_too_large"),
        ("8 x 1,000,000 rows of 1 kB", "select repeat('x', 1000) as x from generate_series(1, 1000000)", "cut"),
    ] {
        watched.forget_peak();
        let started = Instant::now();
        let calls: Vec<_> =
            (0..8).map(|_| watched.server.call("query_database", json!({"query": sql, "row_limit": 10000}))).collect();
        let envelopes = futures_util::future::join_all(calls).await;
        watched.report(name, &outcome_of(&envelopes[0]), started.elapsed());
        for envelope in envelopes {
            assert!(outcome_of(&envelope).starts_with(code), "{}", envelope["error"]);
        }
        watched.lives(name).await;
    }
}
