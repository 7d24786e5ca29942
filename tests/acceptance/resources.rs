//! The answers of `describe_database` as MCP resources, in every protocol revision, only for profiles that have the
//! tool.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{ConfigDir, Database, RawStdioServer, Server, database, newest_meta, repository, send_signal};

const PROTOCOL: &str = "2025-06-18";

/// Names that an address must encode.
const ODD: &str = r#"
    create schema "a/b 100%"; create table "a/b 100%"."Größe?#""x""" (id int);
    create schema vault; create table vault.gold (bars int);
    grant usage on schema "a/b 100%" to countersign_reader;
    grant select on all tables in schema "a/b 100%" to countersign_reader"#;

async fn started(db: &Database) -> RawStdioServer {
    RawStdioServer::start(Server::command(db), PROTOCOL).await
}

async fn read(server: &mut RawStdioServer, uri: &str) -> Value {
    server.request(1, "resources/read", json!({"uri": uri})).await
}

/// The JSON that a resource's one text is.
fn content(answer: &Value) -> Value {
    let contents = answer["result"]["contents"].as_array().unwrap_or_else(|| panic!("{answer}"));
    assert_eq!((contents.len(), &contents[0]["mimeType"]), (1, &json!("application/json")), "{answer}");
    serde_json::from_str(contents[0]["text"].as_str().unwrap()).unwrap()
}

/// All pages of `resources/list` without the skills; each is of at most 100.
async fn list(server: &mut RawStdioServer) -> Vec<Value> {
    let (mut all, mut params) = (Vec::new(), json!({}));
    loop {
        let answer = server.request(2, "resources/list", params).await;
        let page = answer["result"]["resources"].as_array().unwrap_or_else(|| panic!("{answer}"));
        assert!(page.len() <= 100);
        all.extend(page.iter().filter(|resource| !is_skill(resource)).cloned());
        match answer["result"].get("nextCursor") {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => return all,
        }
    }
}

fn is_skill(resource: &Value) -> bool {
    resource["uri"].as_str().unwrap().starts_with("skill://")
}

