//! How long do the pages of the console take, with 1,000,000 records and 10,000 proposals that wait? Each page beside the bare
//! query for its rows over tokio-postgres, in turns, in one run. Also how much memory the console has.
//!
//! Run: `cargo bench -p acceptance --bench console`

use std::time::{Duration, Instant};

use reqwest::{Client, redirect};
use testkit::{Database, HttpServer, database, run_countersign};
use tokio::process::Command;

const ROUNDS: usize = 15;

const RECORD: &str = "select id, admitted_at, status, tool_name, account_id, actor, correlation_id, params_summary from countersign.record";

/// Each page, and the query that has its rows and nothing else.
const PAGES: [(&str, &str); 8] = [
    (
        "/",
        "select proposal_id, account_id, actor, tool_name, tier, description, created_at, expires_at from countersign.proposal \
         where status = 'pending' order by expires_at limit 201",
    ),
    ("/records", "order by id desc limit 51"),
    ("/records?before=500000", "where id < 500000 order by id desc limit 51"),
    ("/records?account=account-7", "where account_id = 'account-7' order by id desc limit 51"),
    (
        "/records?status=failure&tool=tool_3",
        "where status = 'failure' and tool_name = 'tool_3' order by id desc limit 51",
    ),
    ("/records?actor=rare", "where actor = 'rare' order by id desc limit 51"),
    ("/records?session=00ff", "where starts_with(session_id, '00ff') order by id desc limit 51"),
    (
        "/activity",
        "select account_id, actor, session_id, count(*), max(admitted_at) from \
         (select * from countersign.record order by id desc limit 10000) r group by 1, 2, 3 order by 5 desc limit 100",
    ),
];

fn records() -> u32 {
    std::env::var("COUNTERSIGN_BENCH_RECORDS").map_or(1_000_000, |number| number.parse().expect("a number"))
}

async fn fill(db: &Database) {
    let records = records();
    db.run(&format!(
        "insert into countersign.record (correlation_id, account_id, actor, session_id, client_name, tool_name, fingerprint, params,
             params_summary, status, error_code, error_message, login, slot, holds_until, xid, admitted_at, completed_at)
         select gen_random_uuid(), 'account-' || n % 100, case when n = 77 then 'rare' else 'actor-' || n % 1000 end,
             md5((n / 50)::text), 'client', 'tool_' || n % 20, repeat('a', 64), '{{\"id\": 17, \"status\": \"shipped\"}}',
             '{{\"id\":17,\"status\":\"shipped\"}}', case when n % 7 = 0 then 'failure' else 'success' end,
             case when n % 7 = 0 then 'sql_error' end, case when n % 7 = 0 then 'it failed' end, 'x', sha256(n::text::bytea), t.at, '1', t.at, t.at
         from generate_series(1, {records}) n, lateral (select clock_timestamp() - ({records} - n) * interval '1 s' as at) t"
    ))
    .await;
    db.run(
        "insert into countersign.proposal (proposal_id, account_id, actor, tool_name, title, tool_version, definition, tier, description, params,
             fingerprint, preview, preview_hash, expires_at, digest)
         select gen_random_uuid(), 'account-' || n % 100, 'actor-' || n % 1000, 'delete_package', 'Delete a package', '1', repeat('a', 64), 'approve',
             'Delete a package. It is removed with its photos.', json_build_object('package_id', n), encode(sha256(n::text::bytea), 'hex'),
             '{\"rollback\": {\"reversible\": true, \"note\": \"\"}}', repeat('b', 64),
             clock_timestamp() + interval '1 day' + n * interval '1 s', repeat('c', 64)
         from generate_series(1, 10000) n",
    )
    .await;
    db.run("vacuum analyze countersign.record, countersign.proposal").await;
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::main]
async fn main() {
    let db = database().await;
    fill(&db).await;
    let mut command = Command::new(testkit::countersign());
    command.env("DATABASE_URL", db.login("console", "countersign_console").await);
    command.args(["--log", "info", "console", "--listen", "127.0.0.1:0"]).kill_on_drop(true);
    let server = HttpServer::listening(command).await;
    let base = server.url("");
    let link = run_countersign(&db.url(), &["console", "login", "--as", "anna", "--url", &base]).await.out;
    let http = Client::builder().redirect(redirect::Policy::none()).build().unwrap();
    let login = http.post(format!("{base}/login")).header("origin", &base).header("sec-fetch-site", "same-origin");
    let answer = login.form(&[("link", link.trim().rsplit('/').next().unwrap())]).send().await.unwrap();
    let cookie = answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let bare = testkit::connect(&db.url()).await;
    println!("{:<40} {:>10} {:>12} {:>8}", "page", "bare query", "page", "bytes");
    for (path, sql) in PAGES {
        let sql = if sql.starts_with("select") { sql.to_owned() } else { format!("{RECORD} {sql}") };
        let (mut queries, mut pages, mut bytes) = (Vec::new(), Vec::new(), 0);
        for _ in 0..ROUNDS {
            let started = Instant::now();
            bare.simple_query(&sql).await.unwrap();
            queries.push(started.elapsed());
            let started = Instant::now();
            let page = http.get(format!("{base}{path}")).header("cookie", &cookie).send().await.unwrap();
            assert_eq!(page.status(), 200);
            bytes = page.bytes().await.unwrap().len();
            pages.push(started.elapsed());
        }
        let ms = |times: Vec<Duration>| format!("{:.1} ms", median(times).as_secs_f64() * 1000.0);
        println!("{path:<40} {:>10} {:>12} {bytes:>8}", ms(queries), ms(pages));
    }
    println!("resident: {:.1} MiB", testkit::ProcessMemory::of(server.pid()).idle_kib() as f64 / 1024.0);
}
