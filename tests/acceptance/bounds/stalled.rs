//! A client that sends requests and does not read the responses keeps neither a transaction nor unbounded memory. It
//! gets every response once it reads again.

use testkit::RawStdioServer;

use super::*;

/// What they may take, in KiB: less than [`ALLOWED_KIB`], so that it shows if their blocks came from the heaps of threads.
const HELD_KIB: u64 = 40 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_keeps_no_transaction_and_no_memory_and_gets_all_responses() {
    let db = database().await;
    let mut command = Server::bare_command(&db);
    command.args(["--query-timeout-ms", "60000"]);
    let mut server = RawStdioServer::start(command, "2025-06-18").await;
    let large = json!({"name": "query_database", "arguments": {"query": "select repeat('x', 1000000) as x"}});
    assert_eq!(server.request(0, "tools/call", large.clone()).await["result"]["isError"], false);
    let memory = ProcessMemory::of(server.pid());
    let calls: u32 = long_form::choose(60, 150);
    for id in 1..=calls {
        server.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": large}).to_string()).await;
    }
    // As many as there is room for have been read, 12 of 1 MB, and no more: each session has been back in its pool since.
    let quiet = "select 1 where (select count(*) from pg_stat_activity where usename = 'countersign_reader' \
                 and datname = current_database() and state = 'idle' \
                 and (query = 'rollback' or query like '%pg_advisory_unlock_all%')) = 8 \
                 and not exists (select from pg_stat_activity where usename = 'countersign_reader' \
                 and datname = current_database() and (state <> 'idle' or state_change > clock_timestamp() - interval '0.3 s'))";
    db.first_value(quiet).await;
    let held = memory.peak_above_idle_kib();
    println!("{calls} answers of 1 MB that nobody reads: peak +{:.1} MiB", held as f64 / MIB);
    assert!(held < HELD_KIB, "{held} KiB");
    let mut answered: Vec<u64> = Vec::new();
    for _ in 1..=calls {
        let answer = server.receive().await;
        assert_eq!(answer["result"]["structuredContent"]["data"]["row_count"], 1, "{}", answer["error"]);
        answered.push(answer["id"].as_u64().unwrap());
    }
    answered.sort_unstable();
    assert_eq!(answered, (1..=u64::from(calls)).collect::<Vec<_>>());
    let held = memory.peak_above_idle_kib();
    println!("{calls} answers of 1 MB, read at last: peak +{:.1} MiB", held as f64 / MIB);
    assert!(held < HELD_KIB, "{held} KiB");
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_requests_than_there_is_memory_for_are_refused_and_the_others_answered() {
    let db = database().await;
    let mut server = RawStdioServer::start(Server::bare_command(&db), "2025-06-18").await;
    let memory = ProcessMemory::of(server.pid());
    let long = "x".repeat(3 << 20);
    let mut blocker = db.connect().await;
    let lock = blocker.transaction().await.unwrap();
    db.run("create table public.held (n int); grant select on public.held to countersign_reader").await;
    lock.batch_execute("lock table public.held in access exclusive mode").await.unwrap();
    for id in 1..=6 {
        let query = json!({"query": "select n, $1::text from public.held", "params": [long]});
        let params = json!({"name": "query_database", "arguments": query});
        server.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()).await;
    }
    // Two are under way, and wait for the lock.
    for _ in 0..4 {
        let answer = server.receive().await;
        assert_eq!(answer["error"]["code"], -32000, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("wait for an answer"), "{answer}");
        assert!((3..=6).contains(&answer["id"].as_u64().unwrap()), "{answer}");
    }
    lock.rollback().await.unwrap();
    for _ in 0..2 {
        let answer = server.receive().await;
        assert_eq!(answer["result"]["structuredContent"]["data"]["row_count"], 0, "{answer}");
    }
    let held = memory.peak_above_idle_kib();
    println!("6 requests of 3 MiB at once: peak +{:.1} MiB", held as f64 / MIB);
    assert!(held < ALLOWED_KIB, "{held} KiB");
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_too_many_values_is_refused_under_its_id_before_they_are_stored() {
    let db = database().await;
    let mut server = RawStdioServer::start(Server::bare_command(&db), "2025-06-18").await;
    let memory = ProcessMemory::of(server.pid());
    // Just within the length, and far beyond it, where the id stands behind all that is passed over.
    for (count, code) in [(1_900_000, -32602), (7_000_000, -32600)] {
        let numbers = format!("{}1", "1,".repeat(count));
        let params =
            format!(r#"{{"name":"query_database","arguments":{{"query":"select $1::text","params":[[{numbers}]]}}}}"#);
        server.send(&format!(r#"{{"jsonrpc":"2.0","method":"tools/call","params":{params},"id":{count}}}"#)).await;
        let answer = server.receive().await;
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &json!(count)), "{answer}");
        let held = memory.peak_above_idle_kib();
        println!("{count} numbers in a message: peak +{:.1} MiB", held as f64 / MIB);
        assert!(held < ALLOWED_KIB, "{held} KiB");
    }
    assert!(server.close().await);
}
