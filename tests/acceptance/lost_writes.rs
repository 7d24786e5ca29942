//! A failover to an asynchronous standby that lacks what was acknowledged (DI-4 to DI-6, DI-11). Each server notices at its next
//! write, or when it is asked whether it is ready; every face tells the same; nothing is written until the ledger was forked.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::audit::{audit, run_audit};
use testkit::{Database, HttpServer, Server, Standby, lone_database, run_countersign, startup_error};

use crate::standby::{both, reader_url};

/// A primary and its asynchronous standby, from which the primary can be cut off, and the key of the log.
struct Pair {
    primary: Database,
    standby: Standby,
    keys: TempDir,
}

impl Pair {
    async fn start() -> Self {
        let primary = lone_database().await;
        let standby = Standby::of(&primary, &[]).await;
        let pair = Self { primary, standby, keys: tempfile::tempdir().unwrap() };
        audit(&pair.primary, &["keys", "new", "--signing-key", &pair.key("log")]).await;
        pair
    }

    fn key(&self, name: &str) -> String {
        self.keys.path().join(format!("{name}.key")).display().to_string()
    }

    fn new_primary(&self) -> &Database {
        &self.standby.database
    }

    /// A server that uses whichever is the primary.
    async fn server(&self, more: &[&str]) -> HttpServer {
        let (first, second) = (&self.primary, self.new_primary());
        let mut command = HttpServer::command(first);
        command.env("DATABASE_URL", both(first, second, ledger::DEFAULT_WRITER, "read-write"));
        command.args(["--read-url", &both(first, second, "countersign_reader", "any")]).args(more);
        let server = HttpServer::start(command).await;
        server.until_ready().await;
        server
    }

    /// The standby receives nothing any more.
    async fn cut(&self) {
        self.standby.catch_up(&self.primary).await;
        self.new_primary().run("alter system set primary_conninfo = ''").await;
        self.new_primary().run("select pg_reload_conf()").await;
        self.new_primary().until_value("select count(*) from pg_stat_wal_receiver", "0").await;
    }

    async fn fail_over(&self) {
        self.primary.cluster().kill9().unwrap();
        self.new_primary().run("select pg_promote()").await;
    }
}

/// The text of a tweet that was written, and the receipt.
async fn post(server: &HttpServer, text: &str) -> Value {
    server.http_client().call("post_tweet", json!({"text": text})).await
}

async fn acknowledged(server: &HttpServer, text: &str) -> String {
    let written = post(server, text).await;
    assert_eq!(written["success"], true, "{written}");
    written["meta"]["correlation_id"].as_str().unwrap().to_owned()
}

/// The message of the refusal of a write, of which nothing is left.
async fn refused(db: &Database, server: &HttpServer) -> String {
    let rows = "select (select count(*) from social.tweet) || ' ' || (select count(*) from countersign.mutation)";
    let before = db.value(rows).await;
    let answer = post(server, "after the failover").await;
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["retryable"]),
        (&json!("db_error"), &json!(false)),
        "{answer}"
    );
    assert_eq!(db.value(rows).await, before);
    answer["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_misses_what_it_acknowledged_stops_every_server_until_the_ledger_is_forked() {
    let pair = Pair::start().await;
    let key = pair.key("log");
    let (plain, signer) = (pair.server(&[]).await, pair.server(&["--signing-key", &key]).await);
    acknowledged(&plain, "before").await;
    pair.cut().await;
    let lost = [acknowledged(&plain, "one").await, acknowledged(&plain, "two").await];
    pair.fail_over().await;

    // Neither of these writes is retried. The first server misses its own, and the other one reads that in the ledger.
    let db = pair.new_primary();
    for server in [&plain, &signer] {
        let message = refused(db, server).await;
        assert!(message.contains("writes since 20"), "{message}");
        assert!(message.contains("are missing, at least 2 ("), "{message}");
        assert!(lost.iter().all(|id| message.contains(id)), "{message}");
        assert!(message.contains("the timeline has changed from 1 to 2"), "{message}");
        server.logged("writes are stopped: the database \"lone\" lacks what was acknowledged").await;
        server.logged(&format!("{} {}", lost[0], lost[1])).await;
        // Reads go on.
        let read = server
            .http_client()
            .call("query_database", json!({"query": "select count(*) as n from social.tweet where text = 'one'"}))
            .await;
        assert_eq!(read["data"]["rows"], json!([{"n": 0}]), "{read}");
    }
    verdicts(&pair, &[&plain, &signer], &lost[0]).await;

    let forked = run_audit(&db.url(), &["fork", "--yes", "--restored", "--signing-key", &pair.key("next")]).await;
    assert_eq!(forked.code, 0, "{} {}", forked.out, forked.err);
    for (server, text) in [(&plain, "again"), (&signer, "once more")] {
        acknowledged(server, text).await;
        server.until_ready().await;
    }
    // The new log tells of the loss.
    audit(db, &["seal", "--signing-key", &pair.key("next")]).await;
    let entries = "select entry from countersign.leaf where entry like '%kind loss%records 2%'";
    let entry = db.value(entries).await;
    assert!(entry.contains("records 2\nsince 20"), "{entry}");
    audit(db, &["verify"]).await;
}

