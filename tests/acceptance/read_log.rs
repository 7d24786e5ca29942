//! The log of reads: each field of an entry, what the log never has, losses that are told, and who may read it.

mod losses;

use serde_json::{Value, json};
use testkit::{
    Database, External, HttpServer, PgBouncer, RawStdioServer, Server, TestManifest, database, poll, skip_without,
};
use tokio::process::Command;

const TABLES: &str = "create schema shop;
    create table shop.customers (id int primary key, name text, secret text);
    insert into shop.customers select n, 'name ' || n, 'x' from generate_series(1, 20) n;
    create view shop.names as select id, name from shop.customers;
    create table shop.visits (day date not null) partition by range (day);
    create table shop.visits_2025 partition of shop.visits for values from ('2025-01-01') to ('2026-01-01');
    create table shop.visits_2026 partition of shop.visits for values from ('2026-01-01') to ('2027-01-01');
    create table shop.\"Odd Name\" (id int)";

const TOOLS: &str = r#"
[[tool]]
name = "find_customer"
access = "read"
description = "One customer."
sql = "select id, name from shop.customers where id = $1 and secret = $2"
rows = "at_most_one"
param = [{ name = "id", description = "Which." }, { name = "secret", description = "The secret.", sensitive = true }]
"#;

const PROTOCOL: &str = "2025-11-25";

/// A database with tables that the reader's login may read.
async fn shop() -> Database {
    let db = database().await;
    db.run(TABLES).await;
    ledger::init(&db.target(), &ledger::InitOptions::default()).await.unwrap();
    db
}

/// A server with this extent of the log.
fn logging(db: &Database, detail: &str) -> Command {
    let mut command = Server::bare_command(db);
    command.env("COUNTERSIGN_READS_LOG", detail);
    command
}

