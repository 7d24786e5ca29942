//! `manifests/dba.toml`: each tool names what is wrong, and a tool that lacks something is left out.

use serde_json::{Value, json};
use testkit::{ConfigDir, Database, Server, Standby, database, external, lone_database_with, poll, repository, run};
use tokio::process::Command;

const NEEDING_A_ROLE: [&str; 5] =
    ["top_queries", "blocking_sessions", "long_transactions", "replication_state", "settings_that_differ"];
const FOR_EVERYBODY: [&str; 4] = ["table_health", "unused_indexes", "missing_indexes", "cache_hit"];

/// A login for reading with the role `pg_monitor`, which reads `social`.
async fn monitor(db: &Database) -> String {
    let url = db.login("monitor", "pg_monitor").await;
    db.run(&format!(
        "grant usage on schema social to monitor_{0}; grant select on all tables in schema social to monitor_{0}",
        db.name()
    ))
    .await;
    url
}

fn command(db: &Database) -> Command {
    let mut command = Server::bare_command(db);
    command.arg("--manifest").arg(repository().join("manifests/dba.toml"));
    command
}

/// A server that reads as a login with the role `pg_monitor`.
async fn monitoring(db: &Database) -> Server {
    let mut command = command(db);
    command.env("COUNTERSIGN_READ_URL", monitor(db).await);
    Server::start(command).await
}

async fn rows(server: &Server, tool: &str, arguments: Value) -> Vec<Value> {
    server.succeed(tool, arguments).await["data"]["rows"].as_array().unwrap().clone()
}

fn has(rows: &[Value], expected: &Value) -> bool {
    rows.iter().any(|row| expected.as_object().unwrap().iter().all(|(key, value)| row[key] == *value))
}

