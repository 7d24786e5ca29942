//! Durability of acknowledged writes and of intents.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use testkit::social::untouched_tweet;
use testkit::{Database, RawStdioServer, Server, lone_database, poll};

/// PostgreSQL, whose write-ahead log reaches the disk only when somebody waits for it: the process that would write it
/// meanwhile is stopped. Killing it is a crash of the server: what was not flushed is gone.
struct Crash<'a> {
    db: &'a Database,
    wal_writer: Pid,
}

impl<'a> Crash<'a> {
    async fn prepare(db: &'a Database) -> Self {
        let pid = db.first_value("select pid from pg_stat_activity where backend_type = 'walwriter'").await;
        let wal_writer = Pid::from_raw(pid.parse().unwrap());
        kill(wal_writer, Signal::SIGSTOP).unwrap();
        Self { db, wal_writer }
    }

    async fn now(self) {
        let started = self.db.value("select pg_postmaster_start_time()").await;
        kill(self.wal_writer, Signal::SIGKILL).unwrap();
        // The postmaster ends every backend and recovers; until then connections are refused or die.
        let url = self.db.url();
        let other =
            format!("select 1 from pg_stat_activity where backend_type = 'walwriter' and pid <> {}", self.wal_writer);
        let has_recovered = async || {
            let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await else {
                return false;
            };
            tokio::spawn(connection);
            client.query(&other, &[]).await.is_ok_and(|rows| !rows.is_empty())
        };
        poll::until("PostgreSQL recovers", has_recovered).await;
        assert_eq!(self.db.value("select pg_postmaster_start_time()").await, started, "a crash, not a restart");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_write_survives_a_crash_despite_the_roles_defaults() {
    let db = lone_database().await;
    db.run("alter role countersign_writer set synchronous_commit = off").await;
    let server = Server::on(&db).await;
    let crash = Crash::prepare(&db).await;
    let answer = server.succeed("post_tweet", json!({"text": "acknowledged"})).await;
    // A refusal is final as well.
    server.fail("like_tweet", json!({"tweet_id": 999_999}), "sql_error").await;
    crash.now().await;
    assert_eq!(db.value("select count(*) from social.tweet where text = 'acknowledged'").await, "1");
    let receipt = answer["meta"]["correlation_id"].as_str().unwrap();
    let records = "select string_agg(status, ' ' order by id) from countersign.mutation";
    assert_eq!(db.value(records).await, "success failure");
    let detail = server.succeed("get_mutation_detail", json!({"correlation_id": receipt})).await;
    assert_eq!(detail["data"]["result"], answer["data"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_waiting_for_the_disk_the_same_write_is_lost_although_it_was_acknowledged() {
    // The control of the test above: it can see.
    let db = lone_database().await;
    db.run("alter role countersign_writer set synchronous_commit = off").await;
    let record = db.value("select pg_get_functiondef('countersign.record_success'::regproc)").await;
    let condition = "current_setting('synchronous_commit') = 'off'";
    assert!(record.contains(condition), "the control no longer fits the protocol: {record}");
    db.run(&record.replace(condition, "false")).await;
    db.run("create or replace function countersign.commit_durably() returns void language plpgsql as 'begin end'")
        .await;
    let server = Server::on(&db).await;
    let crash = Crash::prepare(&db).await;
    server.succeed("post_tweet", json!({"text": "acknowledged"})).await;
    crash.now().await;
    assert_eq!(db.value("select count(*) from social.tweet where text = 'acknowledged'").await, "0");
}

/// The records after a crash of PostgreSQL that follows a kill -9 of the server in the middle of a write.
async fn records_after_losing_both(durable: bool) -> Vec<Vec<String>> {
    let db = lone_database().await;
    let tweet = untouched_tweet(&db).await;
    let likes = "select count(*) from social.tweet_like";
    let before = db.value(likes).await;
    let blocker = db.connect().await;
    // Other sessions that wait for the disk flush the intent too: autovacuum, and a server that seals records at its start.
    db.run("alter system set autovacuum = off").await;
    db.run("select pg_reload_conf()").await;
    db.first_value("select 1 where not exists (select from pg_stat_activity where backend_type = 'autovacuum worker')")
        .await;
    db.run("revoke execute on function countersign.seal(integer) from countersign_writer").await;
    if !durable {
        db.run("alter role countersign_writer set synchronous_commit = off").await;
    }
    let mut command = Server::command(&db);
    command.env("COUNTERSIGN_DURABLE_ADMISSION", durable.to_string());
    let mut server = RawStdioServer::start(command, "2025-06-18").await;
    let crash = Crash::prepare(&db).await;
    blocker.batch_execute("begin; lock table social.tweet_like in access exclusive mode").await.unwrap();
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "like_tweet", "arguments": {"tweet_id": tweet}}});
    server.send(&call.to_string()).await;
    db.first_value("select 1 from pg_stat_activity where wait_event_type = 'Lock' and usename = 'countersign_writer'")
        .await;
    kill(Pid::from_raw(i32::try_from(server.pid()).unwrap()), Signal::SIGKILL).unwrap();
    crash.now().await;
    assert_eq!(db.value(likes).await, before, "nothing was written");
    db.run("select countersign.sweep(interval '0', 1000)").await;
    db.rows("select status, error_code from countersign.mutation").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_that_is_to_be_durable_is_there_after_the_crash() {
    // The transaction that claimed it is gone, and another one may have its id by now.
    assert_eq!(records_after_losing_both(true).await, [["failure", "in_doubt_aborted"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn otherwise_intent_and_write_are_gone_together() {
    assert_eq!(records_after_losing_both(false).await, Vec::<Vec<String>>::new());
}
