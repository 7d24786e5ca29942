//! What a manifest says of the server: its built-in tools and its instructions.

use serde_json::{Value, json};
use testkit::{RawStdioServer, Server, TestManifest, database};
use tokio::process::Command;

use crate::samples::sample;

/// The sample of the page for operators.
fn words() -> TestManifest {
    TestManifest::from_text(&sample("docs/topics/manifests.md", "name = \"shop\""))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_titles_describes_and_switches_off_builtin_tools_and_instructs_agents() {
    let db = database().await;
    let (first, second) =
        (words(), TestManifest::from_text("name = 'more'\nversion = '1'\ninstructions = 'And be polite.'\n"));
    let command = || {
        let mut command = first.command(&db);
        command.args(second.arguments());
        command
    };
    let mut server = RawStdioServer::connected(command, "2025-11-25").await;
    let answer = server.request(2, "tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap();
    let tool = |name: &str| tools.iter().find(|tool| tool["name"] == name);
    let query = tool("query_database").unwrap();
    assert_eq!(
        (&query["title"], &query["description"]),
        (&json!("Ask the shop"), &json!("Ask the shop's database with one SELECT; $1, $2, .. in it are params."))
    );
    assert!(tool("explain_query").is_none() && tool("describe_database").is_some());
    let said = server.instructions();
    assert!(said.ends_with(".\n\nPrices are in cents. Ask the user before you refund.\n\nAnd be polite."), "{said}");
    assert!(said.contains("query_database") && !said.contains("explain_query"), "{said}");
    let call = json!({"name": "explain_query", "arguments": {"query": "select 1"}});
    assert_eq!(server.request(3, "tools/call", call).await["error"]["code"], -32602, "it is no tool");
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_settings_of_a_manifest_apply_before_the_database_is_reachable() {
    let mut command = Command::new(testkit::countersign());
    command.env("DATABASE_URL", "postgresql://me@127.0.0.1:1/shop").arg("serve");
    let manifest = words();
    command.args(manifest.arguments());
    let mut server = RawStdioServer::start(command, "2025-11-25").await;
    let said = server.instructions();
    assert!(
        said.contains("was not reachable when this session began") && said.ends_with("before you refund."),
        "{said}"
    );
    let answer = server.request(2, "tools/list", json!({})).await;
    let names: Vec<&Value> = answer["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["query_database", "describe_database"]);
    assert_eq!(answer["result"]["tools"][0]["title"], "Ask the shop");
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_sets_the_defaults_of_query_database() {
    let db = database().await;
    let manifest = TestManifest::from_text(
        "name = 'shop'\nversion = '1'\n[builtin.query_database]\nrow_limit = 3\nmax_result_bytes = 2000\n\
         row_format = 'array'\n",
    );
    let mut server = RawStdioServer::connected(|| manifest.command(&db), "2025-11-25").await;
    let answer = server.request(2, "tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap();
    let query = tools.iter().find(|tool| tool["name"] == "query_database").unwrap();
    let description = query["description"].as_str().unwrap();
    for part in ["At most 3 rows unless", "at most 2000 bytes", "Rows are arrays unless row_format says otherwise."] {
        assert!(description.contains(part), "{part}: {description}");
    }
    let mut id = 2;
    let mut ask = async |arguments: Value| {
        id += 1;
        let call = json!({"name": "query_database", "arguments": arguments});
        server.request(id, "tools/call", call).await["result"]["structuredContent"]["data"].clone()
    };
    let data = ask(json!({"query": "select i, i * 2 from generate_series(1, 10) i"})).await;
    assert_eq!((&data["rows"], &data["truncated_by"]), (&json!([[1, 2], [2, 4], [3, 6]]), &json!("row_limit")));
    let asked = json!({"query": "select i from generate_series(1, 4) i", "row_limit": 4, "row_format": "object"});
    assert_eq!(ask(asked).await["rows"][3], json!({"i": 4}));
    let data = ask(json!({"query": "select repeat('x', 900) from generate_series(1, 3) i"})).await;
    assert_eq!((&data["row_count"], &data["truncated_by"]), (&json!(2), &json!("max_bytes")));
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_manifests_with_settings_for_one_builtin_tool_are_a_mistake_with_both_places() {
    let db = database().await;
    let first = words();
    let second = TestManifest::from_text(
        "name = 'more'\nversion = '1'\n[builtin.query_database]\ntitle = 'Mine'\n[builtin.no_such_tool]\n\
         [builtin.execute_sql]\ncolour = 1\ntitle = ' '\nrow_limit = 5\n",
    );
    let mut command = first.command(&db);
    command.args(second.arguments());
    let said = testkit::startup_error(&mut command).await;
    let places = [first.path(), second.path()].map(|path| path.display().to_string());
    for line in [
        format!(
            "{}:3:10: tool query_database: two manifests speak of this built-in tool; the other one does at {}:5:10",
            places[1], places[0]
        ),
        format!("{}:5:10: tool no_such_tool: there is no such built-in tool; there are query_database, ", places[1]),
        format!("{}:7:1: unknown field `colour`", places[1]),
        format!("{}:8:9: tool execute_sql: title is empty", places[1]),
        format!("{}:9:13: tool execute_sql: row_limit is a default of query_database only", places[1]),
    ] {
        assert!(said.contains(&line), "{line}: {said}");
    }
}

const SETTINGS: &str = r#"
[[tool]]
name = "set_settings"
access = "write"
description = "Set them."
sql = "insert into social.setting (settings, more) values ($1, $2) returning settings"
rows = "one"
undo = { irreversible = "x" }

[[tool.param]]
name = "settings"
description = "The settings."
default = { size = 1 }
[tool.param.schema]
type = "object"
required = ["size"]
properties = { size = { type = "integer", minimum = 1 }, tags = { type = "array", items = { type = "string" } } }
additionalProperties = false

[[tool.param]]
name = "more"
description = "One for each shop."
optional = true
schema = { type = "object", properties = { open = { type = "boolean" } } }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_jsonb_parameter_has_the_shape_that_its_manifest_gives_it() {
    let db = database().await;
    db.run("create table social.setting (settings jsonb, more jsonb[])").await;
    let server = TestManifest::new(SETTINGS).serve(&db).await;
    let tools = server.client().list_tools().await.unwrap();
    let tool = tools.iter().find(|tool| tool["name"] == "set_settings").unwrap();
    let settings = &tool["inputSchema"]["properties"]["settings"];
    assert_eq!(settings["required"], json!(["size"]));
    assert_eq!(settings["properties"]["size"], json!({"type": "integer", "minimum": 1}));
    assert!(settings["description"].as_str().unwrap().starts_with("The settings."), "{settings}");
    assert_eq!(tool["inputSchema"]["properties"]["more"]["items"]["properties"]["open"]["type"], "boolean");
    for (arguments, said) in [
        (json!({"settings": {"size": 0}}), "settings.size"),
        (json!({"settings": {"tags": []}}), "settings"),
        (json!({"settings": {"size": 1, "tags": [1]}}), "settings.tags.0"),
        (json!({"settings": {"size": 1, "colour": 1}}), "colour"),
        (json!({"more": [{"open": 1}]}), "more.0.open"),
    ] {
        let error = server.fail("set_settings", arguments, "invalid_params").await;
        assert!(error["message"].as_str().unwrap().contains(said), "{said}: {error}");
    }
    assert_eq!(db.value("select count(*) from countersign.mutation").await, "0");
    let done = server.succeed("set_settings", json!({"more": [{"open": true, "else": 1}]})).await;
    assert_eq!(done["data"]["settings"], json!({"size": 1}), "the default");

    for (from, to, said) in [
        ("minimum = 1 }", "minimum = \"x\" }", "is no JSON Schema"),
        ("type = \"boolean\"", "type = [\"boolean\", \"null\"]", "properties.open has several types"),
        ("items = { type = \"string\" }", "items = { \"$ref\" = \"#\" }", "tags.items has $ref"),
        ("default = { size = 1 }", "default = { size = 0 }", "default: "),
        ("values ($1, $2)", "values (to_jsonb($1::text), $2)", "schema is for json and jsonb, and this is text"),
    ] {
        assert!(SETTINGS.contains(from), "{from}");
        let message = TestManifest::new(&SETTINGS.replace(from, to)).compile_error(&db).await;
        assert!(message.contains(said), "{said}: {message}");
    }
}

const DEPOSIT: &str = r#"
[[tool]]
name = "deposit"
access = "write"
description = "Deposit."
sql = "insert into social.deposit (amount, rest) values ($1, $2) returning amount::text as amount, rest::text as rest"
rows = "one"
undo = { irreversible = "x" }
param = [{ name = "amount", description = "How much.", minimum = 0, maximum = 100000000000000000000 }, { name = "rest", description = "The rest.", optional = true }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_numeric_parameter_accepts_a_number_or_its_digits_as_text_with_one_meaning() {
    let db = database().await;
    db.run("create table social.deposit (amount numeric, rest numeric[])").await;
    let text = DEPOSIT.replace("maximum = 100000000000000000000", "maximum = 9e18");
    let server = TestManifest::new(&text).serve(&db).await;
    let digits = "1234567890.12345678901234567890";
    let done = server.succeed("deposit", json!({"amount": digits, "rest": ["0.10", 2]})).await;
    assert_eq!(done["data"], json!({"amount": digits, "rest": "{0.10,2}"}), "every digit of it");
    let number: Value = serde_json::from_str(digits).unwrap();
    let refused = server.fail("deposit", json!({"amount": number}), "invalid_params").await;
    assert!(refused["hint"].as_str().unwrap().contains("as text"), "a client may have changed it: {refused}");
    let [number, rest]: [Value; 2] = ["12.50", "[0.10, \"2\"]"].map(|text| serde_json::from_str(text).unwrap());
    server.succeed("deposit", json!({"amount": "12.50", "rest": ["0.10", 2]})).await;
    let again = server.succeed("deposit", json!({"amount": number, "rest": rest})).await;
    assert_eq!(again["data"]["duplicate"], true, "the same call: {again}");
    for (amount, said) in [
        (json!("1.5e3"), "\"1.5e3\" is not of type \"number\""),
        (json!("five"), "is not of type"),
        (json!(" 1"), "is not of type"),
        (json!("-1"), "minimum"),
        (json!("9000000000000000001000"), "maximum"),
        (json!(true), "is not of type"),
        (json!({"a": 1}), "is not of type"),
    ] {
        let error = server.fail("deposit", json!({"amount": amount}), "invalid_params").await;
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("argument \"amount\"") && message.contains(said), "{amount}: {message}");
    }
    let counted = db.value("select count(*) from countersign.mutation where status <> 'duplicate'").await;
    assert_eq!(counted, "2");
    drop(Server::on(&db).await);
}
