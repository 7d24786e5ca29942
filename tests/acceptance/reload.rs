//! SIGHUP: the tools change while the server runs; with `--strict` all or none.

use nix::sys::signal::Signal;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{ConfigDir, Database, RawStdioServer, Server, database, newest_meta, send_signal};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStderr, Command};

fn tool(name: &str, sql: &str) -> String {
    format!(
        "[[tool]]\nname = \"{name}\"\naccess = \"write\"\ndescription = \"Change a text.\"\nsql = \"{sql}\"\nrows = \"one\"\n\
         undo = {{ irreversible = \"No.\" }}\n[[tool.param]]\nname = \"id\"\ndescription = \"Which.\"\n\n"
    )
}

fn manifest(tools: &[String]) -> String {
    format!("name = \"m\"\nversion = \"1.0\"\n\n{}", tools.concat())
}

const OLD: &str = "update social.tweet set text = 'old' where id = $1 returning text";
const NEW: &str = "update social.tweet set text = 'new' where id = $1 returning text";

struct Setup {
    folder: ConfigDir,
    db: Database,
}

impl Setup {
    /// A server's files, with the tool `change` as OLD has it.
    async fn new() -> Self {
        let setup = Self { folder: ConfigDir::new(), db: database().await };
        setup.write(&[tool("change", OLD)]);
        setup
    }

    fn write(&self, tools: &[String]) -> PathBuf {
        self.folder.write("m.toml", &manifest(tools))
    }

    fn config(&self, rest: &str) -> String {
        format!("database_url = {:?}\nmanifests = [\"m.toml\"]\nlog = \"info\"\n{rest}", self.db.url())
    }

    /// A server that takes all tools of its manifests or none.
    fn strict(&self, rest: &str) -> Command {
        let mut command = self.command(rest);
        command.arg("--strict");
        command
    }

    fn command(&self, rest: &str) -> Command {
        let mut command = self.folder.command(&self.config(rest));
        command.arg("serve");
        command
    }
}

/// Waits for the next `notifications/tools/list_changed`.
async fn told(changes: &mut tokio::sync::watch::Receiver<u64>) {
    tokio::time::timeout(std::time::Duration::from_secs(20), changes.changed()).await.expect("a notification").unwrap();
}

/// A session whose server's log can be read: proof of what a reload came to.
struct Logged {
    server: RawStdioServer,
    log: Lines<BufReader<ChildStderr>>,
}

impl Logged {
    async fn start(command: Command) -> Self {
        let (server, stderr) = RawStdioServer::start_logged(command, "2025-06-18").await;
        Self { server, log: BufReader::new(stderr).lines() }
    }

    /// The log up to the line that has `part` in it.
    async fn until(&mut self, part: &str) -> String {
        let mut seen = String::new();
        let found = async {
            while let Some(line) = self.log.next_line().await.unwrap() {
                seen.push_str(&line);
                seen.push('\n');
                if line.contains(part) {
                    return;
                }
            }
            panic!("the server ended");
        };
        let in_time = tokio::time::timeout(std::time::Duration::from_secs(20), found).await.is_ok();
        assert!(in_time, "no \"{part}\" in {seen}");
        seen
    }

