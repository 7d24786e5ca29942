//! Rows stream on arrival, in bounded memory, at the speed of their reader.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Database, Pipe, database, front_end, is_terminal, long_form};

async fn streamed(pipe: &mut Pipe, id: &str, sql: &str, options: Value) {
    let mut options = options;
    options["stream_rows"] = true.into();
    pipe.send(json!({"code": "query", "id": id, "sql": sql, "options": options})).await;
}

/// The events of a streamed query, and its rows.
async fn all(pipe: &mut Pipe, id: &str) -> (Vec<Value>, Vec<Value>) {
    let (mut events, mut rows) = (Vec::new(), Vec::new());
    loop {
        let event = pipe.event(|event| event["id"] == id).await;
        if let Some(batch) = event["rows"].as_array().filter(|_| event["code"] == "result_rows") {
            assert_eq!(event["rows_batch_count"], batch.len());
            rows.extend(batch.iter().cloned());
        }
        let is_over = is_terminal(&event);
        events.push(event);
        if is_over {
            return (events, rows);
        }
    }
}

fn codes(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["code"].as_str()).collect()
}

#[tokio::test]
async fn batches_have_the_size_that_was_asked_for() {
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    let sql = "select i as n from generate_series(1, 25) i";
    streamed(&mut pipe, "a", sql, json!({"batch_rows": 10})).await;
    let (events, rows) = all(&mut pipe, "a").await;
    assert_eq!(codes(&events), ["result_start", "result_rows", "result_rows", "result_rows", "result_end"]);
    assert_eq!(events[0]["columns"], json!([{"name": "n", "type": "int4"}]));
    assert_eq!(rows.iter().map(|row| row["n"].as_i64().unwrap()).collect::<Vec<_>>(), (1..=25).collect::<Vec<_>>());
    let end = events.last().unwrap();
    let payload: usize = rows.iter().map(|row| row.to_string().len()).sum();
    assert_eq!(end["command_tag"], "ROWS 25");
    assert_eq!((&end["trace"]["row_count"], &end["trace"]["payload_bytes"]), (&json!(25), &json!(payload)));

    // Each row is some 1 kB: a batch ends with the row that reaches the limit.
    streamed(&mut pipe, "b", "select repeat('x', 1000) as t from generate_series(1, 10)", json!({"batch_bytes": 2048}))
        .await;
    let (events, rows) = all(&mut pipe, "b").await;
    assert_eq!(rows.len(), 10);
    assert!(events.iter().filter_map(|event| event["rows_batch_count"].as_i64()).all(|count| count <= 3), "{events:?}");

    streamed(&mut pipe, "c", "select 1 as n where false", json!({})).await;
    assert_eq!(codes(&all(&mut pipe, "c").await.0), ["result_start", "result_end"]);
    let refused = pipe.run_with("d", sql, json!({"options": {"batch_rows": 0}})).await;
    assert_eq!(refused["error_code"], "invalid_request");
    let refused = pipe.run_with("e", sql, json!({"options": {"batch_bytes": 1023}})).await;
    assert_eq!(refused["error_code"], "invalid_request");
    pipe.finish().await;
}

/// A function that waits until the test lets it go on: as long as the test holds the advisory lock.
async fn with_gate(db: &Database) -> tokio_postgres::Client {
    db.run(
        "create function gate() returns int language plpgsql as $$ begin perform pg_advisory_xact_lock_shared(7); return 0; end $$",
    )
    .await;
    let holder = db.connect().await;
    holder.batch_execute("select pg_advisory_lock(7)").await.unwrap();
    holder
}

#[tokio::test]
async fn the_first_batch_comes_while_the_query_still_runs() {
    let db = database().await;
    let holder = with_gate(&db).await;
    let mut pipe = Pipe::on(&db);
    let sql = "select i as n, repeat('x', 100) as t from generate_series(1, 5000) i union all select gate(), ''";
    streamed(&mut pipe, "a", sql, json!({})).await;
    assert_eq!(pipe.next().await.unwrap()["code"], "result_start");
    assert_eq!(pipe.next().await.unwrap()["rows_batch_count"], 1000);
    let running = "select count(*) from pg_stat_activity where query like '%gate()%' and state = 'active' \
                   and datname = current_database() and pid <> pg_backend_pid()";
    // Rows are asked for in portions: the next one may not have been asked for when the batch is sent.
    db.until_value(running, "1").await;
    holder.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
    let (events, rows) = all(&mut pipe, "a").await;
    assert_eq!((rows.len(), events.last().unwrap()["command_tag"].as_str()), (4001, Some("ROWS 5001")));
    pipe.finish().await;
}

