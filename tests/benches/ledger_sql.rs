//! What does the baseline schema cost, as plain SQL over tokio-postgres? The write protocol beside BEGIN, statement, log row and COMMIT by
//! hand, recording beside a trigger that copies rows to a plain log table, and undo beside the write that it undoes. With `fsync` on, on an
//! empty ledger and on one with a million records.
//!
//! All sides run in turns in one process against one PostgreSQL, so that a busy machine slows them alike; only the ratios mean anything.
//!
//! Run: `cargo bench -p acceptance --bench ledger_sql`

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ledger::{BASELINE, BASELINE_GRANTS};
use pg_embedded::{Cluster, Options};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

const ROUNDS: usize = 10;
const WRITES_PER_ROUND: usize = 50;
const IN_FLIGHT: usize = 16;
const BULK_ROWS: i32 = 10_000;

/// How many records the second ledger has; `COUNTERSIGN_BENCH_RECORDS` takes another number.
fn records() -> u32 {
    std::env::var("COUNTERSIGN_BENCH_RECORDS").map_or(1_000_000, |number| number.parse().expect("a number"))
}

type Param<'a> = &'a (dyn ToSql + Sync);

static NEXT: AtomicI64 = AtomicI64::new(1);

#[tokio::main]
async fn main() {
    let settings = [
        ("fsync", "on"),
        ("max_connections", "100"),
        ("shared_buffers", "256MB"),
        ("max_wal_size", "8GB"),
        ("checkpoint_timeout", "30min"),
    ];
    let cluster = Cluster::start(Options::ephemeral().settings(&settings), &mut |_| {}).expect("a cluster");
    make(&cluster, "few", 0).await;
    make(&cluster, "many", records()).await;
    let (few, many) = (Session::open(&cluster, "few").await, Session::open(&cluster, "many").await);
    sequential(&few, &many).await;
    in_flight(&cluster).await;
    bulk(&few).await;
}

async fn connect(cluster: &Cluster, database: &str, user: &str) -> Client {
    let url = cluster.connection_string(database).replace("user=postgres", &format!("user={user}"));
    testkit::connect(&url).await
}

async fn make(cluster: &Cluster, name: &str, records: u32) {
    connect(cluster, "postgres", "postgres").await.batch_execute(&format!("create database {name}")).await.unwrap();
    let owner = connect(cluster, name, "postgres").await;
    let roles = "do $$ declare r text; begin
        foreach r in array array['countersign_owner', 'countersign_approver', 'countersign_console',
                                'countersign_operator'] loop
            if to_regrole(r) is null then execute format('create role %I nologin', r); end if;
        end loop;
        if to_regrole('countersign_writer') is null then create role countersign_writer login; end if;
        end $$; create schema countersign authorization countersign_owner; set role countersign_owner;";
    let texts: String = BASELINE.iter().map(|(_, text)| *text).collect();
    let grants = BASELINE_GRANTS.replace("{writer}", "countersign_writer");
    let data = format!(
        "insert into countersign.writer_login values ('countersign_writer');
         insert into countersign.record (correlation_id, account_id, tool_name, fingerprint, params, params_summary, status, result, login, slot,
             holds_until, xid, admitted_at, completed_at)
         select gen_random_uuid(), 'agent', 't', repeat('a', 64), '{{}}', '{{}}', 'success', '{{}}', 'x', sha256(n::text::bytea), now(), '1', now(), now()
         from generate_series(1, {records}) n;
         reset role;
         create table public.plain (id int primary key, bal bigint not null, note text);
         insert into public.plain select g, 0, 'abcdefghijklmnopqrstuvwxyz' from generate_series(1, {BULK_ROWS}) g;
         create table public.tracked (like public.plain including all); insert into public.tracked select * from public.plain;
         create table public.logged (like public.plain including all); insert into public.logged select * from public.plain;
         create table public.row_log (id bigint generated always as identity primary key, at timestamptz default now(), before jsonb, after jsonb);
         create function public.copy_row() returns trigger language plpgsql as
             'begin insert into public.row_log (before, after) values (to_jsonb(old), to_jsonb(new)); return null; end';
         create trigger copy_row after update on public.logged for each row execute function public.copy_row();
         create table public.log (id bigint generated always as identity primary key, at timestamptz default now(), tool text, params text, result text);
         grant all on all tables in schema public to countersign_writer; grant usage on all sequences in schema public to countersign_writer;
         select countersign.track('public.tracked')"
    );
    owner.batch_execute(&format!("{roles} {texts} {grants} {data}")).await.unwrap();
    for settle in ["vacuum analyze", "checkpoint"] {
        owner.batch_execute(settle).await.unwrap();
    }
}

