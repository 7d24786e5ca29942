//! `countersign.toml`: its location, its precedence, and the effect of its settings.

use serde_json::json;
use testkit::{ConfigDir, Database, Server, countersign, database, repository, startup_error};
use tokio::process::Command;

fn social() -> String {
    repository().join("manifests/social.toml").display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_can_be_set_in_the_file_and_secrets_in_separate_files() {
    let db = database().await;
    let folder = ConfigDir::new();
    folder.write("url", &format!("{}\n", db.url()));
    db.run("insert into social.account (account_id, handle, display_name) values ('acme', 'acme', 'Acme')").await;
    folder.write("shop.toml", &std::fs::read_to_string(social()).unwrap());
    let mut command = folder.command(
        "database_url_file = \"url\"\nmanifests = [\"shop.toml\"]\naccount = \"acme\"\nactor = \"tester\"\nlog = \"warn\"\n\
         [limits]\nrow_limit = 2\nmax_row_limit = 3\nquery_timeout_ms = 300\n",
    );
    // Where the file stands counts, not where the server is started.
    command.current_dir("/");
    let server = Server::start({
        command.arg("serve");
        command
    })
    .await;
    server.succeed("post_tweet", json!({"text": "configured"})).await;
    assert_eq!(db.value("select account_id || ' ' || actor from countersign.mutation").await, "acme tester");

    // The limits hold, and the schema says so.
    let many = json!({"query": "select generate_series(1, 9) as n"});
    let data = server.succeed("query_database", many).await["data"].clone();
    assert_eq!((&data["row_count"], &data["truncated"]), (&json!(2), &json!(true)));
    server.fail("query_database", json!({"query": "select 1", "row_limit": 4}), "invalid_params").await;
    let tools = server.client().list_tools().await.unwrap();
    let query = tools.iter().find(|tool| tool["name"] == "query_database").unwrap();
    assert_eq!(query["inputSchema"]["properties"]["row_limit"]["maximum"], 3);
    assert!(query["description"].as_str().unwrap().contains("At most 2 rows"), "{query}");
    let error = server.fail("query_database", json!({"query": "select pg_sleep(20)"}), "timeout").await;
    assert!(error["message"].as_str().unwrap().contains("after 300 ms"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_ends_at_the_configured_deadline() {
    let db = database().await;
    let folder = ConfigDir::new();
    let mut command = folder.command(&format!(
        "database_url = {:?}\nmanifests = [{:?}]\nlog = \"error\"\n[limits]\ncall_deadline_ms = 400\n",
        db.url(),
        social()
    ));
    command.arg("serve");
    let server = Server::start(command).await;
    let lock = db.lock("social.tweet").await;
    let started = std::time::Instant::now();
    let envelope = server.call("post_tweet", json!({"text": "never"})).await;
    assert_eq!(envelope["success"], false, "{envelope}");
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    lock.release().await;
    assert_eq!(db.value("select status from countersign.mutation").await, "failure");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flag_overrides_a_variable_then_the_file_then_database_url() {
    let db = database().await;
    let folder = ConfigDir::new();
    let wrong = "postgresql://me@127.0.0.1:1/wrong";
    let count = async |database: &Database, change: &dyn Fn(&mut Command)| {
        let config =
            format!("database_url = {:?}\nprofile = \"readonly\"\nmanifests = [{:?}]\n", database.url(), social());
        let mut command = folder.command(&config);
        command.args(["--log", "warn", "serve"]).env("DATABASE_URL", wrong);
        change(&mut command);
        Server::start(command).await.tool_names().await.len()
    };
    assert_eq!(count(&db, &|_| {}).await, 3);
    let variable = |command: &mut Command| {
        command.env("COUNTERSIGN_PROFILE", "write");
    };
    assert_eq!(count(&db, &variable).await, 22);
    let flag = |command: &mut Command| {
        command.env("COUNTERSIGN_PROFILE", "write").args(["--profile", "readonly"]);
    };
    assert_eq!(count(&db, &flag).await, 3);

    // For connection strings, too: the file of the flag takes precedence over the text of the variable.
    let url = folder.write("url", &db.url());
    let secret = |command: &mut Command| {
        command.env("COUNTERSIGN_DATABASE_URL", wrong).arg("--database-url-file").arg(&url);
    };
    assert_eq!(count(&db, &secret).await, 3);
    let mut command = folder.command("");
    command.arg("serve").env("COUNTERSIGN_DATABASE_URL", wrong).env("COUNTERSIGN_DATABASE_URL_FILE", &url);
    let said = startup_error(&mut command).await;
    assert!(said.contains("--database-url (COUNTERSIGN_DATABASE_URL) and database_url_file are both given"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_the_working_directory_is_not_taken() {
    // A server that an agent starts in a hostile checkout.
    let db = database().await;
    let folder = ConfigDir::new();
    folder.write("countersign.toml", "account = \"attacker\"\nnonsense = true\n");
    let mut command = Server::command(&db);
    command.current_dir(folder.path());
    let server = Server::start(command).await;
    server.succeed("post_tweet", json!({"text": "mine"})).await;
    assert_eq!(db.value("select account_id from countersign.mutation").await, "default");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_wrong_or_not_there_stops_every_command_and_shows_no_secret() {
    let folder = ConfigDir::new();
    for verb in ["serve", "init", "check"] {
        let mut command =
            folder.command("database_url = \"postgresql://me:hunter2@h/d\"\nprofil = \"x\"\n[limits]\nrow_limit = 0\n");
        let said = startup_error(command.arg(verb)).await;
        assert!(said.contains("countersign.toml:2:1: there is no key profil"), "{said}");
        assert!(said.contains("countersign.toml:4:13: row_limit: 0 is out of bounds"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
        let said = startup_error(Command::new(countersign()).args([verb, "--config", "/nowhere/c.toml"])).await;
        assert!(said.contains("--config, COUNTERSIGN_CONFIG") && said.contains("/nowhere/c.toml"), "{said}");
    }
    let mut command = folder.command("database_url = \"postgres:/hunter2\"");
    let said = startup_error(command.arg("init")).await;
    assert!(
        said.contains("database_url in ") && said.contains("cannot be read") && !said.contains("hunter2"),
        "{said}"
    );
    let said = startup_error(folder.command("").env("DATABASE_URL", "postgresql://h/d").arg("check")).await;
    assert!(said.contains("no manifest to check"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connecting_takes_no_longer_than_configured() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgresql://me@127.0.0.1:{}/shop", silent.local_addr().unwrap().port());
    let folder = ConfigDir::new();
    let mut command = folder.command(&format!("database_url = {url:?}\n[limits]\nconnect_timeout_ms = 250\n"));
    let said = startup_error(command.arg("init")).await;
    assert!(said.contains("no answer within 250 ms"), "{said}");
}