#[tokio::test]
async fn the_first_row_comes_before_the_second_is_computed() {
    // Also if a batch is not full yet, and if rows need a conversion.
    let db = database().await;
    db.run(
        "create function gate(n int) returns int language plpgsql as $$ \
         begin if n > 1 then perform pg_advisory_xact_lock_shared(7); end if; return n; end $$",
    )
    .await;
    let holder = db.connect().await;
    let mut pipe = Pipe::on(&db);
    for (sql, options) in [
        ("select gate(i) as n from generate_series(1, 5) i", json!({"batch_rows": 1})),
        ("select gate(i) as n from generate_series(1, 5) i", json!({})),
        ("select row(gate(i), 'x') as n from generate_series(1, 5) i", json!({})),
    ] {
        for _ in 0..2 {
            holder.batch_execute("select pg_advisory_lock(7)").await.unwrap();
            streamed(&mut pipe, "a", sql, options.clone()).await;
            assert_eq!(pipe.next().await.unwrap()["code"], "result_start");
            let first = pipe.next().await.unwrap();
            assert_eq!(first["rows_batch_count"], 1, "{first}");
            holder.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
            let (events, rows) = all(&mut pipe, "a").await;
            assert_eq!((rows.len(), &events.last().unwrap()["command_tag"]), (4, &json!("ROWS 5")), "{events:?}");
        }
    }
    pipe.finish().await;
}

/// Q-1: PostgreSQL sends the rows of RETURNING when all of them are written. docs/topics/agent-cli.md says so.
#[tokio::test]
async fn the_rows_of_a_write_come_when_all_of_them_are_written() {
    let db = database().await;
    let holder = with_gate(&db).await;
    db.run("create table written (n int, gate int)").await;
    let mut pipe = Pipe::on(&db);
    let sql =
        "insert into written select i, case when i = 5000 then gate() end from generate_series(1, 5000) i returning n";
    streamed(&mut pipe, "a", sql, json!({"read_only": false})).await;
    let waiting = "select count(*) from pg_stat_activity where query like '%gate()%' and wait_event = 'advisory' \
                   and datname = current_database()";
    db.until_value(waiting, "1").await;
    // Whatever had been sent of the write before it waited would be here before this answer.
    pipe.send(json!({"code": "ping"})).await;
    let mut before = Vec::new();
    loop {
        let event = pipe.next().await.unwrap();
        if event["code"] == "pong" {
            break;
        }
        before.push(event);
    }
    assert!(!codes(&before).contains(&"result_rows"), "{before:?}");
    holder.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
    let (_, rows) = all(&mut pipe, "a").await;
    assert_eq!(rows.len(), 5000);
    pipe.finish().await;
}

#[tokio::test]
async fn the_timeout_is_that_of_the_whole_stream() {
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    let began = Instant::now();
    let sql = "select i, pg_sleep(0.3) from generate_series(1, 100) i";
    streamed(&mut pipe, "a", sql, json!({"statement_timeout_ms": 1000})).await;
    let (events, rows) = all(&mut pipe, "a").await;
    assert_eq!(events.last().unwrap()["sqlstate"], "57014", "{events:?}");
    assert!(rows.len() <= 4 && began.elapsed() < Duration::from_secs(20), "{} rows, {:?}", rows.len(), began.elapsed());
    assert_eq!(pipe.run("b", "select 1 as n").await["code"], "result");
    pipe.finish().await;
}

#[tokio::test]
async fn records_of_a_stream_are_kept_by_their_bytes() {
    // M5
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    assert_eq!(pipe.run("warm", "select row(1) as r").await["code"], "result");
    let idle = resident_kib(pipe.id());
    let sql = "select row(repeat('x', 3000000)) as r from generate_series(1, 64)";
    // Without a time limit: a busy machine takes long for 192 MB.
    streamed(&mut pipe, "a", sql, json!({"statement_timeout_ms": 0})).await;
    let (events, rows) = all(&mut pipe, "a").await;
    assert_eq!((rows.len(), &events.last().unwrap()["code"]), (64, &json!("result_end")));
    let too_large = pipe.run("b", sql).await;
    assert_eq!(too_large["error_code"], "result_too_large", "{too_large}");
    let grown = resident_kib(pipe.id()) - idle;
    assert!(grown < 80 * 1024, "records of 3 MB went through, and {grown} KiB were taken");
    // Many small ones and then large ones.
    let sql = "select row(repeat('x', case when i < 700 then 1 else 3000000 end)) as r from generate_series(1, 1000) i";
    streamed(&mut pipe, "c", sql, json!({})).await;
    let (events, _) = all(&mut pipe, "c").await;
    assert_eq!(events.last().unwrap()["sqlstate"], "54000", "{events:?}");
    pipe.finish().await;
}