/// Statistics of a session arrive a moment after its statements; before PostgreSQL 15, with its next statement.
async fn until_it_says(db: &Database, server: &Server, tool: &str, arguments: Value, expected: Value) {
    let says = async || {
        db.run("select 1").await;
        has(&rows(server, tool, arguments.clone()).await, &expected)
    };
    poll::until(&format!("{expected} of {tool}"), says).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_blocks_another_and_a_long_transaction_are_named() {
    let db = database().await;
    let server = monitoring(&db).await;
    let lock = "update social.account set handle = handle where account_id = 'default'";
    let (holder, waiter) = (db.connect().await, db.connect().await);
    let pid = async |client: &tokio_postgres::Client| -> i32 {
        client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0)
    };
    let (holding, waiting) = (pid(&holder).await, pid(&waiter).await);
    holder.batch_execute(&format!("begin; {lock}")).await.unwrap();
    let blocked = tokio::spawn(async move { waiter.batch_execute(lock).await });
    let named = json!({"waiting_pid": waiting, "blocking_pid": holding, "blocking_state": "idle in transaction",
                       "waiting_query": lock, "waiting_role": "postgres"});
    until_it_says(&db, &server, "blocking_sessions", json!({}), named).await;
    let open = json!({"pid": holding, "state": "idle in transaction"});
    assert!(has(&rows(&server, "long_transactions", json!({"older_than_s": 0})).await, &open));
    assert!(!has(&rows(&server, "long_transactions", json!({"older_than_s": 3600})).await, &open));
    // The text of a statement with a password is not shown.
    holder.batch_execute("/* '; password */ select 1").await.unwrap();
    let hidden = json!({"pid": holding, "query": "[not shown: it may have a password]"});
    assert!(has(&rows(&server, "long_transactions", json!({"older_than_s": 0})).await, &hidden));

    holder.batch_execute("rollback").await.unwrap();
    blocked.await.unwrap().unwrap();
    let free =
        async || !rows(&server, "blocking_sessions", json!({})).await.iter().any(|row| row["waiting_pid"] == waiting);
    poll::until("nobody waits", free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_rows_an_unused_index_and_a_table_without_an_index_are_named() {
    let db = database().await;
    db.run(
        "create table social.health (id int primary key, kind int, filler text) with (autovacuum_enabled = false);
         insert into social.health select i, i % 100, repeat('x', 100) from generate_series(1, 20000) i;
         create index health_unused on social.health (kind); create unique index health_key on social.health (id, kind);
         select count(*) from social.health where filler = 'y'",
    )
    .await;
    let server = monitoring(&db).await;
    // VACUUM reports its numbers at once, and what arrives later is added to them.
    until_it_says(&db, &server, "table_health", json!({"table": "social.health"}), json!({"live_rows": 20000})).await;
    for sql in ["vacuum analyze social.health", "delete from social.health where id > 15000"] {
        db.run(sql).await;
    }
    let dead = json!({"schema_name": "social", "table_name": "health", "dead_rows": 5000, "live_rows": 15000, "dead_percent": 25.0});
    until_it_says(&db, &server, "table_health", json!({"table": "social.health"}), dead).await;
    let health = rows(&server, "table_health", json!({"table": "social.health"})).await.remove(0);
    assert!(health["bloat_bytes"].as_i64().unwrap() < 100_000, "it was full when it was analyzed: {health}");
    assert!(health["freeze_age"].as_i64().is_some() && health["last_analyze"].is_string(), "{health}");
    assert_eq!(rows(&server, "table_health", json!({"table": "social.nothing"})).await, Vec::<Value>::new());
    for sql in
        ["vacuum social.health", "update social.health set filler = '' where id > 2000", "vacuum analyze social.health"]
    {
        db.run(sql).await;
    }
    let bloated = async || {
        db.run("select 1").await;
        let health = rows(&server, "table_health", json!({"table": "social.health"})).await.remove(0);
        health["bloat_bytes"].as_i64().unwrap() > 1_000_000 && health["last_vacuum"].is_string()
    };
    poll::until("the space of the long rows is bloat", bloated).await;
    assert_eq!(rows(&server, "table_health", json!({"limit": 1})).await[0]["table_name"], "health", "it is the worst");

    let unused = json!({"schema_name": "social", "table_name": "health", "index_name": "health_unused"});
    let of_any_size = json!({"min_bytes": 0});
    let indexes = rows(&server, "unused_indexes", of_any_size.clone()).await;
    assert!(has(&indexes, &unused), "{indexes:?}");
    assert!(!has(&indexes, &json!({"index_name": "health_key"})), "a unique index is needed without a scan");
    assert!(!has(&rows(&server, "unused_indexes", json!({})).await, &unused), "it is small");
    db.run(
        "set enable_seqscan = off; set enable_bitmapscan = off; select count(filler) from social.health where kind = 7",
    )
    .await;
    let is_used = async || {
        db.run("select 1").await;
        !has(&rows(&server, "unused_indexes", of_any_size.clone()).await, &unused)
    };
    poll::until("the index is used", is_used).await;

    let large = |rows: &[Value]| rows.iter().find(|row| row["table_name"] == "health").cloned();
    let read =
        poll::until_some("the table is named", async || large(&rows(&server, "missing_indexes", json!({})).await))
            .await;
    assert!(read["sequential_scans"].as_i64().unwrap() > 0 && read["rows_per_scan"].as_i64().unwrap() > 1000, "{read}");
    assert_eq!(large(&rows(&server, "missing_indexes", json!({"min_rows": 1_000_000})).await), None);
    let hits = rows(&server, "cache_hit", json!({})).await;
    assert_eq!((&hits[0]["kind"], &hits[0]["name"]), (&json!("database"), &json!(db.name())), "{hits:?}");
    assert!(hits[0]["hit_percent"].as_f64().is_some_and(|percent| (0.0..=100.0).contains(&percent)), "{hits:?}");
}

/// A cluster with `pg_stat_statements`; `None` if PostgreSQL lacks it.
async fn with_statistics_of_statements() -> Option<Database> {
    let db = database().await;
    let available = "select count(*) from pg_available_extensions where name = 'pg_stat_statements'";
    if db.value(available).await == "0" {
        external::skip("PostgreSQL has no extension pg_stat_statements: apt-get install postgresql-contrib");
        return None;
    }
    let settings = [
        ("shared_preload_libraries", "pg_stat_statements"),
        ("archive_command", "send --key s3cret"),
        ("work_mem", "5MB"),
    ];
    Some(lone_database_with(&settings).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slowest_queries_replication_and_settings_are_named_without_secrets() {
    let Some(db) = with_statistics_of_statements().await else { return };
    // The schema of the extension is the operator's choice.
    db.run(
        "create schema \"Odd schema\"; create extension pg_stat_statements schema \"Odd schema\";
         grant usage on schema \"Odd schema\" to public; select pg_sleep(0.2), 's3cret'; alter role postgres password 's3cret'",
    )
    .await;
    let server = monitoring(&db).await;
    let slow = json!({"query": "select pg_sleep($1), $2", "calls": 1, "role": "postgres"});
    let top = rows(&server, "top_queries", json!({"limit": 100})).await;
    assert!(has(&top, &slow), "{top:?}");
    assert!(!json!(top).to_string().contains("s3cret"), "{top:?}");
    assert_eq!(rows(&server, "top_queries", json!({"limit": 1})).await.len(), 1);

    let settings = rows(&server, "settings_that_differ", json!({})).await;
    for (name, value) in [
        ("work_mem", "5120"),
        ("shared_preload_libraries", "pg_stat_statements"),
        ("archive_command", "[not shown: it may have a secret]"),
    ] {
        assert!(has(&settings, &json!({"name": name, "value": value})), "{name}: {settings:?}");
    }
    assert!(!has(&settings, &json!({"name": "search_path"})) && !json!(settings).to_string().contains("s3cret"));

    assert_eq!(rows(&server, "replication_state", json!({})).await, Vec::<Value>::new());
    db.run("select pg_create_physical_replication_slot('gone', true)").await;
    let standby = Standby::of(&db, &[]).await;
    for expected in [
        json!({"kind": "slot", "name": "gone", "state": "inactive", "wal_status": "reserved"}),
        json!({"kind": "standby", "state": "streaming", "sync_state": "async"}),
    ] {
        until_it_says(&db, &server, "replication_state", json!({}), expected).await;
    }
    server.close().await;

    // The same tools read from the standby.
    let mut command = command(&db);
    command.env("COUNTERSIGN_READ_URL", standby.database.url_as(&format!("monitor_{}", db.name())));
    let server = Server::start(command).await;
    until_it_says(&db, &server, "replication_state", json!({}), json!({"kind": "receiver", "state": "streaming"}))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_lacks_a_role_or_an_extension_is_left_out_with_one_line() {
    let db = database().await;
    let mut strict = command(&db);
    strict.arg("--strict");
    let server = Server::start(strict).await;
    let names = server.tool_names().await;
    assert!(FOR_EVERYBODY.iter().all(|tool| names.iter().any(|name| name == tool)), "{names:?}");
    assert!(!NEEDING_A_ROLE.iter().any(|tool| names.iter().any(|name| name == tool)), "{names:?}");
    server.close().await;

    let folder = ConfigDir::new();
    let path = repository().join("manifests/dba.toml");
    let config =
        |more: &str| format!("database_url = {:?}\nlog = \"warn\"\nmanifests = [{path:?}]\n{more}", db.writer_url());
    let check = async |more: &str| {
        let output = run(folder.command(&config(more)).arg("check")).await;
        assert_eq!(output.code, 0, "{}", output.err);
        output.out
    };
    let said = check("").await;
    let left_out = |said: &str| said.lines().filter(|line| line.starts_with("left out: ")).count();
    assert_eq!(left_out(&said), 5, "{said}");
    for part in [
        "tool top_queries: the database lacks the extension pg_stat_statements (create extension pg_stat_statements)",
        "tool blocking_sessions: the login countersign_reader lacks the role pg_monitor (grant pg_monitor to countersign_reader)",
        "4 tools fit the database",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let read_url = format!("read_url = {:?}\n", monitor(&db).await);
    let said = check(&read_url).await;
    assert!(left_out(&said) == 1 && said.contains("8 tools fit the database"), "{said}");

    // A profile of only such tools is no mistake. They are served as soon as nothing is missing.
    let profile = "profile = \"dba\"\ndrift_check_ms = 100\n[profiles.dba]\ntools = [\"top_queries\"]\n";
    let mut command = folder.command(&config(&format!("{read_url}{profile}")));
    command.arg("serve");
    let server = Server::start(command).await;
    assert_eq!(server.tool_names().await, Vec::<String>::new());
    db.run("create extension pg_stat_statements").await;
    poll::until("the tool is served", async || server.tool_names().await == ["top_queries"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_with_masks_reads_no_statements_of_others() {
    let db = database().await;
    let monitor = monitor(&db).await;
    let path = repository().join("manifests/dba.toml");
    let config = format!(
        "database_url = {:?}\nread_url = {monitor:?}\nlog = \"warn\"\nmanifests = [{path:?}]\n\
         [mask]\n\"social.account.handle\" = {{ mask = \"null\", profiles = {{ admin = \"none\" }} }}\n",
        db.writer_url()
    );
    let folder = ConfigDir::new();
    let serve = async |profile: &str| {
        let mut command = folder.command(&config);
        command.args(["serve", "--profile", profile]);
        Server::start(command).await
    };
    let server = serve("readonly").await;
    for tool in ["blocking_sessions", "long_transactions", "replication_state"] {
        let error = server.fail(tool, json!({}), "not_permitted").await;
        assert!(error["message"].as_str().unwrap().contains("pg_stat_get_activity shows the statements"), "{error}");
    }
    for query in ["select query from pg_stat_activity", "select pg_stat_get_backend_activity(1)"] {
        server.fail("query_database", json!({"query": query}), "not_permitted").await;
    }
    for tool in ["table_health", "unused_indexes", "missing_indexes", "cache_hit", "settings_that_differ"] {
        server.succeed(tool, json!({})).await;
    }
    server.close().await;
    serve("admin").await.succeed("long_transactions", json!({})).await;
}
