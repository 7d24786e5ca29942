//! Content of `tools/list`: a golden file for every tool, and the schema rules of clients.

use serde_json::{Value, json};
use testkit::{Database, RawStdioServer, Server, assert_golden, assert_page, database, wrapped};

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
const LEDGER_TOOLS: [&str; 5] =
    ["get_recent_mutations", "get_mutation_detail", "row_history", "preview_mutation", "undo_mutation"];

async fn names(profile: &str) -> Vec<String> {
    let db = database().await;
    let mut command = Server::command(&db);
    command.args(["--profile", profile]);
    let mut names = Server::start(command).await.tool_names().await;
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn each_profile_has_only_its_tools() {
    assert_eq!(names("readonly").await, READ_TOOLS);
    assert_eq!(names("minimal").await, ["describe_database", "query_database"]);
    let mut all: Vec<&str> = WRITE_TOOLS.into_iter().chain(LEDGER_TOOLS).chain(READ_TOOLS).collect();
    all.sort_unstable();
    assert_eq!(names("write").await, all);
    all.extend(["undo_plan", "undo_run", "get_proposal", "propose_schema_change"]);
    all.sort_unstable();
    assert_eq!(names("admin").await, all);
}

async fn connected(db: &Database, arguments: &[&str]) -> RawStdioServer {
    let command = || {
        let mut command = Server::command(db);
        command.args(arguments);
        command
    };
    RawStdioServer::connected(command, "2025-11-25").await
}

/// What a server with these arguments answers to `tools/list`: the bytes of it, and the tools.
async fn listed(arguments: &[&str]) -> (usize, Vec<Value>) {
    let db = database().await;
    let mut server = connected(&db, arguments).await;
    let answer = server.request(2, "tools/list", json!({})).await;
    assert!(server.close().await);
    (answer["result"].to_string().len(), answer["result"]["tools"].as_array().unwrap().clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_tools_takes_a_third_of_the_bytes_that_it_once_took() {
    // It once took 63,000 bytes for the 20 tools of the default profile, and 95,900 for the tools of the demo, which
    // are these and those of the studio. undo_mutation, undo_plan, undo_run and
    // row_history are newer.
    let studio = testkit::repository().join("manifests/studio.toml");
    let demo = ["--manifest", studio.to_str().unwrap()];
    for (arguments, tools, most) in [
        (vec!["--profile", "readonly"], 3, 4_000),
        // I-2: ids of type int8 are numbers or text. The argument `reason` of each write is newer, too.
        (vec![], 22, 63_000 / 3 + 3_100),
        (vec!["--profile", "admin", "--execute-sql=any"], 30, 34_840),
        (demo.to_vec(), 32, 95_900 / 3 + 5_240),
    ] {
        let (bytes, listed) = listed(&arguments).await;
        assert_eq!(listed.len(), tools, "{arguments:?}");
        assert!(bytes <= most, "{arguments:?}: {bytes} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_structured_content_there_is_no_output_schema() {
    // The SDKs refuse an answer without structured content if the tool has an output schema.
    for (content, has_schema) in [("text", false), ("structured", true), ("both", true)] {
        let (_, tools) = listed(&["--content", content]).await;
        assert!(tools.iter().all(|tool| tool.get("outputSchema").is_some() == has_schema), "{content}: {tools:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tier_of_a_write_is_in_its_meta_and_in_its_description() {
    let studio = testkit::repository().join("manifests/studio.toml");
    let (_, tools) = listed(&["--profile", "admin", "--execute-sql=any", "--manifest", studio.to_str().unwrap()]).await;
    let tier = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        let description = tool["description"].as_str().unwrap();
        let words = description.split_once("Tier ").map(|(_, words)| words.split(':').next().unwrap().to_owned());
        assert_eq!(words.as_deref(), tool["_meta"]["countersign/tier"].as_str(), "{tool}");
        words
    };
    for (name, expected) in [
        ("like_tweet", Some("auto")),
        ("upsert_package", Some("confirm")),
        ("delete_package", Some("approve")),
        ("execute_sql", Some("approve")),
        ("query_database", None),
        ("preview_mutation", None),
        ("confirm_proposal", None),
    ] {
        assert_eq!(tier(name).as_deref(), expected, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_instructions_speak_of_the_tools_that_the_profile_has_and_of_no_other() {
    let studio = testkit::repository().join("manifests/studio.toml");
    let studio = ["--manifest", studio.to_str().unwrap()];
    // One that writes, and has none of the tools that look at the ledger.
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("countersign.toml");
    std::fs::write(&config, "[profiles.liker]\ntools = ['query_database', 'describe_database', 'like_tweet']\n")
        .unwrap();
    let liker = ["--config", config.to_str().unwrap(), "--profile", "liker"];
    for arguments in [
        vec!["--profile", "readonly"],
        vec![],
        studio.to_vec(),
        liker.to_vec(),
        [&studio[..], &["--profile", "readonly"]].concat(),
    ] {
        let db = database().await;
        let mut server = connected(&db, &arguments).await;
        let answer = server.request(2, "tools/list", json!({})).await;
        let has: Vec<String> = answer["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect();
        let instructions = server.instructions();
        for name in tools::builtin::NAMES {
            let speaks = instructions.contains(name);
            assert!(!speaks || has.contains(&name.to_owned()), "{arguments:?} has no {name}: {instructions}");
        }
        let writes = has.contains(&"like_tweet".to_owned());
        let confirmed = has.contains(&"upsert_package".to_owned());
        for (words, are_there) in [
            ("query_database", true),
            ("describe_database", true),
            ("meta.correlation_id is its receipt: keep it", writes),
            ("look at get_recent_mutations", has.contains(&"get_recent_mutations".to_owned())),
            ("a duplicate is no second write", writes),
            ("idempotency_key", writes),
            ("requires_approval", confirmed),
            ("confirm_proposal", confirmed),
        ] {
            assert_eq!(instructions.contains(words), are_there, "{arguments:?}, \"{words}\": {instructions}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tool_is_listed_as_in_its_golden_file_and_every_client_takes_its_schemas() {
    // The description of query_database says which statements it takes.
    let db = database().await;
    let mut command = Server::command(&db);
    command.args(["--profile", "admin", "--execute-sql=any"]);
    command.arg("--manifest").arg(testkit::repository().join("manifests/studio.toml"));
    let server = Server::start(command).await;
    for tool in server.client().list_tools().await.unwrap() {
        let name = tool["name"].as_str().unwrap().to_owned();
        assert!(!tool["description"].as_str().unwrap().is_empty());
        for schema in ["inputSchema", "outputSchema"] {
            assert_eq!(tool[schema]["type"], "object", "{name}: {schema}");
            check_schema(&format!("{name}.{schema}"), &tool[schema]);
        }
        for (property, schema) in tool["inputSchema"]["properties"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{name}.{property}");
        }
        assert_golden(&format!("tools/{name}"), &tool);
    }
}

/// `string`, `array of integer`, `"a", "b"`.
fn kind(schema: &Value) -> String {
    match (schema["enum"].as_array(), schema["type"].as_str()) {
        (Some(values), _) => values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", "),
        (None, Some("array")) => format!("array of {}", kind(&schema["items"])),
        (None, Some(kind)) => kind.to_owned(),
        (None, None) => "any".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_tools_follows_from_the_registry() {
    let studio = testkit::repository().join("manifests/studio.toml");
    let mut profiles = Vec::new();
    for profile in ["minimal", "readonly", "write", "admin"] {
        let arguments = ["--profile", profile, "--execute-sql=any", "--manifest", studio.to_str().unwrap()];
        profiles.push((profile, listed(&arguments).await.1));
    }
    let mut page = format!(
        "# Built-in tools\n\n{}\n",
        wrapped(
            "This page is generated from the code. Manifests add tools to these ([Manifests](../topics/manifests.md)). \
             `execute_sql` must be enabled, and the tools for proposals are present if a tool of the profile needs agreement.",
            ""
        )
    );
    let all = &profiles.last().unwrap().1;
    for name in tools::builtin::NAMES {
        let tool = all.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name} is not listed"));
        let has = |tools: &[Value]| tools.iter().any(|tool| tool["name"] == name);
        let held: Vec<String> =
            profiles.iter().filter(|(_, tools)| has(tools)).map(|(profile, _)| format!("`{profile}`")).collect();
        let description = tool["description"].as_str().unwrap();
        let title = tool["title"].as_str().unwrap();
        page.push_str(&format!("\n## `{name}`\n\n{}\n", wrapped(&format!("**{title}.** {description}"), "")));
        page.push_str(&format!("\nProfiles: {}.\n", held.join(", ")));
        let schema = &tool["inputSchema"];
        let is_required =
            |argument: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == argument));
        let properties = schema["properties"].as_object().unwrap();
        if !properties.is_empty() {
            page.push_str("\n| argument | type | required | meaning |\n|---|---|---|---|\n");
        }
        for (argument, schema) in properties {
            let required = if is_required(argument) { "yes" } else { "no" };
            // Nothing stands beside alternatives.
            let described = schema.get("description").unwrap_or(&schema["anyOf"][0]["description"]);
            let meaning = described.as_str().unwrap().replace('|', "\\|").replace('\n', " ");
            page.push_str(&format!("| `{argument}` | {} | {required} | {meaning} |\n", kind(schema)));
        }
    }
    assert_page("tools", &page);
}

/// What the converters of clients take: a type everywhere, alternatives as `anyOf`, no boolean schemas, no `$ref`.
fn check_schema(place: &str, schema: &Value) {
    let object = schema.as_object().unwrap_or_else(|| panic!("{place} is no object: {schema}"));
    for refused in ["$ref", "$defs", "oneOf", "allOf", "additionalProperties"] {
        assert!(!object.contains_key(refused), "I-3: {place} has {refused}");
    }
    if let Some(kind) = object.get("type") {
        assert!(kind.is_string(), "{place} has several types");
    }
    let alternatives = object.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    for (number, alternative) in alternatives.enumerate() {
        assert!(!object.contains_key("type"), "{place} has a type beside anyOf");
        check_schema(&format!("{place}|{number}"), alternative);
    }
    // Only the schemas of arguments are converted.
    if place.contains("inputSchema") {
        // What Gemini's APIs are said to refuse, and with it the whole request.
        assert!(
            !object.contains_key("anyOf") || object.len() == 1,
            "C-1: {place} has something beside anyOf: {schema}"
        );
        assert!(object.get("format").is_none_or(|format| format == "date-time"), "C-1: {place}: {schema}");
        assert!(object.get("type").is_none_or(|kind| kind != "null"), "C-1: {place}: {schema}");
        assert!(object.contains_key("type") || object.contains_key("anyOf"), "I-7: {place} has no type");
    }
    for (name, property) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
        check_schema(&format!("{place}.{name}"), property);
    }
    if let Some(items) = object.get("items") {
        check_schema(&format!("{place}[]"), items);
    }
}