#[tokio::test]
async fn parallel_workers_compute_a_stream() {
    // Rows that are asked for in portions would have none.
    let db = database().await;
    db.run(
        "create table large as select i from generate_series(1, 10000) i; \
         create function is_worker() returns bool language plpgsql parallel safe as $$ \
         begin return (select leader_pid is not null from pg_stat_get_activity(pg_backend_pid())); end $$",
    )
    .await;
    db.run("analyze large").await;
    for setting in [
        "max_parallel_workers_per_gather = 2",
        "parallel_setup_cost = 0",
        "parallel_tuple_cost = 0",
        "min_parallel_table_scan_size = 0",
        "parallel_leader_participation = off",
    ] {
        db.run(&format!("alter database {} set {setting}", db.name())).await;
    }
    let mut pipe = Pipe::on(&db);
    streamed(&mut pipe, "a", "select count(*) as n from large where is_worker()", json!({})).await;
    let (events, rows) = all(&mut pipe, "a").await;
    assert_eq!(rows, [json!({"n": 10000})], "{events:?}");
    pipe.finish().await;
}

#[tokio::test]
async fn an_error_in_the_middle_is_the_one_end() {
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    streamed(&mut pipe, "a", "select 1 / (5000 - i) as n from generate_series(1, 6000) i", json!({})).await;
    let (events, rows) = all(&mut pipe, "a").await;
    assert_eq!(rows.len() % 1000, 0);
    assert_eq!(events.last().unwrap()["sqlstate"], "22012");
    assert_eq!(events.iter().filter(|event| is_terminal(event)).count(), 1);
    assert_eq!(pipe.run("b", "select 1 as n").await["code"], "result");
    pipe.finish().await;
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("its peak");
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_query_and_memory_stays_where_it_is() {
    // back-pressure; bounded memory; cancel and ping work meanwhile
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    // More than the pipe may take of memory.
    let rows = long_form::choose(150_000, 300_000);
    let sql = format!("select i as n, repeat('y', 200) as t from generate_series(1, {rows}) i");
    assert_eq!(pipe.run("warm", "select 1 as n").await["code"], "result");
    let idle = resident_kib(pipe.id());
    streamed(&mut pipe, "a", &sql, json!({"statement_timeout_ms": 0})).await;
    let waits =
        "select count(*) from pg_stat_activity where wait_event = 'ClientWrite' and datname = current_database()";
    db.until_value(waits, "1").await;
    let (events, received) = all(&mut pipe, "a").await;
    assert_eq!((received.len(), codes(&events).last().copied()), (rows, Some("result_end")));
    let grown = resident_kib(pipe.id()) - idle;
    assert!(grown < 24 * 1024, "{rows} rows of 200 bytes went through, and {grown} KiB were taken");

    // The query is cancelled although its output is unread.
    streamed(&mut pipe, "b", &sql, json!({"statement_timeout_ms": 0})).await;
    db.until_value(waits, "1").await;
    pipe.send(json!({"code": "cancel", "id": "b"})).await;
    let active = "select count(*) from pg_stat_activity where state = 'active' and query like '%repeat(''y''%' \
                  and pid <> pg_backend_pid()";
    // The backend gets the cancel in every case.
    db.until_value(active, "0").await;
    assert_eq!(all(&mut pipe, "b").await.0.last().unwrap()["error_code"], "cancelled");

    // The statement times out while its output is unread.
    let endless = "select generate_series(1, 1000000000) as n, repeat('y', 200) as t";
    streamed(&mut pipe, "c", endless, json!({"statement_timeout_ms": 1000})).await;
    assert_eq!(pipe.next().await.unwrap()["code"], "result_start");
    db.until_value(active, "0").await;
    let (events, _) = all(&mut pipe, "c").await;
    assert_eq!(events.last().unwrap()["sqlstate"], "57014");
    pipe.finish().await;
}

#[tokio::test]
async fn a_query_streams_its_rows_and_ends_when_its_reader_closes() {
    let db = database().await;
    let mut command = front_end("query", &db);
    // In the list, because one in FROM is written to disk whole before its first row.
    let sql = "select generate_series(1, 100000000) as n";
    command.args(["--stream-rows", "--statement-timeout-ms", "0", "--sql", sql]);
    let mut child = command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut some = [0; 100];
    tokio::io::AsyncReadExt::read_exact(&mut output, &mut some).await.unwrap();
    assert!(some.starts_with(b"{\"code\":\"result_start\""));
    drop(output);
    let status = tokio::time::timeout(Duration::from_secs(20), child.wait()).await.expect("it ends").unwrap();
    assert_eq!(status.code(), Some(1));
    let active = "select count(*) from pg_stat_activity where state = 'active' and query like '%generate_series(1, 1000000%' \
                  and pid <> pg_backend_pid()";
    assert_eq!(db.value(active).await, "0");
}