/// One verdict on every face (DI-5, DI-6), which names both causes (DI-11).
async fn verdicts(pair: &Pair, servers: &[&HttpServer], lost: &str) {
    for server in servers {
        let said = server.until_status("/readyz", StatusCode::SERVICE_UNAVAILABLE).await;
        assert!(said.contains(lost), "{said}");
    }
    let db = pair.new_primary();
    for arguments in [&["doctor"][..], &["audit", "verify"]] {
        let ran = run_countersign(&db.url(), arguments).await;
        assert!(
            ran.code == 1 && ran.out.contains("lacks what was acknowledged") && ran.out.contains(lost),
            "{} {}",
            ran.out,
            ran.err
        );
        for cause in ["If a standby took over", "If a backup was restored", "audit fork --restored"] {
            assert!(ran.out.contains(cause), "{}", ran.out);
        }
    }
    let said = startup_error(&mut Server::command(db)).await;
    assert!(said.contains("lacks what was acknowledged") && said.contains(lost), "{said}");
    let sealed = run_audit(&db.url(), &["seal"]).await;
    assert!(sealed.code == 1 && sealed.err.contains("are missing"), "{} {}", sealed.out, sealed.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_key_misses_signed_entries_and_one_that_only_waits_notices_too() {
    let pair = Pair::start().await;
    let key = pair.key("log");
    pair.cut().await;
    // Entries without a write: the loss is that of the log alone.
    for verb in ["freeze", "unfreeze"] {
        run_countersign(&pair.primary.url(), &[verb, "--account", "nobody"]).await.succeeded();
    }
    audit(&pair.primary, &["seal", "--signing-key", &key]).await;
    let plain = pair.server(&[]).await;
    // Its first turn is over: it has seen what is signed.
    pair.primary.first_value("select 1 from countersign.fingerprint_key").await;
    pair.fail_over().await;

    let said = plain.until_status("/readyz", StatusCode::SERVICE_UNAVAILABLE).await;
    assert!(said.contains(" were signed"), "{said}");
    let message = refused(pair.new_primary(), &plain).await;
    assert!(message.contains("its log has") && message.contains("were signed"), "{message}");
    let loss = "select records = '{}' and signed_entries > entries from countersign.loss";
    assert_eq!(pair.new_primary().value(loss).await, "t");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_server_adds_what_it_misses() {
    let pair = Pair::start().await;
    let servers = [pair.server(&[]).await, pair.server(&[]).await];
    acknowledged(&servers[0], "before").await;
    pair.cut().await;
    let lost = [acknowledged(&servers[0], "one").await, acknowledged(&servers[1], "two").await];
    pair.fail_over().await;
    let db = pair.new_primary();
    for server in &servers {
        refused(db, server).await;
    }
    for server in &servers {
        let message = refused(db, server).await;
        assert!(message.contains("at least 2 (") && lost.iter().all(|id| message.contains(id)), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_loses_nothing_stops_nothing() {
    let pair = Pair::start().await;
    let server = pair.server(&["--signing-key", &pair.key("log")]).await;
    acknowledged(&server, "before").await;
    // Else the server might sign entries that the standby has not, which is a loss.
    audit(&pair.primary, &["seal", "--signing-key", &pair.key("log")]).await;
    pair.standby.catch_up(&pair.primary).await;
    pair.fail_over().await;
    acknowledged(&server, "after").await;
    server.until_ready().await;
    let db = pair.new_primary();
    assert_eq!(db.value("select count(*) from countersign.loss").await, "0");
    let reader = testkit::connect(&reader_url(db)).await;
    assert!(reader.query("select from countersign.loss", &[]).await.is_err(), "the ledger is no reader's");
}