    async fn names(&mut self) -> Vec<String> {
        let answer = self.server.request(9, "tools/list", json!({})).await;
        answer["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().into()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_notified_of_the_change_and_sees_the_new_tools() {
    let setup = Setup::new().await;
    let mut command = setup.command("");
    command.args(["--log", "warn"]);
    let server = Server::start(command).await;
    let mut changes = server.client().tool_changes();
    assert!(!server.tool_names().await.contains(&"added".to_owned()));
    assert_eq!(server.succeed("change", json!({"id": 1})).await["data"]["text"], "old");

    setup.write(&[tool("change", NEW), tool("added", OLD)]);
    send_signal(server.client().pid().unwrap(), Signal::SIGHUP);
    told(&mut changes).await;
    assert!(server.tool_names().await.contains(&"added".to_owned()));
    // Another row: the same call would be a duplicate of the first one, whatever the tool is now.
    assert_eq!(server.succeed("change", json!({"id": 2})).await["data"]["text"], "new");
    assert_eq!(server.succeed("added", json!({"id": 3})).await["data"]["text"], "old");
    let records = "select count(*) from countersign.mutation where status = 'success'";
    assert_eq!(setup.db.value(records).await, "3");

    // And away again: it is an unknown tool then.
    setup.write(&[tool("added", OLD)]);
    send_signal(server.client().pid().unwrap(), Signal::SIGHUP);
    told(&mut changes).await;
    assert!(!server.tool_names().await.contains(&"change".to_owned()));
    let gone = server.client().call("change", testkit::arguments(json!({"id": 4}))).await.unwrap_err();
    assert!(gone.to_string().contains("Unknown tool: change"), "{gone}");
    assert_eq!(setup.db.value(records).await, "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_or_a_configuration_that_is_wrong_keeps_the_old_tools_and_every_mistake_is_logged() {
    let setup = Setup::new().await;
    let mut logged = Logged::start(setup.strict("[profiles.own]\naccess = [\"write\"]\n")).await;
    let before = logged.names().await;
    let pid = logged.server.pid();
    logged.until("ready").await;

    setup.write(&[tool("change", NEW), tool("broken", "update social.nowhere set x = $1"), tool("worse", "selec $1")]);
    send_signal(pid, Signal::SIGHUP);
    let said = logged.until("tool worse").await;
    assert!(said.contains("were not reloaded, the old ones stay"), "{said}");
    assert!(said.contains("m.toml:19:15: tool broken: ") && said.contains("m.toml:30:8: "), "{said}");
    assert!(said.matches("ERROR").count() >= 3, "{said}");
    assert_eq!(logged.names().await, before);

    setup.write(&[tool("change", NEW)]);
    setup.folder.write("countersign.toml", &setup.config("[profiles.own]\ntools = [\"chnge\"]\n"));
    send_signal(pid, Signal::SIGHUP);
    assert!(logged.until("chnge").await.contains("countersign.toml:5:10: profile own: there is no tool"));
    setup.folder.write("countersign.toml", "profil = 3\n");
    send_signal(pid, Signal::SIGHUP);
    logged.until("countersign.toml:1:1: there is no key profil").await;
    let call = json!({"name": "change", "arguments": {"id": 1}});
    let answer = logged.server.request(3, "tools/call", call).await;
    assert_eq!(answer["result"]["structuredContent"]["data"]["text"], "old", "{answer}");

    // No notification came, since nothing changed: the next one is about the valid files.
    setup.folder.write("countersign.toml", &setup.config("account = \"later\"\n"));
    setup.write(&[tool("changed", NEW)]);
    send_signal(pid, Signal::SIGHUP);
    assert!(logged.until("are served").await.contains("count from the next start"));
    assert_eq!(logged.server.receive().await["method"], "notifications/tools/list_changed");
    let after: Vec<String> =
        before.into_iter().map(|name| if name == "change" { "changed".into() } else { name }).collect();
    assert_eq!(logged.names().await, after);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_runs_through_the_change_ends_with_the_tool_it_began_with_once() {
    let setup = Setup::new().await;
    let mut logged = Logged::start(setup.command("")).await;
    let mut blocker = setup.db.connect().await;
    let lock = blocker.transaction().await.unwrap();
    lock.batch_execute("select from social.tweet where id = 1 for update").await.unwrap();
    let call = json!({"name": "change", "arguments": {"id": 1}});
    let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call});
    logged.server.send(&message.to_string()).await;
    let waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    setup.db.first_value(waiting).await;

    setup.write(&[tool("other", NEW)]);
    send_signal(logged.server.pid(), Signal::SIGHUP);
    logged.until("are served").await;
    assert_eq!(logged.server.receive().await["method"], "notifications/tools/list_changed");
    let answer = logged.server.request(8, "tools/call", call).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    lock.rollback().await.unwrap();
    let answer = logged.server.receive().await;
    assert_eq!((&answer["id"], &answer["result"]["structuredContent"]["data"]["text"]), (&json!(7), &json!("old")));
    assert_eq!(
        setup.db.rows("select tool_name, status from countersign.mutation").await,
        [["change".to_owned(), "success".to_owned()]]
    );

    // It is the same call to the new tools as well: once, whatever was reloaded in between.
    setup.write(&[tool("change", NEW)]);
    send_signal(logged.server.pid(), Signal::SIGHUP);
    logged.until("are served").await;
    assert_eq!(logged.server.receive().await["method"], "notifications/tools/list_changed");
    let again = json!({"name": "change", "arguments": {"id": 1}});
    let again = logged.server.request(9, "tools/call", again).await;
    assert_eq!(again["result"]["structuredContent"]["data"]["duplicate"], true, "{again}");
    assert_eq!(setup.db.value("select text from social.tweet where id = 1").await, "old");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_newest_protocol_are_notified_through_a_subscription() {
    let setup = Setup::new().await;
    let mut command = setup.command("");
    command.args(["--log", "warn"]).stderr(Stdio::inherit());
    let mut server = RawStdioServer::without_session(command);
    let meta = newest_meta();
    let discovered = server.request(1, "server/discover", json!({"_meta": meta})).await;
    assert_eq!(discovered["result"]["capabilities"]["tools"]["listChanged"], true, "{discovered}");
    let listen = json!({"jsonrpc": "2.0", "id": 2, "method": "subscriptions/listen",
        "params": {"_meta": meta, "notifications": {"toolsListChanged": true}}});
    server.send(&listen.to_string()).await;
    let acknowledged = server.receive().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged", "{acknowledged}");
    setup.write(&[tool("change", OLD), tool("added", OLD)]);
    send_signal(server.pid(), Signal::SIGHUP);
    let told: Value = server.receive().await;
    assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    let tools = server.request(3, "tools/list", json!({"_meta": meta})).await;
    assert!(tools.to_string().contains("\"added\""), "{tools}");
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_serves_the_tools_that_fit_and_says_what_is_wrong_with_the_others() {
    // N-3: as a start.
    let setup = Setup::new().await;
    let mut logged = Logged::start(setup.command("")).await;
    logged.until("ready").await;
    setup.write(&[tool("change", NEW), tool("broken", "update social.nowhere set x = $1")]);
    send_signal(logged.server.pid(), Signal::SIGHUP);
    let said = logged.until("are served").await;
    assert!(said.contains("does not fit the database: ") && said.contains("tool broken: "), "{said}");
    assert!(!logged.names().await.contains(&"broken".to_owned()));
    let call = json!({"name": "change", "arguments": {"id": 1}});
    let answer = logged.server.request(3, "tools/call", call).await;
    assert_eq!(answer["result"]["structuredContent"]["data"]["text"], "new", "{answer}");
}
