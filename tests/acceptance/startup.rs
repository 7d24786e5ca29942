//! Mistakes that stop the server at its start: one clear message names the cause and the remedy.

mod reads_only;
mod waiting;

use std::time::{Duration, Instant};

use testkit::{Database, Server, countersign, database, poll, repository, startup_error};
use tokio::process::Command;

async fn refused(command: &mut Command) -> String {
    let started = Instant::now();
    let said = startup_error(command).await;
    assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
    assert!(!said.contains("hunter2"), "{said}");
    said
}

fn serve(url: &str) -> Command {
    with_manifest("serve", url)
}

fn check(url: &str) -> Command {
    with_manifest("check", url)
}

fn with_manifest(verb: &str, url: &str) -> Command {
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", url).args([verb, "--manifest"]).arg(repository().join("manifests/social.toml"));
    command.kill_on_drop(true);
    command
}

fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "\"{part}\" is missing in: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_database() {
    let mut command = Command::new(countersign());
    for name in ["DATABASE_URL", "COUNTERSIGN_DATABASE_URL", "PGHOST", "PGDATABASE"] {
        command.env_remove(name);
    }
    assert_says(&refused(command.arg("serve")).await, &["no database is configured", "DATABASE_URL", "--demo"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_string_that_cannot_be_read() {
    let said = refused(&mut serve("postgres:/nonsense hunter2")).await;
    assert_says(&said, &["DATABASE_URL", "cannot be read", "postgresql://"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_database() {
    let said = refused(&mut check("postgresql://me:hunter2@127.0.0.1:1/shop")).await;
    assert_says(&said, &["Cannot connect to database at [127.0.0.1:1]", "refused"]);
    let said = refused(&mut check("host=/nowhere user=me password=hunter2 dbname=shop")).await;
    assert_says(&said, &["Cannot connect to database at [/nowhere", "no such socket"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_and_a_missing_database_have_distinct_errors() {
    let own = testkit::start_cluster(pg_embedded::Options::ephemeral());
    let url = own.connection_string("postgres");
    let client = testkit::connect(&url).await;
    client.batch_execute("create role guarded login password 'right'").await.unwrap();
    std::fs::write(own.data_dir().join("pg_hba.conf"), "local all guarded scram-sha-256\nlocal all all trust\n")
        .unwrap();
    client.batch_execute("select pg_reload_conf()").await.unwrap();
    let guarded = url.replace("user=postgres", "user=guarded");
    // The reload is a signal: the server takes it in when it comes to it.
    let open = format!("{guarded} password=wrong");
    let refuses = async || tokio_postgres::connect(&open, tokio_postgres::NoTls).await.is_err();
    poll::until("the role is asked for its password", refuses).await;
    let said = refused(&mut check(&format!("{guarded} password=hunter2"))).await;
    assert_says(&said, &["Authentication failed - check connection string credentials"]);
    let said = refused(&mut check(&guarded)).await;
    assert_says(&said, &["Authentication failed", "none is given"]);
    // With the right one it gets as far as the ledger that the manifest needs: SCRAM works.
    let said = refused(&mut serve(&format!("{guarded} password=right"))).await;
    assert_says(&said, &["run `countersign init`"]);
    let said = refused(&mut check(&own.connection_string("nowhere"))).await;
    assert_says(&said, &["database \"nowhere\" does not exist", "check the database name"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_the_ledger() {
    let db = Database::empty("no_ledger").await;
    for command in [&mut serve(&db.url()), &mut check(&db.url())] {
        assert_says(&refused(command).await, &["no_ledger", "schema countersign", "countersign init"]);
    }
    let db = database().await;
    db.run("drop table countersign.reversal").await;
    assert_says(&refused(&mut serve(&db.url())).await, &["table countersign.reversal", "countersign init"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_of_the_earlier_format_is_refused_with_the_way_to_its_records() {
    let db = Database::empty("earlier_format").await;
    db.run(
        "create schema countersign; create table countersign.mutation_audit (id bigint); \
         create table countersign.schema_history (version int4 primary key); insert into countersign.schema_history values (12)",
    )
    .await;
    let words = ["earlier version", "countersign audit list --json", "drop schema countersign cascade"];
    assert_says(&refused(&mut serve(&db.url())).await, &words);
    let mut init = Command::new(countersign());
    init.env("DATABASE_URL", db.url()).arg("init");
    assert_says(&refused(&mut init).await, &words);
    assert_eq!(db.value("select max(version) from countersign.schema_history").await, "12");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_not_there() {
    let db = database().await;
    let mut command = Server::bare_command(&db);
    assert_says(
        &refused(command.args(["--manifest", "/nowhere/x.toml"])).await,
        &["/nowhere/x.toml", "cannot be read"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_does_not_fit_names_every_mistake_with_its_place() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.toml");
    let manifest = r#"
name = "wrong"
version = "1.0"

[[tool]]
name = "two_statements"
access = "write"
description = "Two statements."
sql = "update social.tweet set text = 'x' returning id; drop table social.tweet"
rows = "one"
undo = { irreversible = "No." }

[[tool]]
name = "no_such_column"
access = "write"
description = "A column that is not there."
sql = "insert into social.tweet_like (account_id, tweet) values ($1, $2) returning tweet_id"
rows = "one"
undo = { irreversible = "No." }
[[tool.param]]
name = "account_id"
from = "principal.account_id"
[[tool.param]]
name = "tweet_id"
description = "The tweet."

[[tool]]
name = "undone_by_nothing"
access = "write"
description = "An undo that does not exist."
sql = "insert into social.tweet_like (account_id, tweet_id) values ($1, $2) returning tweet_id"
rows = "one"
[[tool.param]]
name = "account_id"
from = "principal.account_id"
[[tool.param]]
name = "tweet_id"
description = "The tweet."
[tool.undo]
tool = "no_such_tool"
params = { tweet_id = "result.nope" }

[[tool]]
name = "commits_by_itself"
access = "write"
description = "Would end the transaction of the write protocol."
sql = ["commit", "update social.tweet set text = 'x' returning id"]
rows = "any"
undo = { irreversible = "No." }

[[tool]]
name = "no_returning"
access = "write"
description = "Returns nothing."
sql = "delete from social.tweet"
rows = "one"
undo = { irreversible = "No." }
"#;
    std::fs::write(&path, manifest).unwrap();
    for verb in [&["serve", "--strict"][..], &["check"]] {
        let mut command = Command::new(countersign());
        command.env("DATABASE_URL", db.url()).args(verb).arg("--manifest").arg(&path);
        let said = refused(&mut command).await;
        assert_says(&said, &["two_statements", "no_such_column", "undone_by_nothing", "no_such_tool", "no_returning"]);
        assert_says(&said, &["commits_by_itself", "COMMIT, CALL, DDL"]);
        assert!(said.contains("wrong.toml:"), "{said}");
    }
    let mut command = Command::new(countersign());
    let social = repository().join("manifests/social.toml");
    let output =
        command.env("DATABASE_URL", db.url()).args(["check", "--manifest"]).arg(social).output().await.unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && err.is_empty(), "{err}");
    let said = String::from_utf8(output.stdout).unwrap();
    let (tools, summary) = said.split_at(said.find("14 tools").unwrap());
    let (summary, changed) = summary.split_once('\n').unwrap();
    assert_eq!(
        summary,
        "14 tools fit the database, 14 of them write. Tools that need agreement: 0 (0 confirm, 0 approve); every executor is there."
    );
    let like = "  like_tweet        social.tweet_like (not tracked)";
    assert!(changed.starts_with("Tables whose rows the write tools change:\n") && changed.contains(like), "{changed}");
    assert_eq!(changed.lines().count(), 15, "{changed}");
    // Each tool has one line.
    assert_eq!(tools.lines().count(), 14, "{tools}");
    let like = "like_tweet        auto  account_id text (server), tweet_id bigint; writes social.tweet_like; undo by unlike_tweet";
    assert!(tools.lines().any(|line| line == like), "{tools}");
}

#[tokio::test(flavor = "multi_thread")]
async fn init_can_run_many_times_at_once_and_again() {
    let db = Database::empty("init_at_once").await;
    let runs: Vec<_> = (0..8)
        .map(|_| Command::new(countersign()).env("DATABASE_URL", db.url()).args(["init", "--demo"]).output())
        .collect();
    for run in runs {
        let output = tokio::spawn(run).await.unwrap().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(db.value("select count(*) from countersign.schema_history").await, "1");
    let server = Server::on(&db).await;
    assert_eq!(server.query("select count(*) > 0 as loaded from social.tweet").await[0]["loaded"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_can_do_too_much_does_not_get_the_tool() {
    let db = database().await;
    let server = Server::with(&db, |it| it.args(["--log", "off", "--read-url", &db.url()])).await;
    assert!(!server.tool_names().await.contains(&"query_database".to_owned()));
    let server =
        Server::with(&db, |it| it.args(["--log", "off", "--allow-privileged-reader", "--read-url", &db.url()])).await;
    assert!(server.tool_names().await.contains(&"query_database".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_without_createrole_gets_the_ledger_and_the_commands_that_reading_needs() {
    let db = Database::empty("limited_owner").await;
    db.run("create role limited login; alter database limited_owner owner to limited").await;
    let url = db.url_as("limited");
    let output = Command::new(countersign()).env("DATABASE_URL", &url).args(["init", "--demo"]).output().await.unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && said.contains("query_database needs --read-url"), "{said}");
    let server = Server::with(&db, |it| it.env("DATABASE_URL", &url).args(["--log", "off"])).await;
    assert!(!server.tool_names().await.contains(&"query_database".to_owned()));
    assert_eq!(
        server.succeed("post_tweet", serde_json::json!({"text": "still audited"})).await["data"]["text"],
        "still audited"
    );
}