/// How a write is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Begin,
    BeginInOneRoundTrip,
    /// Its attempt is committed in a transaction in front.
    Admit,
}

/// A connection with everything prepared.
struct Session {
    client: Client,
    begin: Statement,
    take_slot: Statement,
    admission: Statement,
    claim: Statement,
    finish: Statement,
    undo: Statement,
    log: Statement,
    plain: Statement,
    tracked: Statement,
    all_plain: Statement,
    all_logged: Statement,
    all_tracked: Statement,
}

impl Session {
    async fn open(cluster: &Cluster, database: &str) -> Self {
        let client = connect(cluster, database, "countersign_writer").await;
        let prepare = async |sql: &str| client.prepare(sql).await.unwrap();
        let (slot, fingerprint) = (
            "sha256(convert_to(case when $2 = '' then '5 1 agenttk' || $1 else 'undo ' || $2 end, 'UTF8'))",
            "repeat('a', 64)",
        );
        Self {
            begin: prepare(&format!(
                "select countersign.begin_write({slot}, $1::text::uuid, 'agent', 'ana', null, null, null, null, null, 't', {fingerprint}, $1, '{{\"id\": 1234, \"delta\": 1}}', \
                 '{{\"id\": 1234, \"delta\": 1}}', nullif('{{' || $2::text || '}}', '{{}}')::uuid[], null, 30000)"
            )).await,
            take_slot: prepare(&format!("select countersign.take_slot({slot}, false) from (select $1::text, $2::text) x")).await,
            admission: prepare(&format!(
                "insert into countersign.admission (slot, correlation_id, account_id, actor, tool_name, fingerprint, idempotency_key, params, params_summary, undo_of) \
                 values ({slot}, $1::text::uuid, 'agent', 'ana', 't', {fingerprint}, $1, '{{\"id\": 1234, \"delta\": 1}}', '{{\"id\": 1234, \"delta\": 1}}', nullif('{{' || $2::text || '}}', '{{}}')::uuid[])"
            )).await,
            claim: prepare(&format!("select countersign.claim_attempt($1::text::uuid, {slot}, 30000) from (select $2::text) x")).await,
            finish: prepare("select countersign.finish($1::text::uuid, '{\"id\": 1234, \"bal\": 101}', '{\"id\": 1234, \"bal\": 101}', 1)").await,
            undo: prepare("select countersign.undo(array[$1::text::uuid])::text").await,
            log: prepare("insert into public.log (tool, params, result) values ('t', $1, '{\"id\": 1234, \"bal\": 101}')").await,
            plain: prepare("update public.plain set bal = bal + 1 where id = $1").await,
            tracked: prepare("update public.tracked set bal = bal + 1 where id = $1").await,
            all_plain: prepare("update public.plain set bal = bal + 1 where id > $1").await,
            all_logged: prepare("update public.logged set bal = bal + 1 where id > $1").await,
            all_tracked: prepare("update public.tracked set bal = bal + 1 where id > $1").await,
            client,
        }
    }

