//! A server has to be told of the pooler: without, it says so and works with no database. `doctor` sees what the pooler was not told,
//! and the configuration of docs/setup/pgbouncer.md is one that works.

use serde_json::{Value, json};
use testkit::{
    Database, External, PgBouncer, Server, database, lone_database, poll, run_countersign, skip_without, startup_error,
};

use tokio::process::Command;

use super::behind_a_pooler;
use crate::deploy::documented;

/// Every setting that a session of ours is started with.
const IGNORED: &str = "DateStyle,IntervalStyle,extra_float_digits,bytea_output,search_path,jit,\
    default_transaction_isolation,default_transaction_read_only,options";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_pooler_setting_refuses_to_work_through_a_pooler() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let db = database().await;
    for settings in [&[][..], &[("ignore_startup_parameters", IGNORED)]] {
        let pooler = PgBouncer::with(&db, settings).await;
        let mut command = Server::command_pooled(&pooler);
        command.env_remove("COUNTERSIGN_POOLER");
        let told = unavailable(command).await;
        assert!(told.contains("goes through a connection pooler"), "{told}");
        assert!(told.contains("pooler = \"transaction\" (--pooler transaction, COUNTERSIGN_POOLER)"), "{told}");
        let ran = run_countersign(&pooler.url(), &["doctor"]).await;
        assert_eq!(ran.code, 1);
        assert!(ran.out.contains("COUNTERSIGN_POOLER"), "{}", ran.out);
        // A read_url of its own goes the same way.
        let mut command = Server::command(&db);
        let told = startup_error(command.env("COUNTERSIGN_READ_URL", pooler.url_of("countersign_reader"))).await;
        assert!(told.contains("goes through a connection pooler"), "{told}");
    }
    assert_eq!(db.value("select count(*) from countersign.mutation").await, "0");
}

/// Why a server that has started without its database cannot use it.
async fn unavailable(command: Command) -> String {
    let server = Server::start(command).await;
    let error = server.fail("query_database", json!({"query": "select 1"}), "database_unavailable").await;
    server.close().await;
    error["message"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_need_their_own_session_are_refused() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let (pooler, _server) = behind_a_pooler().await;
    let ran = run_countersign(&pooler.url(), &["init", "--pooler", "transaction"]).await;
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("PostgreSQL itself"), "{}", ran.err);
    let url = format!("{} options='-c work_mem=1MB'", pooler.url());
    let mut command = Server::command_pooled(&pooler);
    let told = startup_error(command.env("DATABASE_URL", url)).await;
    assert!(told.contains("options: a pooler does not hand it on"), "{told}");
}

async fn pooler_findings(url: &str) -> Vec<String> {
    let ran = run_countersign(url, &["doctor", "--json", "--pooler", "transaction"]).await;
    assert_eq!(ran.err, "", "{}", ran.out);
    let findings = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let own = findings.filter(|finding| finding["area"] == "pooler");
    own.map(|finding| format!("{}: {}", finding["level"].as_str().unwrap(), finding["message"].as_str().unwrap()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_sees_whether_there_is_a_pooler_and_whether_it_resets() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let db = database().await;
    let found = pooler_findings(&db.writer_url()).await;
    assert!(
        matches!(&found[..], [one] if one.starts_with("warning: pooler = \"transaction\" is set, and no pooler")),
        "{found:?}"
    );
    let pooler = PgBouncer::with(&db, &[("default_pool_size", "1")]).await;
    let found = pooler_findings(&pooler.url()).await;
    assert_eq!(found, ["ok: a pooler lends connections, as pooler = \"transaction\" says"]);
    let pooler = PgBouncer::with(&db, &[("default_pool_size", "1"), ("server_reset_query_always", "0")]).await;
    let found = pooler_findings(&pooler.url()).await;
    assert!(
        matches!(&found[..], [_, two] if two.starts_with("warning: what a write's own statements leave")),
        "{found:?}"
    );
    // And what it has looked with is taken back.
    let neighbour = pooler.connect(ledger::DEFAULT_WRITER).await;
    let mark = neighbour.query_one("select coalesce(current_setting('countersign.doctor', true), '')", &[]).await;
    assert_eq!(mark.unwrap().get::<_, &str>(0), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_configuration_works_with_passwords_all_the_way() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    // A cluster of its own: it asks for passwords, and roles belong to all of its databases.
    let db = lone_database().await;
    db.run(&documented("sql").replace("'a password'", "'bouncing'")).await;
    db.run("alter role countersign_writer password 'writing'").await;
    ask_for_passwords(&db).await;
    let pooler = PgBouncer::documented(&db, &documented("ini"), "\"pgbouncer\" \"bouncing\"\n").await;
    let mut command = Server::command_pooled(&pooler);
    command.env("PGPASSWORD", "wrong");
    let told = unavailable(command).await;
    assert!(told.contains("SASL authentication failed") || told.contains("Authentication failed"), "{told}");
    let mut command = Server::command_pooled(&pooler);
    // The reader's password is in the ledger, and PgBouncer asks PostgreSQL for its verifier.
    command.env("PGPASSWORD", "writing");
    let server = Server::start(command).await;
    assert_eq!(server.query("select current_user::text as who").await, [json!({"who": "countersign_reader"})]);
    server.succeed("post_tweet", json!({"text": "with a password"})).await;
    assert_eq!(db.value("select count(*) from social.tweet where text = 'with a password'").await, "1");
}

/// From everybody but the test itself.
async fn ask_for_passwords(db: &Database) {
    let hba = db.cluster().data_dir().join("pg_hba.conf");
    let rules = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("local all postgres trust\nlocal all all scram-sha-256\n{rules}")).unwrap();
    db.run("select pg_reload_conf()").await;
    let url = db.writer_url();
    // The postmaster takes the rules in when it gets round to it.
    let refuses = async || tokio_postgres::connect(&url, tokio_postgres::NoTls).await.is_err();
    poll::until("PostgreSQL asks for passwords", refuses).await;
}