/// These columns of the log, in the order of the calls.
async fn logged(db: &Database, columns: &str) -> Vec<Vec<String>> {
    db.rows(&format!("select {columns} from countersign.read_log order by read_at, id")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_read_of_a_client_is_an_entry_with_who_what_and_its_result() {
    let db = shop().await;
    let manifest = TestManifest::new(TOOLS);
    let mut command = logging(&db, "metadata");
    command.args(["--account", "acme", "--actor", "robot"]).args(manifest.arguments());
    let mut server = RawStdioServer::start(command, PROTOCOL).await;
    let query =
        async |server: &mut RawStdioServer, sql: &str| server.call("query_database", json!({"query": sql})).await;
    query(&mut server, "select id, name from shop.names where id <= 3").await;
    query(&mut server, "select 1 as one").await;
    query(&mut server, "select v.day, o.id from shop.visits v, shop.\"Odd Name\" o").await;
    server.call("query_database", json!({"query": "select id from shop.customers", "row_limit": 2})).await;
    query(&mut server, "select 1 / (id - 20) from shop.customers").await;
    query(&mut server, "delete from shop.customers").await;
    query(&mut server, "select id from countersign.read_log").await;
    server.call("find_customer", json!({"id": 1, "secret": "x"})).await;
    server.call("find_customer", json!({"id": "one", "secret": 5})).await;
    server.call("explain_query", json!({"query": "select id from shop.customers"})).await;
    server.call("describe_database", json!({"schema": "shop"})).await;
    server.request(9, "resources/read", json!({"uri": "countersign://database/shop"})).await;
    assert!(server.close().await);

    let entries = logged(&db, "tool_name, outcome, tables, row_count, row_bytes, is_truncated").await;
    let entry = |texts: [&str; 6]| texts.map(str::to_owned).to_vec();
    let rows = |count: u32| (1..=count).map(|id| format!(r#"{{"id":{id}}}"#).len()).sum::<usize>().to_string();
    let names: usize = (1..=3).map(|id| format!(r#"{{"id":{id},"name":"name {id}"}}"#).len()).sum();
    let customer = r#"{"id":1,"name":"name 1"}"#.len().to_string();
    assert_eq!(
        entries,
        [
            entry(["query_database", "ok", "{shop.customers}", "3", &names.to_string(), "f"]),
            entry(["query_database", "ok", "{}", "1", &r#"{"one":1}"#.len().to_string(), "f"]),
            entry(["query_database", "ok", r#"{"shop.\"Odd Name\"",shop.visits}"#, "0", "0", "f"]),
            entry(["query_database", "ok", "{shop.customers}", "2", &rows(2), "t"]),
            entry(["query_database", "sql_error", "{shop.customers}", "NULL", "NULL", "NULL"]),
            entry(["query_database", "not_read_only", "NULL", "NULL", "NULL", "NULL"]),
            entry(["query_database", "not_permitted", "NULL", "NULL", "NULL", "NULL"]),
            entry(["find_customer", "ok", "{shop.customers}", "1", &customer, "f"]),
            entry(["find_customer", "invalid_params", "NULL", "NULL", "NULL", "NULL"]),
            entry(["explain_query", "ok", "{shop.customers}", "NULL", "NULL", "NULL"]),
            entry(["describe_database", "ok", "NULL", "NULL", "NULL", "NULL"]),
            entry(["resources/read", "ok", "NULL", "NULL", "NULL", "NULL"]),
        ]
    );
    let who = "account_id, actor, client_name, client_version, session_id ~ '^[0-9a-f]{32}$', login, \
               read_at between now() - interval '1 minute' and now(), duration_us between 1 and 60000000";
    let expected = ["acme", "robot", "test", "0", "t", "countersign_writer", "t", "t"].map(str::to_owned).to_vec();
    assert!(logged(&db, who).await.iter().all(|row| *row == expected), "{:?}", logged(&db, who).await);
    assert_eq!(db.value("select count(distinct session_id) from countersign.read_log").await, "1");
    let print = "select count(*) from countersign.read_log where fingerprint = sha256('select 1 as one')";
    assert_eq!(db.value(print).await, "1");
    assert_eq!(db.value("select count(query) from countersign.read_log").await, "0", "no text in metadata");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_off_unless_it_is_configured() {
    let db = shop().await;
    let server = Server::on(&db).await;
    server.query("select id from shop.customers").await;
    let sessions = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and query like '%log_reads%'";
    assert_eq!(db.value(sessions).await, "0");
    server.close().await;
    assert_eq!(db.value("select count(*) from countersign.read_log").await, "0");
    assert_eq!(db.value("select count(*) from countersign.read_partitions()").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_stored_where_it_is_configured_and_no_value_of_a_parameter_is() {
    let db = shop().await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("countersign.toml");
    std::fs::write(&config, "[reads]\nlog = \"text\"\n").unwrap();
    let manifest = TestManifest::new(TOOLS);
    let server = Server::bare_with(&db, |it| it.arg("--config").arg(&config).args(manifest.arguments())).await;
    let long = format!("select 1 /* {} */", "é".repeat(8000));
    server.query(&long).await;
    server.call("query_database", json!({"query": "select $1::text", "params": ["top secret"]})).await;
    server.call("find_customer", json!({"id": 1, "secret": "top secret"})).await;
    server.close().await;
    let texts = logged(&db, "query, outcome, fingerprint is not null").await;
    assert!(long.starts_with(&texts[0][0]) && (8180..=8192).contains(&texts[0][0].len()), "{}", texts[0][0].len());
    assert_eq!(
        db.value(&format!("select count(*) from countersign.read_log where fingerprint = sha256('{long}')")).await,
        "1"
    );
    assert_eq!(texts[1], ["select $1::text", "ok", "t"]);
    assert!(texts[2][0].starts_with("select id, name from shop.customers"), "{texts:?}");
    let all = db.rows("select a::text from countersign.read_log a").await;
    assert!(!format!("{all:?}").contains("top secret"), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_the_session_has_prepared_has_its_tables_too() {
    let db = shop().await;
    let mut command = logging(&db, "metadata");
    command.env("COUNTERSIGN_READ_SESSIONS", "1");
    let server = Server::start(command).await;
    for id in 1..=3 {
        let query = "select name from shop.names where id = $1";
        server.succeed("query_database", json!({"query": query, "params": [id]})).await;
    }
    server.close().await;
    assert_eq!(logged(&db, "tables").await, vec![vec!["{shop.customers}".to_owned()]; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_over_http_have_the_account_of_their_token_and_their_session() {
    let db = shop().await;
    let folder = tempfile::tempdir().unwrap();
    let (token, table) = HttpServer::token("mei", &["--label", "mei's agent"]).await;
    let config = format!("{table}\n[reads]\nlog = \"metadata\"\n");
    let server = HttpServer::configured(&db, &folder, &config).await;
    let anyone = server.http_client().with_token(&token);
    let session = anyone.clone().open(PROTOCOL, json!({})).await;
    session.call("query_database", json!({"query": "select id from shop.customers"})).await;
    anyone.call("query_database", json!({"query": "select 2"})).await;
    let count = "select count(*) from countersign.read_log";
    db.until_value(count, "2").await;
    let who = logged(&db, "account_id, actor, client_name, client_version, session_id is not null, tables").await;
    assert_eq!(
        who,
        [["mei", "mei's agent", "test", "0", "t", "{shop.customers}"], ["mei", "mei's agent", "test", "0", "f", "{}"]]
    );
    // The server counts entries once it has the answer to their COMMIT.
    poll::until("both entries are counted", async || {
        let metrics = anyone.send(anyone.request(reqwest::Method::GET, "/metrics")).await.body;
        metrics.contains("countersign_read_log_entries_total{state=\"written\"} 2")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_are_logged_through_a_pooler() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let db = shop().await;
    let pooler = PgBouncer::start(&db).await;
    let mut command = Server::command_pooled(&pooler);
    command.env("COUNTERSIGN_READS_LOG", "metadata");
    let server = Server::start(command).await;
    for _ in 0..2 {
        server.query("select id from shop.names").await;
    }
    server.close().await;
    assert_eq!(logged(&db, "outcome, tables").await, vec![["ok", "{shop.customers}"]; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_its_client_cancels_is_an_entry() {
    let db = shop().await;
    let mut server = RawStdioServer::start(logging(&db, "metadata"), PROTOCOL).await;
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "query_database", "arguments": {"query": "select pg_sleep(60), id from shop.customers"}}});
    server.send(&call.to_string()).await;
    let runs = "select count(*) from pg_stat_activity where query like 'select pg_sleep(60), id%' and wait_event = 'PgSleep' \
                and datname = current_database()";
    db.until_value(runs, "1").await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    server.send(&cancel.to_string()).await;
    let outcome = db.first_value("select outcome || ' ' || tables::text from countersign.read_log").await;
    assert_eq!(outcome, "cancelled {shop.customers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_agent_reads_the_log_and_init_and_doctor_accept_its_days() {
    let db = shop().await;
    let mut command = logging(&db, "text");
    command.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "auto"]);
    let server = Server::start(command).await;
    server.query("select id from shop.customers").await;
    let day = db.first_value("select p.relation::regclass from countersign.read_partitions() p").await;
    for table in ["countersign.read_log", &day] {
        for (tool, argument, sql) in [
            ("query_database", "query", format!("select * from {table}")),
            ("execute_sql", "sql", format!("select * from {table}")),
            ("execute_sql", "sql", format!("delete from {table}")),
            ("execute_sql", "sql", format!("drop table {table}")),
        ] {
            let refused: Value = server.call(tool, json!({argument: sql})).await;
            assert_eq!(refused["success"], false, "{refused}");
        }
    }
    server.close().await;
    assert_eq!(ledger::deviations(&db.target()).await.unwrap(), []);
    let again = ledger::init(&db.target(), &ledger::InitOptions::default()).await.unwrap();
    assert_eq!((again.is_new, again.changes), (false, Vec::new()));
    assert_ne!(db.value("select count(*) from countersign.read_log").await, "0");
    // What is attached to a day is not accepted.
    db.run(&format!("create rule r as on insert to {day} do also notify x")).await;
    let deviations = ledger::deviations(&db.target()).await.unwrap();
    assert_eq!(deviations.len(), 1, "{deviations:?}");
}
