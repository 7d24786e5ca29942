//! A server of a database without a ledger: it reads, over the login that it was given, and says how writes come.

use serde_json::{Value, json};
use testkit::{
    CommandOutput, Database, HttpServer, RawStdioServer, Server, countersign, poll, run_countersign, startup_error,
};
use tokio::process::Command;

use super::assert_says;

const READING: [&str; 3] = ["query_database", "describe_database", "explain_query"];
const HOW_WRITES_COME: &str =
    "so only reads are served. For writes, the operator runs `countersign init --schema SCHEMA";

/// A database without a ledger. Its owner has made the table `shop.orders`, which another login may read.
struct Foreign {
    db: Database,
    owner: String,
    reader: String,
}

impl Foreign {
    async fn new(name: &str) -> Self {
        let db = Database::empty(name).await;
        let (owner, reader) = (format!("owner_{name}"), format!("reader_{name}"));
        db.run(&format!(
            "create role {owner} login; create role {reader} login; revoke create on schema public from public;
             create schema shop authorization {owner}; set role {owner};
             create table shop.orders (id int primary key, status text); insert into shop.orders values (1, 'open');
             grant usage on schema shop to {reader}; grant select on shop.orders to {reader}"
        ))
        .await;
        Self { db, owner, reader }
    }

    fn url(&self, login: &str) -> String {
        self.db.url_as(login)
    }

    fn serve(&self, login: &str) -> Command {
        let mut command = Server::bare_command(&self.db);
        command.env("DATABASE_URL", self.url(login));
        command
    }

    async fn refused(&self, login: &str, arguments: &[&str], words: &[&str]) {
        assert_says(&startup_error(self.serve(login).args(arguments)).await, words);
    }

    async fn doctor(&self, login: &str, arguments: &[&str]) -> CommandOutput {
        run_countersign(&self.url(login), &[&["doctor"], arguments].concat()).await
    }
}

