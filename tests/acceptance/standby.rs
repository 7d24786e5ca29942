//! Reading from a streaming standby, and several servers of one cluster in one connection string.

use serde_json::{Value, json};
use testkit::{Database, Server, Standby, lone_database, run_countersign};

use crate::samples::sample;

/// A connection string for the reader's login on this server. The sockets of test clusters let their user in.
pub(crate) fn reader_url(db: &Database) -> String {
    db.url_as("countersign_reader")
}

/// Both servers in one string: the first one listed first.
pub(crate) fn both(first: &Database, second: &Database, user: &str, session_attrs: &str) -> String {
    let place = |db: &Database| db.cluster().socket_dir().display().to_string();
    format!(
        "host={},{} port={} user={user} dbname={} target_session_attrs={session_attrs}",
        place(first),
        place(second),
        first.cluster().port(),
        first.name()
    )
}

async fn in_recovery(server: &Server) -> Value {
    server.query("select pg_is_in_recovery() as it").await[0]["it"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_come_from_the_standby_and_writes_go_to_the_primary() {
    let primary = lone_database().await;
    primary.run("create table public.read_here (n int); grant select on public.read_here to countersign_reader").await;
    let standby = Standby::of(&primary, &[("max_standby_streaming_delay", "0")]).await;
    let mut command = Server::command(&primary);
    // The login that init made is there as well: roles are replicated.
    command.args(["--read-url", &reader_url(&standby.database)]);
    let server = Server::start(command).await;
    assert_eq!(in_recovery(&server).await, true);
    let id = server.succeed("post_tweet", json!({"text": "through the primary"})).await["data"]["id"].clone();
    standby.catch_up(&primary).await;
    let found = server.query(&format!("select text from social.tweet where id = {id}")).await;
    assert_eq!(found, [json!({"text": "through the primary"})]);

    // Nothing that the other tools ask needs a primary.
    let overview = server.succeed("describe_database", json!({})).await;
    assert!(overview.to_string().contains("tweet_like"), "{overview}");
    let table = server.succeed("describe_database", json!({"table": "social.tweet"})).await;
    assert!(table.to_string().contains("account_id"), "{table}");
    server.succeed("describe_database", json!({"search": "tweet"})).await;
    let plan = server.succeed("explain_query", json!({"query": "select * from social.tweet"})).await;
    assert!(plan.to_string().contains("Seq Scan"), "{plan}");
    let error = server.fail("query_database", json!({"query": "select handel from social.account"}), "sql_error").await;
    assert!(error["hint"].as_str().unwrap().contains("handle"), "{error}");
    server.fail("query_database", json!({"query": "create table public.t ()"}), "not_read_only").await;

    // What the primary removes while it is read here ends the read, and the agent can ask again.
    let reading = json!({"query": "select (select count(*) from public.read_here), pg_sleep(60)"});
    let conflict = async {
        standby.database.first_value("select 1 from pg_stat_activity where wait_event = 'PgSleep'").await;
        primary.run("truncate public.read_here").await;
    };
    let (error, ()) = tokio::join!(server.fail("query_database", reading, "sql_error"), conflict);
    assert_eq!((&error["sqlstate"], &error["retryable"]), (&json!("40001"), &json!(true)), "{error}");
    assert!(error["message"].as_str().unwrap().contains("conflict with recovery"), "{error}");
    assert_eq!(in_recovery(&server).await, true);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_server_of_a_list_is_used_by_its_role_and_a_failover_is_followed() {
    let primary = lone_database().await;
    let standby = Standby::of(&primary, &[]).await;
    let (first, second) = (&primary, &standby.database);
    for (order, attrs, is_standby) in [
        ((first, second), "any", false),
        ((second, first), "any", true),
        ((first, second), "standby", true),
        ((first, second), "read-only", true),
        ((second, first), "primary", false),
        ((second, first), "read-write", false),
        ((first, second), "prefer-standby", true),
    ] {
        let mut command = Server::bare_command(&primary);
        command.args(["--read-url", &both(order.0, order.1, "countersign_reader", attrs)]);
        assert_eq!(in_recovery(&Server::start(command).await).await, is_standby, "{attrs}");
    }

    // The configuration of the page, with the sockets of these servers. The former standby comes first.
    let place = |db: &Database| db.cluster().socket_dir().display().to_string();
    let here = format!("dbname={} port={}", first.name(), first.cluster().port());
    let settings = sample("docs/setup/databases.md", "# countersign.toml")
        .replace("10.0.0.11", &place(second))
        .replace("10.0.0.12", &place(first))
        .replace("dbname=shop", &here);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("countersign.toml"), settings).unwrap();
    let mut command = tokio::process::Command::new(testkit::countersign());
    command.arg("--config").arg(folder.path().join("countersign.toml")).arg("serve");
    command.arg("--manifest").arg(testkit::repository().join("manifests/social.toml")).kill_on_drop(true);
    let server = Server::start(command).await;
    server.succeed("post_tweet", json!({"text": "before"})).await;
    assert_eq!(in_recovery(&server).await, true);
    standby.catch_up(&primary).await;

    // The primary is gone and the standby takes over: the same server finds it.
    primary.cluster().stop_immediate().unwrap();
    second.run("select pg_promote()").await;
    server.succeed("post_tweet", json!({"text": "after"})).await;
    assert_eq!(in_recovery(&server).await, false);
    let texts = "select string_agg(text, ' ' order by id) from social.tweet where text in ('before', 'after')";
    assert_eq!(second.value(texts).await, "before after");
    let records = "select string_agg(status, ' ' order by id) from countersign.mutation";
    assert_eq!(second.value(records).await, "success success");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_says_how_far_behind_its_standby_is_and_doctor_tells_of_standbys() {
    // DI-7
    let primary = lone_database().await;
    let doctor = async |read_url: &str| {
        let arguments = ["doctor", "--read-url", read_url];
        run_countersign(&primary.url(), &arguments).await.out
    };
    assert!(!doctor(&reader_url(&primary)).await.contains("standbys"));
    let standby = Standby::of(&primary, &[]).await;
    let read_url = reader_url(&standby.database);
    let said = doctor(&read_url).await;
    assert!(said.contains("no commit waits for a standby (1 connected)"), "{said}");
    assert!(said.contains("the standby of read_url shows what the primary has committed"), "{said}");

    primary.run("alter system set synchronous_standby_names = '*'").await;
    primary.run("select pg_reload_conf()").await;
    primary.first_value("select 1 from pg_stat_replication where sync_state = 'sync'").await;
    let said = doctor(&read_url).await;
    assert!(said.contains("each commit waits for a standby, and 1 of 1 confirm"), "{said}");
    // The servers' login may not see which standby confirms.
    let said = run_countersign(&primary.writer_url(), &["doctor"]).await.out;
    assert!(said.contains("ask as a member of pg_monitor"), "{said}");

    // The replay is held back, so the standby answers with what it has.
    let server = Server::with(&primary, |it| it.args(["--read-url", &read_url])).await;
    server.succeed("post_tweet", json!({"text": "there"})).await;
    standby.catch_up(&primary).await;
    standby.database.run("select pg_wal_replay_pause()").await;
    standby.database.first_value("select 1 where pg_get_wal_replay_pause_state() = 'paused'").await;
    server.succeed("post_tweet", json!({"text": "not there yet"})).await;
    let is_old = "select 1 where clock_timestamp() - pg_last_xact_replay_timestamp() > interval '10 s'";
    standby.database.first_value(is_old).await;
    // New, known, and with rows that need a conversion.
    for sql in ["select 1 as n", "select 1 as n", "select array['x'] as n"] {
        let read = server.succeed("query_database", json!({"query": sql})).await;
        assert!(read["meta"]["standby"]["behind_ms"].as_u64().unwrap() > 10_000, "{read}");
    }
    let said = doctor(&read_url).await;
    assert!(said.contains("bytes of WAL behind: its newest commit is"), "{said}");
    let write = server.succeed("post_tweet", json!({"text": "another"})).await;
    assert!(write["meta"].get("standby").is_none(), "{write}");
    server.close().await;
    let server = Server::on(&primary).await;
    let read = server.succeed("query_database", json!({"query": "select 1 as n"})).await;
    assert!(read["meta"].get("standby").is_none(), "the primary is behind nobody: {read}");

    primary.run("alter system set synchronous_standby_names = 'another'").await;
    primary.run("select pg_reload_conf()").await;
    primary.first_value("select 1 from pg_stat_replication where sync_state = 'async'").await;
    let ran = run_countersign(&primary.url(), &["doctor"]).await;
    assert!(ran.code == 1 && ran.out.contains("none that is connected confirms it: writes hang"), "{}", ran.out);
    primary.run("alter system reset synchronous_standby_names").await;
    primary.run("select pg_reload_conf()").await;
}
