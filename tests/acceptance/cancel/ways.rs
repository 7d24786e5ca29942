//! Every cause of a cancellation, over every kind of connection.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

pub(super) const SLEEPING: &str = "pg_sleep(61)";

pub(super) fn sleeps() -> Value {
    json!({"query": format!("select {SLEEPING}")})
}

/// Cancels one call by notification; from the notification to the free backend.
pub(super) async fn cancelled(
    session: &mut Session,
    watch: &Watch,
    tool: &str,
    arguments: Value,
    like: &str,
) -> Duration {
    let id = session.begin(tool, arguments).await;
    let pid = watch.backend(like).await;
    let since = Instant::now();
    session.cancel(id).await;
    watch.until_free(pid, since).await
}

/// The same, some times over.
async fn several(session: &mut Session, watch: &Watch, name: &str, tool: &str, arguments: &Value, like: &str) {
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(cancelled(session, watch, tool, arguments.clone(), like).await);
    }
    report(name, times);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_frees_the_backend_in_both_eras_whatever_the_call_does() {
    exclusive().await;
    let db = database().await;
    db.run(
        "create function public.folded(n int) returns int immutable language sql as 'select 1 from pg_sleep(61)';
         create table public.held (n int); grant select on public.held to countersign_reader;
         grant execute on all functions in schema public to countersign_reader",
    )
    .await;
    let watch = Watch::on(&db).await;
    let manifest = TestManifest::new(
        "[[tool]]\nname = \"read_slowly\"\naccess = \"read\"\ndescription = \"Read slowly.\"\n\
         sql = \"select 1 as n from pg_sleep(61)\"\n",
    );
    for protocol in [HANDSHAKE, NO_HANDSHAKE] {
        let mut session = Session::start(manifest.command(&db), protocol).await;
        let name = format!("notification, {protocol}");
        several(&mut session, &watch, &name, "query_database", &sleeps(), SLEEPING).await;
        session.lives().await;

        let rows = "select n, repeat('x', 9000) as x, pg_sleep(0.01)::text as y from generate_series(1, 100000) n";
        let rows = json!({"query": rows});
        several(&mut session, &watch, "while rows arrive", "query_database", &rows, "generate_series(1, 100000)").await;

        let explained = json!({"query": "select public.folded(1)"});
        several(&mut session, &watch, "while explain_query plans", "explain_query", &explained, "public.folded").await;

        several(&mut session, &watch, "a read tool of a manifest", "read_slowly", &json!({}), SLEEPING).await;

        let mut blocker = db.connect().await;
        let lock = blocker.transaction().await.unwrap();
        lock.batch_execute("lock table public.held, pg_catalog.pg_description in access exclusive mode").await.unwrap();
        let held = json!({"query": "table public.held"});
        several(&mut session, &watch, "while it waits for a lock", "query_database", &held, "table public.held").await;
        let described = json!({"table": "social.tweet"});
        let name = "describe_database while it waits for a lock";
        several(&mut session, &watch, name, "describe_database", &described, "description").await;
        lock.rollback().await.unwrap();
        session.lives().await;
        assert!(session.server.close().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_comes_before_the_query_has_begun_stops_it_too() {
    // PostgreSQL takes no notice of a cancel that arrives before the statement does.
    exclusive().await;
    let db = database().await;
    let watch = Watch::on(&db).await;
    let mut session = Session::start(quick(&db), HANDSHAKE).await;
    let at_work = "select pid from pg_stat_activity where query like '%pg_sleep(63)%' and state <> 'idle' \
                   and pid <> pg_backend_pid() and datname = current_database()";
    let mut times = Vec::new();
    let tries = long_form::choose(40, 200);
    for number in 0..tries {
        // A new text takes two round trips, one seen before takes one.
        let id = session.query(&format!("select pg_sleep(63) /* {} */", number / 2)).await;
        sleep_us(number * 4000 / tries).await;
        let since = Instant::now();
        session.cancel(id).await;
        let done = AtomicBool::new(false);
        // The next answer says that the server has seen the cancel: nothing begins after it.
        let answered = async {
            session.lives().await;
            done.store(true, Ordering::SeqCst);
        };
        let watched = async {
            let mut last = Duration::ZERO;
            loop {
                let nothing_begins = done.load(Ordering::SeqCst);
                match watch.first(at_work).await {
                    Some(_) => last = since.elapsed(),
                    None if nothing_begins => return last,
                    None => {}
                }
                assert!(last < Duration::from_secs(20), "try {number}: a backend is still at work");
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
        };
        let (time, ()) = tokio::join!(watched, answered);
        times.push(time);
    }
    report("a cancel within 4 ms of the call", times);
    assert!(session.server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_a_connection_is_cancelled_without_disturbing_the_one_that_has_it() {
    let db = database().await;
    let watch = Watch::on(&db).await;
    let mut command = quick(&db);
    command.args(["--read-sessions", "1"]);
    let mut session = Session::start(command, HANDSHAKE).await;
    let first = session.query("select 'first' as who from pg_sleep(0.5)").await;
    let pid = watch.backend("first").await;
    let second = session.query("select 'second' as who").await;
    session.cancel(second).await;
    assert_eq!(session.answer(first).await["data"]["rows"], json!([{"who": "first"}]));
    let third = session.query("select pg_backend_pid() as pid").await;
    assert_eq!(session.answer(third).await["data"]["rows"], json!([{"pid": pid}]), "the same backend goes on");
    assert!(session.server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_frees_the_backend_and_covers_the_whole_call() {
    // PostgreSQL starts statement_timeout anew with each pipeline, so parsing and running may each take all of it.
    exclusive().await;
    let db = database().await;
    db.run("create table public.held (n int); grant select on public.held to countersign_reader").await;
    let watch = Watch::on(&db).await;
    let mut command = quick(&db);
    command.args(["--query-timeout-ms", "1000"]);
    let mut session = Session::start(command, HANDSHAKE).await;
    let mut times = Vec::new();
    for sql in ["select pg_sleep(62)", "select pg_sleep(0.8), (select count(*) from public.held)"] {
        let blocker = db.connect().await;
        let lock = "begin; lock table public.held in access exclusive mode; select pg_sleep(0.799); commit";
        let held = tokio::spawn(async move { blocker.batch_execute(lock).await.unwrap() });
        watch.backend("pg_sleep(0.799)").await;
        let since = Instant::now();
        let id = session.query(sql).await;
        let pid = watch.backend(&sql[..18]).await;
        let error = session.answer(id).await["error"].clone();
        assert_eq!(error["code"], "timeout", "{error}");
        assert_eq!(error["message"], "Database query failed: Query timed out after 1 s");
        assert!(since.elapsed() < Duration::from_millis(2500), "{:?}", since.elapsed());
        times.push(watch.until_free(pid, since + Duration::from_secs(1)).await);
        held.await.unwrap();
    }
    report("deadline", times);
    session.lives().await;
    assert!(session.server.close().await);
}

/// Starts a server, lets it sleep in a backend, ends it in some way; the time until the backend is free.
async fn ended(db: &Database, watch: &Watch, end: impl AsyncFnOnce(RawStdioServer)) -> Duration {
    let mut session = Session::start(quick(db), HANDSHAKE).await;
    session.begin("query_database", sleeps()).await;
    let pid = watch.backend(SLEEPING).await;
    let since = Instant::now();
    let ending = end(session.server);
    let (time, ()) = tokio::join!(watch.until_free(pid, since), ending);
    time
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_stream_and_a_signal_free_the_backend_and_end_the_server() {
    exclusive().await;
    let db = database().await;
    let watch = Watch::on(&db).await;
    let (mut closed, mut terminated, mut interrupted) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        closed.push(ended(&db, &watch, async |server| assert!(server.close().await)).await);
        terminated.push(
            ended(&db, &watch, async |server| {
                signal(server.pid(), Signal::SIGTERM);
                assert!(server.close().await);
            })
            .await,
        );
        interrupted.push(
            ended(&db, &watch, async |server| {
                signal(server.pid(), Signal::SIGINT);
                assert!(server.close().await);
            })
            .await,
        );
    }
    report("closed standard input", closed);
    report("SIGTERM", terminated);
    report("SIGINT", interrupted);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_an_interrupted_read_names_the_stopping_server_or_the_closing_client() {
    let db = database().await;
    let watch = Watch::on(&db).await;
    for (stops, code, words) in
        [(true, -32000, "send the same call again"), (false, -32600, "the client closed its end")]
    {
        for protocol in [HANDSHAKE, NO_HANDSHAKE] {
            let mut session = Session::start(quick(&db), protocol).await;
            let id = session.begin("query_database", sleeps()).await;
            let pid = watch.backend(SLEEPING).await;
            let server = session.server;
            let (answers, is_good) = if stops {
                signal(server.pid(), Signal::SIGTERM);
                server.ended().await
            } else {
                server.close_and_read().await
            };
            let [answer] = &answers[..] else { panic!("{answers:?}") };
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(code)), "{answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains(words) && is_good, "{answer}");
            watch.until_free(pid, Instant::now()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_killed_frees_the_backend() {
    exclusive().await;
    let db = database().await;
    let watch = Watch::on(&db).await;
    let mut times = Vec::new();
    for _ in 0..3 {
        // The client is a process of its own, which holds the only writing end of the server's standard input.
        let mut client: Child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let pipe: Stdio = client.stdout.take().unwrap().try_into().unwrap();
        let mut server = quick(&db).stdin(pipe).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = client.stdin.take().unwrap();
        let hello =
            json!({"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}});
        let call = json!({"name": "query_database", "arguments": sleeps()});
        let lines = format!(
            "{}\n{}\n{}\n",
            json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}),
        );
        tokio::io::AsyncWriteExt::write_all(&mut input, lines.as_bytes()).await.unwrap();
        let pid = watch.backend(SLEEPING).await;
        let since = Instant::now();
        signal(client.id().unwrap(), Signal::SIGKILL);
        drop(server.stdout.take());
        times.push(watch.until_free(pid, since).await);
        assert!(server.wait().await.unwrap().success());
    }
    report("client killed with SIGKILL", times);
}
