//! Notes on the schema in manifests, as `describe_database` returns them, and the tools that use a table.

use serde_json::{Value, json};
use testkit::{ConfigDir, Database, Server, database};

const SETUP: &str = "
    create table social.visit (at date not null, n int) partition by range (at);
    create table social.visit_2026 partition of social.visit for values from ('2026-01-01') to ('2027-01-01');
    create table social.hidden (id int);
    create view social.handles as select handle from social.account;
    grant select on social.visit, social.visit_2026, social.handles to countersign_reader;
    revoke all on social.hidden from countersign_reader";

const MANIFEST: &str = r#"
name = "m"
version = "1.0"

[[note]]
on = "social"
text = "Since 2024; before that see the archive."
[[note]]
on = "social.tweet"
text = "Ask for a month at most: it is huge."
[[note]]
on = "social.tweet"
text = "A second note."
[[note]]
on = "social.tweet.created_at"
text = "In the account's own time ZONE until 2025."
[[note]]
on = "social.hidden"
text = "Nobody is to know of the hoard."

[[tool]]
name = "read_timeline"
access = "read"
description = "The newest tweets."
sql = "select t.id, a.handle from social.tweet t join social.account a using (account_id) order by t.id desc limit 10"

[[tool]]
name = "reply_like"
access = "write"
tier = "confirm"
description = "Reply to a tweet and like it."
sql = [
    "insert into social.tweet_like (account_id, tweet_id) values ($1, $2)",
    "insert into social.tweet (account_id, text, in_reply_to_id) select $1, 'yes', id from social.tweet where id = $2 returning id",
]
rows = "one"
undo = { irreversible = "No." }
param = [{ name = "who", from = "principal.account_id" }, { name = "id", description = "Which." }]

[[tool]]
name = "count_visit"
access = "write"
description = "Count a visit."
sql = "insert into social.visit values ('2026-03-03', 1) returning n"
rows = "one"
undo = { irreversible = "No." }

[[tool]]
name = "mend_visit"
access = "admin"
description = "Mend a visit of 2026."
sql = "update social.visit_2026 set n = 0 where n < 0 returning n"
rows = "any"
max_rows = 5
undo = { irreversible = "No." }

[[tool]]
name = "read_handles"
access = "read"
description = "All handles."
sql = "select handle from social.handles"
"#;

struct Setup {
    folder: ConfigDir,
    db: Database,
}

async fn setup() -> Setup {
    let setup = Setup { folder: ConfigDir::new(), db: database().await };
    setup.db.run(SETUP).await;
    setup.folder.write("m.toml", &MANIFEST.replace("tier = \"confirm\"\n", ""));
    setup
}

impl Setup {
    async fn server(&self, profile: &str) -> Server {
        let config = format!("database_url = {:?}\nmanifests = [\"m.toml\"]\nlog = \"warn\"\n", self.db.writer_url());
        let mut command = self.folder.command(&config);
        command.args(["serve", "--profile", profile]);
        Server::start(command).await
    }
}