    /// BEGIN, the statement, the log, COMMIT: four round trips.
    async fn by_hand(&self, statement: &Statement, id: i32) {
        self.client.batch_execute("begin").await.unwrap();
        self.client.execute(statement, &[&id]).await.unwrap();
        self.client.execute(&self.log, &[&"{\"id\": 1234, \"delta\": 1}"]).await.unwrap();
        self.client.batch_execute("commit").await.unwrap();
    }

    /// Runs the hand-written transaction in one round trip.
    async fn by_hand_pipelined(&self, statement: &Statement, id: i32) {
        let (statement_params, log_params): ([Param<'_>; 1], [Param<'_>; 1]) =
            ([&id], [&"{\"id\": 1234, \"delta\": 1}"]);
        let (begun, done, logged, committed) = tokio::join!(
            self.client.batch_execute("begin"),
            self.client.execute(statement, &statement_params),
            self.client.execute(&self.log, &log_params),
            self.client.batch_execute("commit"),
        );
        begun.and(committed).unwrap();
        done.and(logged).unwrap();
    }

    /// A write in two round trips; the receipt.
    async fn write(&self, statement: &Statement, param: &(dyn ToSql + Sync), undo_of: &str) -> String {
        self.write_by(Way::Begin, statement, param, undo_of).await
    }

