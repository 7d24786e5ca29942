//! A log that the database does not take: reads go on, and the log says what it has not.

use nix::sys::signal::Signal;
use serde_json::json;
use testkit::{HttpServer, Server, send_signal};

use super::{logged, logging, shop};

#[tokio::test(flavor = "multi_thread")]
async fn reads_do_not_wait_for_a_locked_log_and_are_logged_later() {
    let db = shop().await;
    let server = Server::start(logging(&db, "metadata")).await;
    let lock = db.lock("countersign.read_log").await;
    let waits = "select count(*) from pg_locks l join pg_database d on d.oid = l.database \
                 where not l.granted and l.relation = 'countersign.read_log'::regclass and d.datname = current_database()";
    server.query("select id from shop.customers").await;
    db.until_value(waits, "1").await;
    // The log is waiting for the lock, and a read is answered all the same.
    for _ in 0..20 {
        server.query("select name from shop.customers").await;
    }
    lock.release().await;
    server.close().await;
    assert_eq!(logged(&db, "outcome").await, vec![vec!["ok".to_owned()]; 21]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_neither_loses_nor_doubles_an_entry() {
    let db = shop().await;
    let server = Server::start(logging(&db, "metadata")).await;
    server.query("select 1").await;
    let count = "select count(*) from countersign.read_log";
    db.until_value(count, "1").await;
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
               where datname = current_database() and pid <> pg_backend_pid() and query like '%log_reads%'";
    let ended = db.value(end).await;
    assert_eq!(ended, "1", "the session of the log");
    server.query("select 2").await;
    db.until_value(count, "2").await;
    // A ledger that has lost its function is as good as one that is away.
    db.run("alter function countersign.log_reads(uuid, bigint, bigint, bigint, text[]) rename to gone").await;
    server.query("select 3").await;
    db.run("alter function countersign.gone(uuid, bigint, bigint, bigint, text[]) rename to log_reads").await;
    server.close().await;
    assert_eq!(db.value(count).await, "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_counts_what_it_loses_and_the_log_says_so_afterwards() {
    let db = shop().await;
    let mut command = HttpServer::command(&db);
    command.env("COUNTERSIGN_READS_LOG", "text").env("COUNTERSIGN_HTTP_REQUESTS_PER_S", "0");
    let server = HttpServer::start(command).await;
    let lock = db.lock("countersign.read_log").await;
    // The batch that waits for the lock is taken before anything is lost, so there is one gap.
    let client = server.session("2025-11-25").await;
    client.call("query_database", json!({"query": "select 0"})).await;
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%log_reads%' \
                   and datname = current_database()";
    db.until_value(waiting, "1").await;
    // 8 MiB of texts of 8 KiB fill the queue.
    let clients = futures_util::future::join_all((0..8).map(|_| server.session("2025-11-25"))).await;
    let text = format!("select 1 /* {} */", "x".repeat(8 * 1024));
    let calls = 1200;
    let text = &text;
    let answers = clients.iter().map(async |client| {
        for _ in 0..calls / 8 {
            let answer = client.call("query_database", json!({"query": text})).await;
            assert_eq!(answer["success"], true, "{answer}");
        }
    });
    futures_util::future::join_all(answers).await;
    let metrics = client.send(client.request(reqwest::Method::GET, "/metrics")).await.body;
    let sample = |state: &str| {
        let name = format!("countersign_read_log_entries_total{{state=\"{state}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse::<u32>().unwrap()
    };
    let lost = sample("lost");
    assert!(lost > 0 && lost < calls && sample("written") == 0, "{lost}");
    server.logged("reads were not logged").await;
    lock.release().await;
    let told = "select a.entries || ' ' || (a.first_at < a.last_at and a.last_at < a.read_at) || ' ' || coalesce(a.tool_name, 'no tool') \
                from countersign.read_log a where a.outcome = 'lost'";
    assert_eq!(db.first_value(told).await, format!("{lost} true no tool"));
    let written = "select count(*) from countersign.read_log where outcome = 'ok'";
    db.until_value(written, &(calls - lost + 1).to_string()).await;
    // One gap, one row.
    client.call("query_database", json!({"query": "select 2"})).await;
    db.until_value(written, &(calls - lost + 2).to_string()).await;
    assert_eq!(db.value("select count(*) from countersign.read_log where outcome = 'lost'").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_waits_a_moment_for_the_log_and_says_what_it_has_not_written() {
    let db = shop().await;
    let mut command = HttpServer::command(&db);
    command.env("COUNTERSIGN_READS_LOG", "metadata");
    let mut server = HttpServer::start(command).await;
    let lock = db.lock("countersign.read_log").await;
    server.http_client().call("query_database", json!({"query": "select id from shop.customers"})).await;
    send_signal(server.pid(), Signal::SIGTERM);
    let warning = server.logged("the last reads were not logged").await;
    assert!(warning.contains("reads=1"), "{warning}");
    assert!(server.ended().await.success());
    lock.release().await;
    assert_eq!(db.value("select count(*) from countersign.read_log").await, "0", "what was reported as unlogged is");
}
