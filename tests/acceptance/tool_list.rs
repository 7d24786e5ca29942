//! What `tools/list` says: a golden file for every tool, and the rules that clients have for schemas.

use serde_json::Value;
use testkit::{Server, assert_golden, database};

const WRITE_TOOLS: [&str; 14] = [
    "post_tweet",
    "reply_to_tweet",
    "quote_tweet",
    "delete_tweet",
    "post_thread",
    "like_tweet",
    "unlike_tweet",
    "retweet",
    "unretweet",
    "bookmark_tweet",
    "unbookmark_tweet",
    "follow_user",
    "unfollow_user",
    "upload_media",
];
const READ_TOOLS: [&str; 3] = ["describe_database", "explain_query", "query_database"];
const LEDGER_TOOLS: [&str; 3] = ["get_recent_mutations", "get_mutation_detail", "preview_mutation"];

async fn names(profile: &str) -> Vec<String> {
    let db = database().await;
    let mut command = Server::command(&db);
    command.args(["--profile", profile]);
    let mut names = Server::start(command).await.tool_names().await;
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn each_profile_has_its_tools_and_no_other() {
    // A1-14, A1-15, A9-38 to A9-41, A11-04
    assert_eq!(names("readonly").await, READ_TOOLS);
    let mut all: Vec<&str> = WRITE_TOOLS.into_iter().chain(LEDGER_TOOLS).chain(READ_TOOLS).collect();
    all.sort_unstable();
    assert_eq!(names("write").await, all);
    assert_eq!(names("admin").await, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tool_is_listed_as_in_its_golden_file_and_every_client_takes_its_schemas() {
    // C3-02 to C3-04; D5-04: which statements query_database takes, its description says.
    let db = database().await;
    let mut command = Server::command(&db);
    command.args(["--profile", "admin", "--execute-sql"]);
    command.arg("--manifest").arg(testkit::repository().join("manifests/studio.toml"));
    let server = Server::start(command).await;
    for tool in server.client().list_tools().await.unwrap() {
        let name = tool["name"].as_str().unwrap().to_owned();
        assert!(!tool["description"].as_str().unwrap().is_empty());
        for schema in ["inputSchema", "outputSchema"] {
            assert_eq!(tool[schema]["type"], "object", "{name}: {schema}");
            check_schema(&format!("{name}.{schema}"), &tool[schema]);
        }
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{name}");
        for (property, schema) in tool["inputSchema"]["properties"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "A9-37: {name}.{property}");
        }
        assert_golden(&format!("tools/{name}"), &tool);
    }
}

/// One type a property, no boolean schemas, no `$ref`.
fn check_schema(place: &str, schema: &Value) {
    let object = schema.as_object().unwrap_or_else(|| panic!("{place} is no object: {schema}"));
    for refused in ["$ref", "$defs", "anyOf", "oneOf", "allOf"] {
        assert!(!object.contains_key(refused), "{place} has {refused}");
    }
    if let Some(kind) = object.get("type") {
        assert!(kind.is_string(), "{place} has several types");
    }
    for (name, property) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
        check_schema(&format!("{place}.{name}"), property);
    }
    if let Some(items) = object.get("items") {
        check_schema(&format!("{place}[]"), items);
    }
}
