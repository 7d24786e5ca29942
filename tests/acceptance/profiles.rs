//! The operator's own profiles: a tool outside a profile does not exist, and no profile bypasses the ledger.

use serde_json::{Value, json};
use testkit::{ConfigDir, RawStdioServer, Server, database, repository};

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
    assert_eq!(like["result"]["structuredContent"]["success"], true, "{like}");
    assert_eq!(db.value("select tool_name || ' ' || status from countersign.mutation").await, "like_tweet success");
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_can_be_chosen_in_the_file_and_the_builtin_ones_stay() {
    let db = database().await;
    let folder = ConfigDir::new();
    for (head, count) in [("profile = \"support\"\n", 3), ("profile = \"readonly\"\n", 3), ("", 21)] {
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