async fn describe(server: &Server, arguments: Value) -> Value {
    server.succeed("describe_database", arguments).await["data"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_appear_with_the_objects_that_they_describe() {
    let setup = setup().await;
    let server = setup.server("readonly").await;
    let overview = describe(&server, json!({"schema": "social"})).await;
    let schema = &overview["schemas"][0];
    assert_eq!(schema["notes"], json!(["Since 2024; before that see the archive."]));
    let tables = schema["tables"].as_array().unwrap();
    let with_notes: Vec<&Value> = tables.iter().filter(|table| table.get("notes").is_some()).collect();
    let both = json!(["Ask for a month at most: it is huge.", "A second note."]);
    assert_eq!((with_notes.len(), &with_notes[0]["name"], &with_notes[0]["notes"]), (1, &json!("tweet"), &both));

    let table = describe(&server, json!({"table": "tweet"})).await["table"].clone();
    assert_eq!(table["notes"], both);
    let columns = table["columns"].as_array().unwrap();
    let with_notes: Vec<&Value> = columns.iter().filter(|column| column.get("notes").is_some()).collect();
    assert_eq!((with_notes.len(), &with_notes[0]["name"]), (1, &json!("created_at")));
    assert_eq!(with_notes[0]["notes"], json!(["In the account's own time ZONE until 2025."]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_finds_notes_and_a_note_on_what_may_not_be_read_is_never_shown() {
    let setup = setup().await;
    let server = setup.server("admin").await;
    let found = describe(&server, json!({"search": "time zone"})).await["found"].clone();
    let column = &found["columns"][0];
    assert_eq!((&column["table"], &column["name"]), (&json!("tweet"), &json!("created_at")), "{found}");
    assert_eq!(column["notes"], json!(["In the account's own time ZONE until 2025."]));
    let found = describe(&server, json!({"search": "huge", "schema": "social"})).await["found"].clone();
    assert_eq!((&found["tables"][0]["name"], &found["columns"]), (&json!("tweet"), &json!([])), "{found}");
    assert_eq!(describe(&server, json!({"search": "huge", "schema": "public"})).await["found"]["tables"], json!([]));

    let nothing = json!({"tables": [], "columns": []});
    assert_eq!(describe(&server, json!({"search": "hoard"})).await["found"], nothing);
    for arguments in [json!({}), json!({"schema": "social"}), json!({"search": "social"})] {
        let data = describe(&server, arguments).await.to_string();
        assert!(!data.contains("hoard") && !data.contains("hidden"), "{data}");
    }
    let error = server.fail("describe_database", json!({"table": "hidden"}), "not_found").await;
    assert!(!error.to_string().contains("hoard"), "{error}");
}

/// Name, access and whether it writes, of the tools that touch a table.
async fn tools(server: &Server, table: &str) -> Vec<(String, String, bool)> {
    let data = describe(server, json!({"table": table})).await;
    let tools = data["table"].get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |tool: &Value, key: &str| tool[key].as_str().unwrap().to_owned();
    tools.iter().map(|tool| (text(tool, "name"), text(tool, "access"), tool["writes"].as_bool().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_of_a_table_names_the_tools_of_the_profile_that_use_it() {
    let setup = setup().await;
    let admin = setup.server("admin").await;
    let tool = |name: &str, access: &str, writes: bool| (name.to_owned(), access.to_owned(), writes);
    let like = tool("reply_like", "write", true);
    assert_eq!(tools(&admin, "tweet").await, [tool("read_timeline", "read", false), like.clone()]);
    assert_eq!(tools(&admin, "tweet_like").await, std::slice::from_ref(&like));
    let reads_account = [tool("read_timeline", "read", false), tool("read_handles", "read", false)];
    assert_eq!(tools(&admin, "account").await, reads_account, "through a view as well");
    assert_eq!(tools(&admin, "media").await, []);
    // The partitioned table has the tools of its partitions, and a partition its own.
    let visits = [tool("count_visit", "write", true), tool("mend_visit", "admin", true)];
    assert_eq!(tools(&admin, "visit").await, visits);
    assert_eq!(tools(&admin, "visit_2026").await, [tool("mend_visit", "admin", true)]);

    let all = describe(&admin, json!({"table": "tweet_like"})).await["table"]["tools"].clone();
    let expected = json!({"name": "reply_like", "writes": true, "access": "write", "tier": "auto",
        "description": "Reply to a tweet and like it."});
    assert_eq!(all, json!([expected]));

    let write = setup.server("write").await;
    assert_eq!(tools(&write, "visit").await, [tool("count_visit", "write", true)], "admin tools are not there");
    let readonly = setup.server("readonly").await;
    assert_eq!(tools(&readonly, "tweet").await, [tool("read_timeline", "read", false)]);
    assert_eq!(tools(&readonly, "visit").await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_on_what_does_not_exist_stops_the_start_with_its_place() {
    let setup = setup().await;
    setup.db.run("drop table social.hidden").await;
    let config = format!("database_url = {:?}\nmanifests = [\"m.toml\"]\n", setup.db.writer_url());
    for verb in [&["serve", "--strict"][..], &["check"]] {
        let output = setup.folder.command(&config).args(verb).output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("m.toml:18:6: on: relation \"social.hidden\" does not exist (SQLSTATE 42P01)"), "{said}");
    }
}