    async fn write_by(&self, way: Way, statement: &Statement, param: &(dyn ToSql + Sync), undo_of: &str) -> String {
        let id = format!("018f0000-0000-4000-8000-{:012}", NEXT.fetch_add(1, Ordering::Relaxed));
        let call: [Param<'_>; 2] = [&id, &undo_of];
        let (own, param): ([Param<'_>; 1], [Param<'_>; 1]) = ([&id], [param]);
        let opening = async {
            let done = if way == Way::Admit {
                let (begun, taken, admitted, chained, claimed, done) = tokio::join!(
                    self.client.batch_execute("begin"),
                    self.client.query(&self.take_slot, &call),
                    self.client.execute(&self.admission, &call),
                    self.client.batch_execute("commit and chain"),
                    self.client.query(&self.claim, &call),
                    self.client.query(statement, &param),
                );
                admitted.unwrap();
                begun.and(chained).and(taken).and(claimed).and(done)
            } else {
                let (begun, claimed, done) = tokio::join!(
                    self.client.batch_execute("begin"),
                    self.client.query(&self.begin, &call),
                    self.client.query(statement, &param),
                );
                begun.and(claimed).and(done)
            };
            done.unwrap();
        };
        let ending = async {
            let ended = tokio::join!(self.client.query(&self.finish, &own), self.client.batch_execute("commit"));
            ended.0.unwrap();
            ended.1.unwrap();
        };
        if way == Way::BeginInOneRoundTrip {
            tokio::join!(opening, ending);
        } else {
            opening.await;
            ending.await;
        }
        id
    }
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

async fn sequential(few: &Session, many: &Session) {
    let mut times: [Vec<Duration>; 9] = Default::default();
    for round in 0..=ROUNDS {
        for n in 0..WRITES_PER_ROUND {
            let id = i32::try_from(n).unwrap() + 1;
            macro_rules! time {
                ($side:expr, $work:expr) => {{
                    let started = Instant::now();
                    let done = $work.await;
                    times[$side].push(started.elapsed());
                    done
                }};
            }
            time!(0, few.by_hand(&few.plain, id));
            time!(1, few.by_hand_pipelined(&few.plain, id));
            time!(2, few.write(&few.plain, &id, ""));
            time!(3, few.write_by(Way::BeginInOneRoundTrip, &few.plain, &id, ""));
            let written = time!(4, few.write(&few.tracked, &id, ""));
            time!(5, few.write(&few.undo, &written, &written));
            time!(6, many.write(&many.plain, &id, ""));
            time!(7, many.write(&many.tracked, &id, ""));
            time!(8, few.write_by(Way::Admit, &few.plain, &id, ""));
        }
        if round == 0 {
            times.iter_mut().for_each(Vec::clear);
        }
    }
    let [hand, hand_1, two, one, tracked, undo, many_plain, many_tracked, admitted] =
        times.each_mut().map(|side| median(side));
    println!("sequential p50 over {} writes, us", ROUNDS * WRITES_PER_ROUND);
    println!("by hand, four round trips {hand:.0}   in one {hand_1:.0}");
    println!(
        "core, two round trips {two:.0}, to by hand {:.2}   one round trip {one:.0}, {:.2}; to one round trip by hand {:.2}",
        two / hand,
        one / hand,
        one / hand_1
    );
    println!("core, admitted first {admitted:.0}, to one transaction {:.2}", admitted / two);
    println!(
        "one tracked row {tracked:.0}, to untracked {:.2}   its undo {undo:.0}, to the write {:.2}",
        tracked / two,
        undo / tracked
    );
    println!(
        "with {} records: core {many_plain:.0}, to empty {:.2}   tracked {many_tracked:.0}, {:.2}",
        records(),
        many_plain / two,
        many_tracked / tracked
    );
}

async fn in_flight(cluster: &Cluster) {
    let mut sessions = Vec::new();
    for _ in 0..IN_FLIGHT {
        sessions.push(Session::open(cluster, "few").await);
    }
    let mut took = [Duration::ZERO; 6];
    for round in 0..=ROUNDS {
        for (side, sum) in took.iter_mut().enumerate() {
            let started = Instant::now();
            let workers = sessions.iter().enumerate().map(|(worker, session)| async move {
                for n in 0..WRITES_PER_ROUND / 4 {
                    let id = i32::try_from(worker * 100 + n).unwrap() + 1;
                    match side {
                        0 => session.by_hand(&session.plain, id).await,
                        1 => session.by_hand_pipelined(&session.plain, id).await,
                        2 => drop(session.write(&session.plain, &id, "").await),
                        3 => drop(session.write_by(Way::BeginInOneRoundTrip, &session.plain, &id, "").await),
                        4 => drop(session.write(&session.tracked, &id, "").await),
                        _ => drop(session.write_by(Way::Admit, &session.plain, &id, "").await),
                    }
                }
            });
            futures_util::future::join_all(workers).await;
            if round > 0 {
                *sum += started.elapsed();
            }
        }
    }
    let [hand, hand_1, two, one, tracked, admitted] = took.map(|took| took.as_secs_f64());
    println!(
        "{IN_FLIGHT} in flight, throughput: core in two round trips to by hand in four {:.2}, to by hand in one {:.2};",
        hand / two,
        hand_1 / two
    );
    println!(
        "    core in one to by hand in four {:.2}, in one {:.2}; tracked to by hand in one {:.2}",
        hand / one,
        hand_1 / one,
        hand_1 / tracked
    );
    println!("    core in two round trips to the same admitted first {:.2}", admitted / two);
}

async fn bulk(few: &Session) {
    let mut times: [Vec<Duration>; 4] = Default::default();
    for round in 0..7 {
        let started = Instant::now();
        few.by_hand(&few.all_plain, 0).await;
        times[0].push(started.elapsed());
        let started = Instant::now();
        few.by_hand(&few.all_logged, 0).await;
        times[1].push(started.elapsed());
        let started = Instant::now();
        let written = few.write(&few.all_tracked, &0, "").await;
        times[2].push(started.elapsed());
        let started = Instant::now();
        few.write(&few.undo, &written, &written).await;
        times[3].push(started.elapsed());
        if round == 0 {
            times.iter_mut().for_each(Vec::clear);
        }
    }
    let [plain, logged, tracked, undo] = times.each_mut().map(|side| median(side) / 1000.0);
    println!(
        "{BULK_ROWS} rows in one statement, ms: plain {plain:.0}, with a trigger that copies rows to a log table {logged:.0}, tracked {tracked:.0}, its undo {undo:.0}"
    );
    println!("    tracked to the log table {:.2}, undo to the write {:.2}", tracked / logged, undo / tracked);
}
