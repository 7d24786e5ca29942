//! A backend passes to another client after each call, so a call must leave no state in it. PgBouncer cleans nothing
//! here: the ends of the transactions do.

use serde_json::{Value, json};
use testkit::{External, PgBouncer, Server, database, skip_without};
use tokio_postgres::{Client, SimpleQueryMessage};

/// One backend for each login, and no reset.
async fn unclean() -> PgBouncer {
    PgBouncer::with(&database().await, &[("default_pool_size", "1"), ("server_reset_query_always", "0")]).await
}

/// What is left in the backend that comes next: everything that DISCARD ALL is for.
async fn left(client: &Client) -> Vec<String> {
    let sql = "select 'lock ' || objid from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() \
        union all select 'prepared ' || statement from pg_prepared_statements \
        union all select 'setting ' || name || ' = ' || setting from pg_settings \
            where source = 'session' and setting is distinct from reset_val and name not in ('client_encoding', 'application_name', 'DateStyle', 'TimeZone') \
                and name not like 'countersign.%' \
        union all select 'listens ' || c from pg_listening_channels() c \
        union all select 'cursor ' || name from pg_cursors where name <> '' \
        union all select 'table ' || relname from pg_class where relpersistence = 't' and relkind = 'r' \
        union all select 'role ' || current_user where current_user <> session_user";
    let messages = client.simple_query(sql).await.unwrap();
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    messages.iter().filter_map(row).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_leaves_no_state_in_its_backend() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let pooler = unclean().await;
    let server = Server::start(Server::command_pooled(&pooler)).await;
    let neighbour = pooler.connect("countersign_reader").await;
    let succeeds = |query: &str| (json!({"query": query}), true);
    let fails = |query: &str| (json!({"query": query}), false);
    for (call, is_read) in [
        succeeds("select pg_advisory_lock(1)"),
        succeeds("select pg_advisory_lock(2) from generate_series(1, 600)"),
        succeeds("select row(1, pg_advisory_lock(3)::text)"),
        succeeds("select set_config('search_path', 'social', false), set_config('statement_timeout', '7', false)"),
        succeeds("select set_config('mine.secret', 'x', false)"),
        fails("select pg_advisory_lock(4), 1/0"),
        fails("select row(pg_advisory_lock(5)::text, 1/(n - 90)) from generate_series(1, 100) n"),
        fails(
            "select row(pg_advisory_lock(6)::text, n::text::json) from generate_series(1, 3) n, (values ('{')) v (t) where v.t::json is not null",
        ),
        fails("create temp table mine (id int)"),
        fails("prepare mine as select 1"),
        fails("listen mine"),
        fails("declare mine cursor with hold for select 1"),
        // Cut by its bytes: PgBouncer must close the backend, since the transaction did not end.
        succeeds("select pg_advisory_lock(7), repeat('x', 1000) from generate_series(1, 9000)"),
    ] {
        // Described and run the first time, known the second.
        for _ in 0..2 {
            let mut call = call.clone();
            call["row_limit"] = json!(10_000);
            let envelope = server.call("query_database", call.clone()).await;
            assert_eq!(envelope["success"], is_read, "{call}: {envelope}");
            assert_eq!(left(&neighbour).await, Vec::<String>::new(), "{call}");
        }
    }
    pooler.database().first_value("select 1 where not exists (select from pg_locks where locktype = 'advisory')").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_execute_sql_leaves_no_state_in_its_backend() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let pooler = unclean().await;
    pooler
        .database()
        .run("create sequence social.numbers; grant usage on sequence social.numbers to countersign_writer")
        .await;
    let mut command = Server::command_pooled(&pooler);
    command.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "auto"]);
    let server = Server::start(command).await;
    let neighbour = pooler.connect(ledger::DEFAULT_WRITER).await;
    for (sql, is_done) in [
        ("select pg_advisory_lock(1)", true),
        ("select pg_advisory_lock(2), 1/0", false),
        ("set search_path = social", true),
        ("select set_config('statement_timeout', '7', false)", true),
        ("create temp table mine as select 1 as id", true),
        ("prepare mine as select 1", true),
        ("listen mine", true),
        ("declare mine cursor with hold for select 1", true),
        ("set session characteristics as transaction read only", true),
        ("select nextval('social.numbers')", true),
        ("select nothing", false),
        ("do $$ begin perform pg_advisory_lock(3); raise exception 'no'; end $$", false),
    ] {
        let envelope = server.call("execute_sql", json!({"sql": sql})).await;
        assert_eq!(envelope["success"], is_done, "{sql}: {envelope}");
        assert_eq!(left(&neighbour).await, Vec::<String>::new(), "{sql}");
        let last = neighbour.simple_query("select lastval()").await;
        assert!(last.is_err(), "{sql}: a number of a sequence is left");
        let records = pooler.database().rows("select status from countersign.mutation order by id desc limit 1").await;
        assert_eq!(records[0][0], if is_done { "success" } else { "failure" }, "{sql}");
    }
    // A preview runs before an approval: its statement does not stay prepared.
    pooler.database().run("select countersign.track('social.tweet')").await;
    for (mode, tool) in [("--execute-sql=any", "execute_sql"), ("--execute-sql=rows", "preview_mutation")] {
        let mut command = Server::command_pooled(&pooler);
        command.args(["--profile", "admin", mode, "--execute-sql-tier", "confirm"]);
        let server = Server::start(command).await;
        for (sql, is_shown) in
            [("update social.tweet set text = 'x' where id = 1", true), ("update social.nothing set a = 1", false)]
        {
            let call = json!({"sql": sql});
            let call = if tool == "execute_sql" { call } else { json!({"tool": "execute_sql", "params": call}) };
            let envelope = server.call(tool, call).await;
            assert_eq!(envelope["success"] == true, is_shown, "{mode}: {envelope}");
            assert_eq!(left(&neighbour).await, Vec::<String>::new(), "{mode}: {sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_of_other_clients_in_a_backend_change_no_call() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    // Another program with the same login: PgBouncer hands its backend on as it is.
    let pooler = unclean().await;
    for login in [ledger::DEFAULT_WRITER, "countersign_reader"] {
        let dirty = "prepare countersign_begin as select 'not ours'; prepare countersign_1 as select 'not ours'; \
            set bytea_output = escape; set intervalstyle = sql_standard; set statement_timeout = '1h'; \
            set default_transaction_read_only = off; set default_transaction_isolation = serializable; set jit = on";
        pooler.connect(login).await.batch_execute(dirty).await.unwrap();
    }
    let server = Server::start(Server::command_pooled(&pooler)).await;
    let sql = "select '\\x00'::bytea as b, interval '1 day 2 hours' as i, current_setting('statement_timeout') as t, \
               current_setting('transaction_read_only') as ro, current_setting('jit') as jit";
    let expected = json!({"b": "\\x00", "i": "1 day 02:00:00", "t": "30s", "ro": "on", "jit": "off"});
    for _ in 0..2 {
        assert_eq!(server.query(sql).await, std::slice::from_ref(&expected));
    }
    let posted = server.succeed("post_tweet", json!({"text": "clean"})).await;
    assert_eq!(posted["data"]["duplicate"], Value::Null);
}
