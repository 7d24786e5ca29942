//! Writes happen once, with their records, undo and approval, on any backend.

use futures_util::future::join_all;
use serde_json::{Value, json};
use testkit::social::untouched_tweet;
use testkit::{External, PgBouncer, Server, database, skip_without};

use super::behind_a_pooler;
use crate::proposals::{PRICE, agreement, price};

#[tokio::test(flavor = "multi_thread")]
async fn a_write_its_duplicate_and_its_undo_are_as_without_a_pooler() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let (pooler, server) = behind_a_pooler().await;
    let db = pooler.database();
    let call = json!({"tweet_id": untouched_tweet(db).await});
    let before = db.social().await;
    let liked = server.succeed("like_tweet", call.clone()).await;
    assert_eq!((&liked["data"]["liked"], &liked["meta"]["rows_affected"]), (&json!(true), &json!(1)));
    let other = Server::start(Server::command_pooled(&pooler)).await;
    let again = other.succeed("like_tweet", call.clone()).await;
    assert_eq!(again["data"]["original_correlation_id"], liked["meta"]["correlation_id"]);
    let undo = &liked["meta"]["rollback"];
    other.succeed(undo["undo_tool"].as_str().unwrap(), undo["undo_params"].clone()).await;
    assert_eq!(db.social().await, before);
    let receipt = json!({"correlation_id": liked["meta"]["correlation_id"]});
    assert_eq!(server.succeed("get_mutation_detail", receipt).await["data"]["status"], "success");
    // A write that PostgreSQL refuses: its record, and the next one goes on.
    server.fail("like_tweet", json!({"tweet_id": 999_999}), "sql_error").await;
    let mut again = call;
    again["idempotency_key"] = "again".into();
    assert_eq!(server.succeed("like_tweet", again).await["data"]["duplicate"], Value::Null);
    let records = db.rows("select tool_name, status from countersign.mutation order by id").await;
    let expected = [
        ["like_tweet", "success"],
        ["like_tweet", "duplicate"],
        ["unlike_tweet", "success"],
        ["like_tweet", "failure"],
        ["like_tweet", "success"],
    ];
    assert_eq!(records, expected);
    server.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_share_two_backends_for_two_hundred_calls_at_once() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    // Two servers have 24 sessions each. Without the pooler, each session has a backend.
    let db = database().await;
    let pooler = PgBouncer::with(&db, &[("default_pool_size", "2")]).await;
    let servers = [Server::command_pooled(&pooler), Server::command_pooled(&pooler)].map(Server::start);
    let servers = join_all(servers).await;
    let calls = (0..200).map(|number| {
        let server = &servers[number % 2];
        async move {
            match number % 5 {
                // Each text is written twice, through both servers.
                0 | 1 => server.succeed("post_tweet", json!({"text": format!("mixed {}", number / 10)})).await,
                2 => {
                    let query = json!({"query": "select $1::int as n, pg_sleep(0.001)::text", "params": [number]});
                    let read = server.succeed("query_database", query).await;
                    assert_eq!(read["data"]["rows"][0]["n"], number);
                    read
                }
                3 => server.fail("query_database", json!({"query": "select 1/0"}), "sql_error").await,
                _ => {
                    server.succeed("preview_mutation", json!({"tool": "post_tweet", "params": {"text": "never"}})).await
                }
            }
        }
    });
    join_all(calls).await;
    let posted = db.rows("select text, count(*) from social.tweet where text like 'mixed %' group by text").await;
    assert_eq!(posted.len(), 20);
    assert!(posted.iter().all(|row| row[1] == "1"), "{posted:?}");
    let statuses = "select status, count(*) from countersign.mutation group by 1 order by 1";
    let statuses = db.rows(statuses).await;
    assert_eq!(statuses.last().unwrap(), &["success", "20"]);
    let backends =
        "select count(*) from pg_stat_activity where datname = current_database() and usename like 'countersign_%'";
    assert!(["1", "2", "3", "4"].contains(&db.value(backends).await.as_str()), "two for each login");
    for server in servers {
        server.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_is_shown_and_confirmed() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let pooler = PgBouncer::start(&database().await).await;
    let mut command = Server::studio_command(pooler.database());
    command.env("DATABASE_URL", pooler.url()).env("COUNTERSIGN_POOLER", "transaction");
    let server = Server::start(command).await;
    let was = pooler.database().value(PRICE).await;
    let proposal = server.propose("upsert_package", price("150.00")).await;
    assert_eq!(pooler.database().value(PRICE).await, was);
    let done = server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!(done["meta"]["rows_affected"], 1, "{done}");
    assert_eq!(pooler.database().value(PRICE).await, "150.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_has_the_settings_of_a_dedicated_session() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    // No table in front of the search path takes the write, and values have one form.
    let db = database().await;
    db.run(&format!(
        "alter role {writer} in database {name} set search_path = social, pg_catalog;
         alter role {writer} in database {name} set intervalstyle = sql_standard;
         alter role {writer} in database {name} set bytea_output = escape;
         alter role {writer} in database {name} set extra_float_digits = 0;
         alter role {writer} in database {name} set datestyle = german;
         alter role {writer} in database {name} set default_transaction_isolation = serializable",
        writer = ledger::DEFAULT_WRITER,
        name = db.name()
    ))
    .await;
    let pooler = PgBouncer::start(&db).await;
    let mut command = Server::command_pooled(&pooler);
    command.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "auto"]);
    let server = Server::start(command).await;
    let sql = "select current_setting('search_path') as path, interval '1 day 2 hours' as i, '\\x00ff'::bytea as b, \
               0.1::float8 + 0.2::float8 as f, date '2026-01-02' as d, current_setting('transaction_isolation') as level";
    let rows = server.succeed("execute_sql", json!({"sql": sql})).await["data"]["rows"].clone();
    let expected = json!([{"path": "pg_catalog, pg_temp", "i": "1 day 02:00:00", "b": "\\x00ff", "f": 0.30000000000000004,
        "d": "2026-01-02", "level": "read committed"}]);
    assert_eq!(rows, expected);
}
