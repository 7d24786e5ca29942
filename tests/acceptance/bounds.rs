//! Bounds of queries and messages. Every answer is a clear error or a marked part, within the deadline. The server's
//! memory stays within 64 MiB of its idle size.
//!
//! Each bomb prints what became of it: `cargo test -p acceptance bounds:: -- --nocapture`.

mod once;
mod stalled;

use std::time::{Duration, Instant};

use mcp::ClientError;
use serde_json::{Value, json};
use testkit::{Database, ProcessMemory, Server, arguments, database, exclusive, long_form};

const MIB: f64 = 1024.0;

/// What the server may take beyond its idle level, in KiB.
const ALLOWED_KIB: u64 = 64 * 1024;

/// How long after its deadline an answer may come on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

/// What may become of a bomb.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// An error of this code with this in it.
    Error(&'static str, &'static str),
    /// Its time was over, or there was no connection for it until then.
    Ended,
    /// A part, with `truncated`.
    Cut,
    /// It is no bomb after all.
    CompleteResult,
    /// No message that the server takes: JSON-RPC's code.
    Refused(i32),
}

use Expected::{CompleteResult, Cut, Ended, Error, Refused};

/// Of a column, so that nothing of it is a constant: these are worked out while a statement is planned.
const FROM: &str = "from (values ('x'), ('y')) v (x) limit 1";

const TOO_LARGE: Expected = Error("result_too_large", "larger than");

/// statement_too_complex: PostgreSQL's own limit on its stack.
const TOO_DEEP: Expected = Error("sql_error", "54001");

/// A server under watch: its memory, its time, its backends.
struct Watched {
    db: Database,
    server: Server,
    deadline: Duration,
    memory: ProcessMemory,
}

impl Watched {
    async fn on(db: &Database, deadline_ms: u64) -> Self {
        let server = Server::bare_with(db, |it| it.args(["--query-timeout-ms", &deadline_ms.to_string()])).await;
        let pid = server.client().pid().unwrap();
        let mut watched = Self {
            db: db.clone(),
            server,
            deadline: Duration::from_millis(deadline_ms),
            memory: ProcessMemory::of(pid),
        };
        // What every server does in its first minutes: connections opened, errors answered, code read from the disk.
        for query in ["select 1 as n", "select nothing", "select generate_series(1, 2000)", "table social.tweet"] {
            let calls: Vec<_> =
                (0..8).map(|_| watched.server.call("query_database", json!({"query": query}))).collect();
            futures_util::future::join_all(calls).await;
        }
        watched.memory = ProcessMemory::of(pid);
        watched
    }

    async fn explode(&self, name: &str, tool: &str, params: Value, expected: Expected) {
        self.memory.reset_peak();
        let started = Instant::now();
        let call = self.server.client().call(tool, arguments(params));
        // A client drops an answer that is too long for it, and then waits for ever.
        let answer = tokio::time::timeout(self.deadline + 2 * SLACK, call).await;
        let (outcome, said) = match answer.unwrap_or_else(|_| panic!("{name}: no answer")) {
            Ok(answer) => (outcome_of(&answer.envelope), answer.envelope["error"].to_string()),
            Err(ClientError::Protocol { code, message }) => (format!("refused, {code}"), message),
            Err(error) => panic!("{name}: {error}"),
        };
        let took = started.elapsed();
        self.report(name, &outcome, took);
        let fits = match expected {
            Error(code, in_it) => outcome == code && said.contains(in_it),
            Ended => {
                outcome == "timeout" && said.contains("timed out after")
                    || outcome == "database_unavailable" && said.contains("in use")
            }
            Cut => outcome.starts_with("cut"),
            CompleteResult => outcome.starts_with("whole"),
            Refused(code) => outcome == format!("refused, {code}"),
        };
        let said: String = said.chars().take(600).collect();
        assert!(fits, "{name}: {outcome}, not {expected:?}: {said}");
        assert!(took < self.deadline + SLACK, "{name} took {took:?}");
        self.lives(name).await;
    }