fn uris(list: &[Value]) -> Vec<&str> {
    list.iter().map(|resource| resource["uri"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_schema_and_table_that_may_be_read_is_listed_and_reads_as_the_tool_answers() {
    let db = database().await;
    db.run(ODD).await;
    let mut server = started(&db).await;
    let listed = list(&mut server).await;
    let tables = ["account", "bookmark", "follow", "media", "retweet", "tweet", "tweet_like"];
    let of_studios = ["booking", "package", "package_photo", "studio", "working_hours"];
    let odd = "countersign://database/a%2Fb%20100%25";
    let mut expected = vec!["countersign://database".to_owned(), odd.to_owned()];
    expected.extend(["public", "social", "studio"].map(|schema| format!("countersign://database/{schema}")));
    expected.push(format!("{odd}/Gr%C3%B6%C3%9Fe%3F%23%22x%22"));
    expected.extend(tables.map(|table| format!("countersign://database/social/{table}")));
    expected.extend(of_studios.map(|table| format!("countersign://database/studio/{table}")));
    assert_eq!(uris(&listed), expected, "and nothing of the ledger, the system or the vault");
    let like = listed.iter().find(|resource| resource["name"] == "social.tweet_like").unwrap();
    assert_eq!((&like["name"], &like["description"]), (&json!("social.tweet_like"), &json!("table")));

    for (uri, arguments) in [
        ("countersign://database", json!({})),
        ("countersign://database/", json!({})),
        ("countersign://database/social", json!({"schema": "social"})),
        ("countersign://database/social/tweet", json!({"schema": "social", "table": "tweet"})),
        (uris(&listed)[5], json!({"schema": "a/b 100%", "table": "Größe?#\"x\""})),
    ] {
        let answer = read(&mut server, uri).await;
        assert_eq!(answer["result"]["contents"][0]["uri"], uri);
        let call = json!({"name": "describe_database", "arguments": arguments});
        let tool = server.request(3, "tools/call", call).await;
        assert_eq!(content(&answer), tool["result"]["structuredContent"]["data"], "{uri}");
    }
    // Each one that is listed can be read.
    for uri in uris(&listed) {
        assert!(content(&read(&mut server, uri).await).is_object(), "{uri}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_comes_in_pages_that_neither_repeat_nor_miss_one() {
    let db = database().await;
    db.run(
        "create schema many; do $$ begin for i in 1..250 loop execute format('create table many.\"T%s\" ()', i); end loop; end $$; \
         grant usage on schema many to countersign_reader; grant select on all tables in schema many to countersign_reader",
    )
    .await;
    let mut server = started(&db).await;
    let listed = list(&mut server).await;
    let mut unique = uris(&listed);
    unique.sort_unstable();
    unique.dedup();
    assert_eq!((listed.len(), unique.len()), (1 + 4 + 262, 1 + 4 + 262));
    // A page goes on behind its place, whatever has been dropped meanwhile.
    let cursor = json!({"cursor": "countersign://database/social/r"});
    let rest = server.request(4, "resources/list", cursor).await["result"]["resources"].clone();
    let rest: Vec<&str> = uris(rest.as_array().unwrap());
    assert_eq!(rest[0], "countersign://database/social/retweet");
    for wrong in ["", "nope", "countersign://other/x", "countersign://database/a/b/c"] {
        let answer = server.request(5, "resources/list", json!({"cursor": wrong})).await;
        assert_eq!(answer["error"]["code"], -32602, "{wrong}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_resource_gets_the_protocols_error_with_the_nearest_names() {
    let db = database().await;
    db.run(ODD).await;
    let mut server = started(&db).await;
    for (uri, said) in [
        ("countersign://database/social/twet", "The nearest tables that exist: social.tweet."),
        ("countersign://database/socal", "The nearest schemas that exist: social."),
        ("countersign://database/vault", "schema \"vault\" does not exist or is not readable"),
        ("countersign://database/vault/gold", "table or view \"gold\""),
        ("countersign://database/countersign/record", "table or view \"record\""),
        ("countersign://database/pg_catalog/pg_class", "table or view \"pg_class\""),
        ("countersign://database/social/tweet/text", "at most a schema and a table"),
        ("countersign://database/social/%ff", "there is no resource countersign://database/social/%ff"),
        ("countersign://database/social/a%00", "there is no resource"),
        ("countersign://elsewhere", "Addresses of this server begin with countersign://database."),
        ("file:///etc/passwd", "there is no resource file:///etc/passwd"),
        ("", "there is no resource"),
    ] {
        let answer = read(&mut server, uri).await;
        assert_eq!(answer["error"]["code"], -32002, "{uri}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(said), "{uri}: {answer}");
        assert_eq!(
            (&answer["error"]["data"]["uri"], &answer["error"]["data"]["error"]["code"]),
            (&json!(uri), &json!("not_found"))
        );
    }
    // Other things of the tables are not read by way of SQL.
    let hostile = "countersign://database/social/tweet%22%3B%20drop%20table%20social.tweet%3B%20--";
    assert_eq!(read(&mut server, hostile).await["error"]["code"], -32002);
    assert!(content(&read(&mut server, "countersign://database/social/tweet").await)["table"].is_object());
    for (method, params) in [
        ("resources/read", json!({})),
        ("resources/read", json!({"uri": 5})),
        ("completion/complete", json!({"ref": "x"})),
    ] {
        let answer = server.request(6, method, params).await;
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().starts_with(method), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_say_how_addresses_are_made_and_their_variables_are_completed() {
    let db = database().await;
    db.run(ODD).await;
    let mut server = started(&db).await;
    let templates =
        server.request(1, "resources/templates/list", json!({})).await["result"]["resourceTemplates"].clone();
    let made: Vec<&Value> = templates.as_array().unwrap().iter().map(|template| &template["uriTemplate"]).collect();
    assert_eq!(made, ["countersign://database/{schema}", "countersign://database/{schema}/{table}"]);

    let table = "countersign://database/{schema}/{table}";
    for (template, argument, value, known, values) in [
        (table, "schema", "", json!({}), json!(["a/b 100%", "public", "social", "studio"])),
        (made[0].as_str().unwrap(), "schema", "SOC", json!({}), json!(["social"])),
        (table, "table", "tw", json!({"schema": "social"}), json!(["tweet", "tweet_like", "retweet"])),
        (table, "table", "tw", json!({"schema": "public"}), json!([])),
        (table, "table", "größe", json!({}), json!(["Größe?#\"x\""])),
        (table, "table", "%", json!({}), json!([])),
        (table, "table", "gold", json!({}), json!([])),
        (table, "other", "x", json!({}), json!([])),
    ] {
        let params = json!({"ref": {"type": "ref/resource", "uri": template}, "argument": {"name": argument, "value": value},
            "context": {"arguments": known}});
        let answer = server.request(2, "completion/complete", params).await;
        assert_eq!(answer["result"]["completion"], json!({"values": values, "hasMore": false}), "{argument} {value}");
    }
    for reference in [json!({"type": "ref/resource", "uri": "x"}), json!({"type": "ref/prompt", "name": "x"})] {
        let params = json!({"ref": reference, "argument": {"name": "schema", "value": ""}});
        assert_eq!(server.request(3, "completion/complete", params).await["error"]["code"], -32602);
    }
    db.run(
        "do $$ begin for i in 1..120 loop execute format('create table social.more_%s ()', i); end loop; end $$; \
         grant select on all tables in schema social to countersign_reader",
    )
    .await;
    let params = json!({"ref": {"type": "ref/resource", "uri": table}, "argument": {"name": "table", "value": "more"}});
    let completion = server.request(4, "completion/complete", params).await["result"]["completion"].clone();
    assert_eq!((completion["values"].as_array().unwrap().len(), &completion["hasMore"]), (100, &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_without_the_tool_has_no_resource() {
    let db = database().await;
    let folder = ConfigDir::new();
    let config = format!(
        "database_url = {:?}\nlog = \"error\"\n[profiles.blind]\naccess = [\"read\"]\nexcept = [\"describe_database\"]\n",
        db.writer_url()
    );
    let mut command = folder.command(&config);
    command.args(["serve", "--profile", "blind"]);
    let mut server = RawStdioServer::start(command, PROTOCOL).await;
    assert_eq!(list(&mut server).await, [Value::Null; 0]);
    let templates = server.request(1, "resources/templates/list", json!({})).await;
    assert_eq!(templates["result"]["resourceTemplates"], json!([]));
    for uri in ["countersign://database", "countersign://database/social/tweet"] {
        let answer = read(&mut server, uri).await;
        assert_eq!(answer["error"]["code"], -32002, "{answer}");
        assert_eq!(answer["error"]["message"], format!("there is no resource {uri}"), "and no word of others");
    }
    let params = json!({"ref": {"type": "ref/resource", "uri": "countersign://database/{schema}"},
        "argument": {"name": "schema", "value": ""}});
    assert_eq!(server.request(2, "completion/complete", params).await["error"]["code"], -32602);
    let cursor = json!({"cursor": "countersign://database/social"});
    assert_eq!(server.request(3, "resources/list", cursor).await["error"]["code"], -32602);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_read_of_a_resource_frees_its_backend_and_one_that_hangs_ends_in_time() {
    let db = database().await;
    let mut command = Server::command(&db);
    command.args(["--call-deadline-ms", "3000"]);
    let mut server = RawStdioServer::start(command, PROTOCOL).await;
    read(&mut server, "countersign://database").await;
    let changing = db.lock("pg_catalog.pg_description").await;
    let answer = read(&mut server, "countersign://database/social").await;
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["data"]["error"]["code"]),
        (&json!(-32603), &json!("timeout")),
        "{answer}"
    );

    let request = json!({"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": {"uri": "countersign://database/social"}});
    server.send(&request.to_string()).await;
    let waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let pid = db.first_value(waiting).await;
    let started = std::time::Instant::now();
    server.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#).await;
    db.first_value(&format!(
        "select 1 where not exists (select from pg_stat_activity where pid = {pid} and state = 'active')"
    ))
    .await;
    assert!(started.elapsed().as_millis() < 2000, "before its deadline: {:?}", started.elapsed());
    changing.release().await;
    assert!(content(&read_later(&mut server, "countersign://database/social").await).is_object());
    assert!(server.close().await);
}

/// Reads, whatever else the server still has to say of a cancelled request.
async fn read_later(server: &mut RawStdioServer, uri: &str) -> Value {
    server
        .send(&json!({"jsonrpc": "2.0", "id": 8, "method": "resources/read", "params": {"uri": uri}}).to_string())
        .await;
    loop {
        let answer = server.receive().await;
        if answer["id"] == 8 {
            return answer;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_protocol_version_has_the_resources() {
    let db = database().await;
    for protocol in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut server = RawStdioServer::without_session(Server::command(&db));
        let hello =
            json!({"protocolVersion": protocol, "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}});
        let answer = server.request(0, "initialize", hello).await;
        assert_eq!(answer["result"]["capabilities"]["resources"], json!({"listChanged": true}), "{answer}");
        assert_eq!(answer["result"]["capabilities"]["completions"], json!({}), "{answer}");
        server.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        assert_eq!(list(&mut server).await.len(), 16, "{protocol}");
        assert_eq!(content(&read(&mut server, "countersign://database/social/tweet").await)["table"]["name"], "tweet");
        assert_eq!(read(&mut server, "countersign://database/x").await["error"]["code"], -32002);
        assert!(server.close().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_protocol_gets_resources_in_its_own_form() {
    let db = database().await;
    let mut server = RawStdioServer::without_session(Server::command(&db));
    let discovered = server.request(1, "server/discover", json!({"_meta": newest_meta()})).await;
    assert_eq!(discovered["result"]["capabilities"]["resources"]["listChanged"], true, "{discovered}");
    let listed = server.request(2, "resources/list", json!({"_meta": newest_meta()})).await["result"].clone();
    let (skills, others): (Vec<_>, Vec<_>) =
        listed["resources"].as_array().unwrap().iter().partition(|it| is_skill(it));
    assert_eq!((skills.len(), others.len()), (3, 16));
    let read = server
        .request(3, "resources/read", json!({"uri": "countersign://database/social/tweet", "_meta": newest_meta()}))
        .await;
    assert_eq!(content(&read)["table"]["name"], "tweet");
    for result in [&listed, &read["result"]] {
        // The content depends on the caller, and the database may change before the next read.
        let hints = (&result["resultType"], &result["ttlMs"], &result["cacheScope"]);
        assert_eq!(hints, (&json!("complete"), &json!(0), &json!("private")), "{result}");
    }
    let missing = json!({"uri": "countersign://database/social/twet", "_meta": newest_meta()});
    let missing = server.request(4, "resources/read", missing).await;
    assert_eq!(missing["error"]["code"], -32602, "{missing}");
    assert!(missing["error"]["message"].as_str().unwrap().contains("social.tweet."), "{missing}");
    assert!(server.close().await);
}

struct Changing {
    folder: ConfigDir,
    db: Database,
}

impl Changing {
    async fn new() -> Self {
        let changing = Self { folder: ConfigDir::new(), db: database().await };
        changing.write("Old.", "");
        changing
    }

    fn write(&self, note: &str, profile: &str) -> String {
        let manifest = format!("name = \"m\"\nversion = \"1\"\n[[note]]\non = \"social.tweet\"\ntext = \"{note}\"\n");
        self.folder.write("m.toml", &manifest);
        let url = self.db.writer_url();
        let config = format!(
            "database_url = {url:?}\nmanifests = [\"m.toml\"]\nlog = \"warn\"\n[profiles.own]\naccess = [\"read\"]\n{profile}"
        );
        self.folder.write("countersign.toml", &config);
        config
    }

    fn command(&self) -> tokio::process::Command {
        let mut command = self.folder.command(&self.write("Old.", ""));
        command.args(["serve", "--profile", "own"]);
        command
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_notified_when_the_notes_or_its_privileges_on_resources_change() {
    let changing = Changing::new().await;
    let mut server = RawStdioServer::start(changing.command(), PROTOCOL).await;
    let tweet = "countersign://database/social/tweet";
    assert_eq!(content(&read(&mut server, tweet).await)["table"]["notes"], json!(["Old."]));
    changing.write("New.", "");
    send_signal(server.pid(), Signal::SIGHUP);
    assert_eq!(server.receive().await["method"], "notifications/resources/list_changed");
    assert_eq!(content(&read(&mut server, tweet).await)["table"]["notes"], json!(["New."]));

    changing.write("New.", "except = [\"describe_database\"]\n");
    send_signal(server.pid(), Signal::SIGHUP);
    assert_eq!(server.receive().await["method"], "notifications/tools/list_changed");
    assert_eq!(server.receive().await["method"], "notifications/resources/list_changed");
    assert_eq!(read(&mut server, tweet).await["error"]["code"], -32002);
    assert_eq!(list(&mut server).await, [Value::Null; 0]);

    // Without a change there is no notification: the next one is about the tools only.
    changing.write("New.", "except = [\"describe_database\", \"explain_query\"]\n");
    send_signal(server.pid(), Signal::SIGHUP);
    assert_eq!(server.receive().await["method"], "notifications/tools/list_changed");
    assert_eq!(list(&mut server).await, [Value::Null; 0]);
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_gets_only_the_notifications_that_it_requested() {
    let changing = Changing::new().await;
    for (asked, told) in [("resourcesListChanged", "resources"), ("toolsListChanged", "tools")] {
        let mut server = RawStdioServer::without_session(changing.command());
        server.request(1, "server/discover", json!({"_meta": newest_meta()})).await;
        let listen = json!({"jsonrpc": "2.0", "id": 2, "method": "subscriptions/listen",
            "params": {"_meta": newest_meta(), "notifications": {asked: true}}});
        server.send(&listen.to_string()).await;
        let acknowledged = server.receive().await;
        assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged", "{acknowledged}");
        // Both change twice.
        for (note, except) in [("New.", "explain_query"), ("Newer.", "query_database")] {
            changing.write(note, &format!("except = [\"{except}\"]\n"));
            send_signal(server.pid(), Signal::SIGHUP);
            assert_eq!(server.receive().await["method"], format!("notifications/{told}/list_changed"));
        }
        assert!(server.close().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_has_the_skills_about_its_tools() {
    let db = database().await;
    let mut server = RawStdioServer::start(Server::command(&db), PROTOCOL).await;
    let listed = server.request(1, "skills/list", json!({})).await["result"]["skills"].clone();
    let names: Vec<&Value> = listed.as_array().unwrap().iter().map(|skill| &skill["frontmatter"]["name"]).collect();
    assert_eq!(names, ["countersign-read", "countersign-write", "countersign-undo"]);
    for skill in listed.as_array().unwrap() {
        let (uri, name) = (&skill["uri"], skill["frontmatter"]["name"].as_str().unwrap());
        let got = server.request(2, "skills/get", json!({"uri": uri})).await;
        assert_eq!(&got["result"]["skill"], skill);
        let contents = read(&mut server, uri.as_str().unwrap()).await["result"]["contents"].clone();
        let file = std::fs::read_to_string(repository().join("skills").join(name).join("SKILL.md")).unwrap();
        assert_eq!(contents, json!([{"uri": uri, "mimeType": "text/markdown", "text": file}]));
        assert_eq!(skill["resources"][0]["size"], file.len());
    }
    assert!(server.close().await);

    let mut command = Server::command(&db);
    command.args(["--profile", "readonly"]);
    let mut server = RawStdioServer::start(command, PROTOCOL).await;
    let listed = server.request(1, "skills/list", json!({})).await["result"]["skills"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    for (method, code) in [("skills/get", -32602), ("resources/read", -32002)] {
        for (params, said) in [
            (json!({"uri": "skill://countersign-undo/SKILL.md"}), "skill://countersign-undo/SKILL.md"),
            (json!({}), "{\"uri\": string}"),
        ] {
            let answer = server.request(2, method, params).await;
            let expected = if said.starts_with('{') { -32602 } else { code };
            assert_eq!(answer["error"]["code"], expected, "{answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains(said), "{answer}");
        }
    }
}
