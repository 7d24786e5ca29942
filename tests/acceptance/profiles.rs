//! The operator's own profiles: a tool outside a profile does not exist, and no profile bypasses the ledger.

use serde_json::{Value, json};
use testkit::{ConfigDir, RawStdioServer, Server, database, repository, run_countersign};

const SUPPORT: &str =
    "[profiles.support]\naccess = [\"read\"]\ntools = [\"like_tweet\"]\nexcept = [\"explain_query\"]\n";

fn config(url: &str, rest: &str) -> String {
    let social = repository().join("manifests/social.toml");
    format!("database_url = {url:?}\nlog = \"warn\"\nmanifests = [{social:?}]\n{rest}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_has_only_its_tools_and_each_write_leaves_a_record() {
    let db = database().await;
    let folder = ConfigDir::new();
    let mut command = folder.command(&config(&db.url(), SUPPORT));
    command.args(["serve", "--profile", "support"]);
    let mut server = RawStdioServer::start(command, "2025-06-18").await;
    let tools = server.request(1, "tools/list", json!({})).await["result"]["tools"].clone();
    let names: Vec<&Value> = tools.as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["query_database", "describe_database", "like_tweet"]);
    for outside in ["unlike_tweet", "explain_query", "get_recent_mutations", "no_such_tool"] {
        let answer = server.request(2, "tools/call", json!({"name": outside, "arguments": {"tweet_id": 1}})).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().starts_with("Unknown tool: "), "{answer}");
    }
    assert_eq!(db.value("select count(*) from countersign.mutation").await, "0");
    let like = server.request(3, "tools/call", json!({"name": "like_tweet", "arguments": {"tweet_id": 2}})).await;
    let like = &like["result"]["structuredContent"];
    assert_eq!(like["success"], true, "{like}");
    let rollback = &like["meta"]["rollback"];
    let note =
        "This profile has no unlike_tweet, which the undo of the write needs. With it: Call unlike_tweet to reverse.";
    assert_eq!(rollback["note"], note);
    assert!(rollback.get("undo_tool").is_none(), "{rollback}");
    assert_eq!(db.value("select tool_name || ' ' || status from countersign.mutation").await, "like_tweet success");
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_can_be_chosen_in_the_file_and_the_builtin_ones_stay() {
    let db = database().await;
    let folder = ConfigDir::new();
    for (head, count) in [("profile = \"support\"\n", 3), ("profile = \"readonly\"\n", 3), ("", 22)] {
        let mut command = folder.command(&config(&db.url(), &format!("{head}{SUPPORT}")));
        command.arg("serve");
        assert_eq!(Server::start(command).await.tool_names().await.len(), count, "{head}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_not_there_and_a_profile_without_any_stop_the_start_with_their_place() {
    let db = database().await;
    let folder = ConfigDir::new();
    let wrong = "[profiles.a]\ntools = [\"like_tweet\", \"like_twet\"]\n[profiles.b]\naccess = [\"admin\"]\nexcept = [\"nope\"]\n";
    for verb in ["serve", "check"] {
        let mut command = folder.command(&config(&db.url(), wrong));
        let output = command.arg(verb).output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        for part in ["toml:5:24: profile a: there is no tool \"like_twet\"", "query_database, ", "toml:8:11: profile b"]
        {
            assert!(said.contains(part), "{part} is missing in: {said}");
        }
    }
    // Nothing else is for admins alone.
    let mut command = folder
        .command(&config(&db.url(), "[profiles.b]\naccess = [\"admin\"]\nexcept = [\"undo_plan\", \"undo_run\", \"get_proposal\", \"propose_schema_change\"]\n"));
    let said = String::from_utf8(command.arg("serve").output().await.unwrap().stderr).unwrap();
    assert!(said.contains("toml:4:11: profile b: no tool that is served is in it"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn minimal_reads_and_writes_by_sql_and_names_no_tool_that_it_has_not() {
    let db = database().await;
    db.run("select countersign.track('social.account')").await;
    let statement = json!({"sql": "update social.account set display_name = display_name || '!'"});
    let minimal = |more: &'static [&'static str]| {
        let mut command = Server::command(&db);
        command.args(["--profile", "minimal"]).args(more);
        Server::start(command)
    };
    assert_eq!(minimal(&["--execute-sql=any"]).await.tool_names().await, ["query_database", "describe_database"]);

    let server = minimal(&["--execute-sql"]).await;
    assert_eq!(server.tool_names().await, ["query_database", "describe_database", "execute_sql"]);
    let proposed = server.succeed("execute_sql", statement.clone()).await;
    let said = proposed["data"]["message"].as_str().unwrap();
    assert!(said.contains("countersign proposals approve") && !said.contains("_proposal"), "{said}");

    let server = minimal(&["--execute-sql", "--execute-sql-tier=approve"]).await;
    let said = server.succeed("execute_sql", statement.clone()).await["data"]["message"].to_string();
    assert!(said.contains("countersign proposals approve") && !said.contains("get_proposal"), "{said}");

    let server = minimal(&["--execute-sql", "--execute-sql-tier=auto"]).await;
    let written = server.succeed("execute_sql", statement).await;
    let rollback = &written["meta"]["rollback"];
    let id = written["meta"]["correlation_id"].as_str().unwrap();
    assert_eq!(rollback["reversible"], true);
    let note = format!(
        "This profile has no undo_mutation. A person can take the write back with `countersign undo {id}`, \
         as long as its rows are as it left them."
    );
    assert!(rollback["note"].as_str().unwrap().starts_with(&note), "{rollback}");
    assert!(rollback.get("undo_tool").is_none() && rollback.get("undo_params").is_none(), "{rollback}");
    // What the note says is true.
    let before = "select count(*) from social.account where display_name like '%!'";
    assert_ne!(db.value(before).await, "0");
    run_countersign(&db.url(), &["undo", id]).await.succeeded();
    assert_eq!(db.value(before).await, "0");
}