    fn report(&self, name: &str, outcome: &str, took: Duration) {
        let (above, after) = (self.memory.peak_above_idle_kib(), self.memory.above_idle_kib());
        println!(
            "{name:<52} {outcome:<28} {:>6} ms  peak +{:>5.1} MiB  after +{:>5.1} MiB",
            took.as_millis(),
            above as f64 / MIB,
            after as f64 / MIB
        );
        assert!(above < ALLOWED_KIB, "{name}: {above} KiB above the idle level of {} KiB", self.memory.idle_kib());
    }

    /// The server still answers, and no backend of its reader is busy.
    async fn lives(&self, name: &str) {
        assert_eq!(self.server.query("select 1 as n").await, [json!({"n": 1})], "{name}");
        let free = "select 1 where not exists (select from pg_stat_activity where usename = 'countersign_reader' \
                    and datname = current_database() and state <> 'idle')";
        self.db.first_value(free).await;
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
async fn a_value_of_a_gigabyte_is_refused_for_every_type() {
    let db = database().await;
    let watched = Watched::on(&db, 60_000).await;
    let text = |bytes: usize| format!("repeat(repeat(x, 1000), {})", bytes / 1000);
    let large = text(50_000_000);
    for (name, sql) in [
        ("text of 300 MB or 1 GB", format!("select {} {FROM}", text(long_form::choose(300_000_000, 1_000_000_000)))),
        ("bytea of 50 MB", format!("select convert_to({}, 'UTF8') {FROM}", text(25_000_000))),
        ("json of 50 MB", format!("select ('\"' || {large} || '\"')::json {FROM}")),
        ("array of 50 MB", format!("select array[{large}] {FROM}")),
        ("record of 50 MB", format!("select row(1, {large}) {FROM}")),
        (
            "composite of 50 MB",
            format!(
                "select t from (select id, {large} as text from social.tweet, (values ('x'), ('y')) v (x) limit 1) t"
            ),
        ),
        ("50 columns of 1 MB", format!("select {} {FROM}", vec![text(1_000_000); 50].join(", "))),
    ] {
        watched.query(name, &sql, TOO_LARGE).await;
    }
    let folded = "select repeat(repeat('x', 10000), 5000)";
    watched
        .query("folded while planning, 50 MB", folded, Error("result_too_large", "plan of this query is too large"))
        .await;
    let plan = json!({"query": "select repeat(repeat('x', 10000), 5000)"});
    watched.explode("plan of the same", "explain_query", plan, CompleteResult).await;
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
    let watched = Watched::on(&db, 30_000).await;
    let all = |sql: &str| json!({"query": sql, "row_limit": 10_000});
    let million = "select n, repeat('x', 1000) as x from generate_series(1, 1000000) n";
    watched.query("1,000,000 rows of 1 kB", million, Cut).await;
    watched.explode("the same, 10,000 asked", "query_database", all(million), Cut).await;
    let narrow = "select 1 as a from generate_series(1, 1000000)";
    watched.explode("1,000,000 rows of 1 byte, 10,000 asked", "query_database", all(narrow), Cut).await;
    watched.query("1,600 columns", "table public.wide", CompleteResult).await;
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
    watched
        .query("array of 130,000 numbers", "select array_agg(1) from generate_series(1, 130000)", CompleteResult)
        .await;
    let json = |element: &str, count: u32| format!("select ('[' || repeat('{element},', {count}) || '1]')::json as j");
    watched.query("json of 300,000 empty arrays", &json("[]", 300_000), TOO_LARGE).await;
    watched.query("json of 65,000 empty arrays", &json("[]", 65_000), CompleteResult).await;
    watched.query("json of 26,000 objects", &json("{\"a\":1}", 26_000), CompleteResult).await;
    watched.query("control characters, six bytes each in JSON", "select repeat(chr(1), 1000000) as a", TOO_LARGE).await;
    watched.query("170,000 of them", "select repeat(chr(1), 170000) as a", CompleteResult).await;
    watched.query("quotes, escaped twice in text", "select repeat('\"', 520000) as a", CompleteResult).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_statements_end_at_the_deadline() {
    exclusive().await;
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
    let bombs = [
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
    ];
    let bombs = bombs.map(|(name, sql)| watched.query(name, sql, Ended));
    let explained = json!({"query": planned});
    let plan = watched.explode("the plan of a function that is folded", "explain_query", explained, Ended);
    // All at once, more than there are connections: who waits for one has no more time than the others.
    tokio::join!(futures_util::future::join_all(bombs), plan);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_postgresql_beside_rows_are_bounded_too() {
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
    let watched = Watched::on(&db, 30_000).await;
    watched.query("100,000 notices", "select public.notices(100000, 100)", CompleteResult).await;
    watched.query("3 notices of 20 MB", "select public.notices(3, 20000000)", CompleteResult).await;
    watched.query("100,000 changed settings", "select public.settings(100000)", CompleteResult).await;
    watched.query("an error of 30 MB", "select repeat('x', 30000000)::int", Error("sql_error", "22P02")).await;
    watched.query("an error of 3 x 10 MB", "select public.fails(10000000)", Error("sql_error", "P0001")).await;
    watched.query("an error of 3 x 300 kB", "select public.fails(300000)", Error("sql_error", "P0001")).await;
    watched.query("a name of 1 MB", &format!("select 1 as \"{}\"", "n".repeat(1_000_000)), CompleteResult).await;
    watched
        .query(
            "a column that is not, 1 MB long",
            &format!("select \"{}\"", "n".repeat(1_000_000)),
            Error("sql_error", "42703"),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_client_are_bounded_too() {
    let db = database().await;
    let watched = Watched::on(&db, 30_000).await;
    let parentheses = format!("select {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    let list = |element: &dyn Fn(u32) -> String, count: u32| (1..=count).map(element).collect::<Vec<_>>().join(",");
    for (name, sql, expected) in [
        ("parentheses, 100,000 deep", parentheses, Error("sql_error", "memory exhausted")),
        ("a sum of 100,000 terms", format!("select 1{}", " + 1".repeat(100_000)), TOO_DEEP),
        ("json, 20,000 deep", "select (repeat('[', 20000) || repeat(']', 20000))::jsonb".to_owned(), TOO_DEEP),
        (
            "IN with 200,000 values",
            format!("select count(*) from social.tweet where id in ({})", list(&|n| n.to_string(), 200_000)),
            CompleteResult,
        ),
        ("a query of 3 MB", format!("select 1 as n -- {}", "x".repeat(3 << 20)), CompleteResult),
        ("a query of 10 MB", format!("select 1 as n -- {}", "x".repeat(10 << 20)), Refused(-32600)),
    ] {
        watched.query(name, &sql, expected).await;
    }
    let marks = |count| format!("select count(*) as n from (values {}) v", list(&|n| format!("(${n}::int)"), count));
    let numbers = |count| (1..=count).collect::<Vec<u32>>();
    let too_many = Error("sql_error", "at most 65535 parameters");
    for (name, query, params, expected) in [
        ("65,535 parameters", marks(65_535), json!(numbers(65_535)), CompleteResult),
        ("66,000 parameters, none given", marks(66_000), json!([]), too_many),
        ("66,000 parameters", marks(66_000), json!(numbers(66_000)), too_many),
        ("a parameter of 3 MB", "select length($1) as n".to_owned(), json!(["x".repeat(3 << 20)]), CompleteResult),
        ("a parameter of 15 MB", "select length($1) as n".to_owned(), json!(["x".repeat(15 << 20)]), Refused(-32600)),
        (
            "100,000 numbers",
            "select cardinality($1::int[]) as n".to_owned(),
            json!([vec![1; 100_000]]),
            Refused(-32602),
        ),
    ] {
        watched.explode(name, "query_database", json!({"query": query, "params": params}), expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_bombs_at_once_take_no_more_than_one() {
    let db = database().await;
    let watched = Watched::on(&db, 60_000).await;
    for (name, sql, code) in [
        ("8 x text of 50 MB", format!("select repeat(repeat(x, 1000), 50000) {FROM}"), "result_too_large"),
        (
            "8 x 1,000,000 rows of 1 kB",
            "select repeat('x', 1000) as x from generate_series(1, 1000000)".to_owned(),
            "cut",
        ),
    ] {
        watched.memory.reset_peak();
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
