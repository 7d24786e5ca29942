//! `countersign demo`, as a newcomer runs it.

use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::Value;
use testkit::{countersign, poll, send_signal};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::console::Browser;

async fn run(home: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(countersign());
    command.arg("demo").args(arguments).env("COUNTERSIGN_DEMO_DIR", home);
    // Whatever the caller's shell is set to, the demo uses its own database.
    command.env("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nowhere");
    let output = command.output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_shows_every_step_and_ends_with_a_configuration_that_works() {
    let folder = tempfile::Builder::new().prefix("countersign-demo-test").tempdir_in(std::env::temp_dir()).unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let home = folder.path().join("demo");
    let short = run(&home, &[]).await;
    assert!(short.lines().count() <= 30, "{short}");
    for part in ["   ok The records are in a signed log", "countersign demo --verbose", "countersign demo --console"] {
        assert!(short.contains(part), "{part}: {short}");
    }
    assert!(short.lines().all(|line| line.chars().count() <= 100), "{short}");
    let first = run(&home, &["--fresh", "--verbose"]).await;
    for part in [
        "using PostgreSQL",
        "tools/list",
        "\"not_read_only\"",
        "-> execute_sql",
        "ok: the user sees the row before and after; nothing was written yet",
        "ok: the name is the old one",
        "-> like_tweet",
        "\"duplicate\": true",
        "-> unlike_tweet",
        "-> get_recent_mutations",
        "-> get_mutation_detail",
        "\"undo_conflict\"",
        "$ countersign undo plan --session ",
        "ok: every row is what it was, in one transaction",
        "ok: no record was changed or removed since",
        "claude_desktop_config.json",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let first_write = first.find("-> execute_sql ").unwrap();
    assert!(!first[..first_write].contains("\"rollback\""), "it is the first write: {first}");
    let took = first.split_once("Every step answered as it should, in ").and_then(|(_, rest)| rest.split_once(" s."));
    assert!(took.is_some_and(|(seconds, _)| seconds.parse::<f64>().unwrap() > 0.0), "{first}");
    assert!(!first.contains('\u{1b}'), "no colours where there is no terminal");
    // Again: the data are kept, and it still works; then anew.
    assert!(run(&home, &[]).await.contains("from an earlier run"));
    assert!(run(&home, &["--fresh"]).await.contains("making a new database cluster"));

    // The block that it prints starts a server: an absolute command that exists.
    let block = &first[first.find("{\n  \"mcpServers\"").unwrap()..first.find("VS Code").unwrap()];
    let block: Value = serde_json::from_str(block.trim()).unwrap();
    let entry = &block["mcpServers"]["countersign-demo"];
    let program = Path::new(entry["command"].as_str().unwrap());
    assert!(program.is_absolute() && program.exists());
    let mut command = Command::new(program);
    for argument in entry["args"].as_array().unwrap() {
        command.arg(argument.as_str().unwrap());
    }
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("COUNTERSIGN_DEMO_DIR", &home);
    command.env("COUNTERSIGN_LOG", "warn");
    let server = testkit::Server::start(command).await;
    assert_eq!(server.query("select count(*) > 0 as loaded from social.tweet").await[0]["loaded"], true);
    server.close().await;
}

/// `countersign demo --console`, and what it has printed so far.
pub(crate) struct ConsoleDemo {
    child: Child,
    printed: String,
    _folder: tempfile::TempDir,
}

impl ConsoleDemo {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("countersign-demo-test").tempdir_in(std::env::temp_dir()).unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = Command::new(countersign());
        command.args(["demo", "--console"]).env("COUNTERSIGN_DEMO_DIR", folder.path().join("demo"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut printed = String::new();
        while !printed.contains("Ctrl+C ends the demo") {
            printed += &lines.next_line().await.unwrap().unwrap_or_else(|| panic!("the demo ended: {printed}"));
            printed.push('\n');
        }
        Self { child, printed, _folder: folder }
    }

    /// The link that it has printed.
    pub(crate) fn link(&self) -> &str {
        self.printed.lines().map(str::trim).find(|line| line.starts_with("http://")).unwrap()
    }

    pub(crate) async fn end(mut self) {
        send_signal(self.child.id().unwrap(), Signal::SIGINT);
        assert!(self.child.wait().await.unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_of_the_console_signs_a_person_in_with_a_proposal_that_can_be_approved() {
    let demo = ConsoleDemo::start().await;
    assert!(demo.printed.contains("1 proposal waits"), "{}", demo.printed);
    let (base, token) = demo.link().split_once("/login/").unwrap();
    let mut browser = Browser::at(base);
    browser.post("/login", &[("link", token)]).await;
    let inbox = browser.get("/").await;
    assert!(inbox.body.contains("<title>(1) Inbox") && inbox.body.contains("Delete a package"), "{}", inbox.body);
    let row = inbox.body.lines().find(|line| line.contains("Delete a package")).unwrap();
    let after =
        |text: &str, mark: &str| text.split(mark).nth(1).and_then(|rest| rest.split('"').next().map(str::to_owned));
    let proposal = after(row, "href=\"").unwrap();
    let page = browser.get(&proposal).await;
    let digest = after(&page.body, "name=\"digest\" value=\"").unwrap_or_else(|| panic!("{}", page.body));
    browser.post(&format!("{proposal}/approve"), &[("digest", &digest)]).await;
    poll::until("the write is executed", async || browser.clone().get(&proposal).await.body.contains("Executed as"))
        .await;
    let page = browser.get(&proposal).await;
    let record = after(&page.body, "href=\"/records/").unwrap();
    let undone = browser.post(&format!("/records/{record}/undo"), &[]).await;
    assert_eq!(undone.status, 303, "{}", undone.body);
    demo.end().await;
}