fn orders() -> [Value; 1] {
    [json!({"id": 1, "status": "open"})]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_ledger_reads_and_tells_how_writes_come() {
    let shop = Foreign::new("reads_only").await;
    let agent = RawStdioServer::connected(|| shop.serve(&shop.reader), "2025-11-25").await;
    assert!(
        agent.instructions().contains(&format!("The database has no ledger for this login, {HOW_WRITES_COME}")),
        "{agent:?}"
    );
    agent.close().await;
    let server = Server::start(shop.serve(&shop.reader)).await;
    assert_eq!(server.tool_names().await, READING);
    assert_eq!(server.query("select * from shop.orders").await, orders());
    let described = server.succeed("describe_database", json!({"table": "shop.orders"})).await;
    assert!(described.to_string().contains("status"), "{described}");
    server.succeed("explain_query", json!({"query": "select * from shop.orders"})).await;
    server.close().await;
    // An owner reads as well, and all that keeps it from a write is the read path.
    let server = Server::start(shop.serve(&shop.owner)).await;
    assert_eq!(server.query("select * from shop.orders").await, orders());
    for write in [
        "update shop.orders set status = 'x' returning id",
        "with w as (delete from shop.orders returning id) select * from w",
        "drop table shop.orders",
    ] {
        server.fail("query_database", json!({"query": write}), "not_read_only").await;
    }
    server.close().await;
    assert_eq!(shop.db.value("select status from shop.orders").await, "open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_without_rights_on_the_ledger_reads_beside_it() {
    let db = testkit::database().await;
    let reader = format!("plain_{}", db.name());
    db.run(&format!(
        "create role {reader} login; create schema shop; create table shop.orders (id int primary key, status text);
         insert into shop.orders values (1, 'open'); grant usage on schema shop to {reader}; grant select on shop.orders to {reader}"
    ))
    .await;
    let command = || {
        let mut command = Server::bare_command(&db);
        command.env("DATABASE_URL", db.url_as(&reader));
        command
    };
    for profile in ["readonly", "minimal", "write"] {
        let mut command = command();
        command.args(["--profile", profile]);
        let server = Server::start(command).await;
        assert_eq!(server.query("select * from shop.orders").await, orders(), "{profile}");
        server.close().await;
    }
    let doctor = run_countersign(&db.url_as(&reader), &["doctor"]).await;
    assert_says(&doctor.out, &["warning    ledger", HOW_WRITES_COME]);
    assert_eq!(doctor.code, 0, "{}", doctor.out);
    // What needs the ledger says which right is missing.
    let refused = startup_error(command().arg("--execute-sql=rows")).await;
    assert!(refused.contains("permission denied for schema countersign"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_a_ledger_is_refused_without_one() {
    let shop = Foreign::new("reads_only_needs").await;
    let init = "countersign init --schema";
    shop.refused(&shop.reader, &["--execute-sql=rows"], &["execute_sql: this needs a ledger", init]).await;
    shop.refused(&shop.reader, &["--reads-log", "text"], &["log of [reads]: this needs a ledger", init]).await;
    let demo = ["--demo", "--database-url", &shop.url(&shop.reader)];
    shop.refused(&shop.reader, &demo, &["manifests: this needs a ledger", init]).await;
    let doctor = shop.doctor(&shop.reader, &["--manifest", "any.toml"]).await;
    assert_eq!(doctor.code, 1, "{}", doctor.out);
    assert_says(&doctor.out, &["problem    ledger", init]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_refused_or_warned_of_as_with_a_ledger() {
    let shop = Foreign::new("reads_only_logins").await;
    let not_served = ["query_database is not served", "is a superuser", "--allow-privileged-reader"];
    shop.refused("postgres", &[], &not_served).await;
    let doctor = shop.doctor("postgres", &[]).await;
    assert_says(&doctor.out, &["problem    roles", "is a superuser"]);
    assert_eq!(doctor.code, 1, "{}", doctor.out);
    let mut allowed = shop.serve("postgres");
    allowed.arg("--allow-privileged-reader");
    let server = Server::start(allowed).await;
    assert_eq!(server.query("select * from shop.orders").await, orders());
    server.close().await;

    let changes = format!("query_database reads as \"{}\", which may change shop.orders", shop.owner);
    shop.refused(&shop.owner, &["--strict-roles=true"], &[&changes, "strict_roles refuses that"]).await;
    let doctor = shop.doctor(&shop.owner, &[]).await;
    assert_says(&doctor.out, &["warning    ledger", HOW_WRITES_COME, "warning    roles", &changes]);
    assert_eq!(doctor.code, 0, "{}", doctor.out);
    let doctor = shop.doctor(&shop.reader, &[]).await;
    assert_says(&doctor.out, &["ok         roles", "can do no more than read tables"]);

    let mut over_http = Command::new(countersign());
    over_http.env("DATABASE_URL", shop.url(&shop.owner)).args(["serve", "--http", "127.0.0.1:0"]).kill_on_drop(true);
    let server = HttpServer::listening(over_http).await;
    server.logged(HOW_WRITES_COME).await;
    server.logged(&changes).await;
    server.logged(" ready ").await;
    server.until_ready().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_end_if_a_new_ledger_is_open_to_their_login() {
    let shop = Foreign::new("reads_only_later").await;
    let start = async |login: &str| {
        let mut command = shop.serve(login);
        command.args(["--drift-check-ms", "100"]);
        Server::start(command).await
    };
    let (own, other) = (start(&shop.owner).await, start(&shop.reader).await);
    assert_eq!(own.query("select * from shop.orders").await, orders());
    run_countersign(&shop.db.url(), &["init"]).await.succeeded();
    let query = json!({"query": "select 1"});
    own.succeed("query_database", query.clone()).await;
    // Until it has noticed, the read path refuses what belongs to the ledger.
    shop.db.run(&format!("grant countersign_owner to {}", shop.owner)).await;
    let secrets = json!({"query": "select * from countersign.reader_login"});
    let said = own.call("query_database", secrets).await;
    assert_eq!(said["success"], false, "{said}");
    let ended = async || own.call("query_database", query.clone()).await["error"]["code"] == "database_unavailable";
    poll::until("the reads end", ended).await;
    let error = own.fail("query_database", query.clone(), "database_unavailable").await;
    assert_says(error["message"].as_str().unwrap(), &["got a ledger", "Restart the server"]);
    assert_eq!(other.query("select * from shop.orders").await, orders());
    own.close().await;
    other.close().await;
    let restarted = Server::start(shop.serve("countersign_writer")).await;
    assert!(restarted.tool_names().await.contains(&"undo_mutation".to_owned()));
    restarted.close().await;
}
