//! `countersign proposals watch`: what is open, then each change, until it is interrupted.

use std::fs::File;
use std::io::Write;
use std::process::Stdio;

use nix::pty::openpty;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{Server, countersign, database, send_signal};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

use super::{approver, proposals, propose_deletion, read_until, spare_package, text};

/// The next line, as JSON: proposal and state.
async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> (String, String) {
    let line = tokio::time::timeout(std::time::Duration::from_secs(30), lines.next_line()).await;
    let line: Value = serde_json::from_str(&line.expect("a line in time").unwrap().expect("a line")).unwrap();
    (text(&line, "proposal_id").to_owned(), text(&line, "status").to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_prints_what_is_open_and_then_each_change_as_json() {
    let db = database().await;
    let url = approver(&db).await;
    let server = Server::studio(&db).await;
    let over = propose_deletion(&server, spare_package(&db, "default", "Over").await).await;
    server.succeed("reject_proposal", json!({"proposal_id": over["proposal_id"]})).await;
    let first = propose_deletion(&server, spare_package(&db, "default", "First").await).await;

    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", &url).args(["proposals", "watch"]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let of = |proposal: &Value, state: &str| (text(proposal, "proposal_id").to_owned(), state.to_owned());
    assert_eq!(next(&mut lines).await, of(&first, "pending"), "what is over is not printed");
    let second = propose_deletion(&server, spare_package(&db, "default", "Second").await).await;
    assert_eq!(next(&mut lines).await, of(&second, "pending"));
    assert_eq!(proposals(&url, &["reject", text(&first, "proposal_id")]).await.code, 0);
    assert_eq!(next(&mut lines).await, of(&first, "rejected"));
    assert_eq!(proposals(&url, &["approve", text(&second, "proposal_id"), "--yes"]).await.code, 0);
    let (id, state) = next(&mut lines).await;
    let ended = if state == "confirmed" { next(&mut lines).await } else { (id, state) };
    assert_eq!(ended, of(&second, "executed"));
    send_signal(child.id().unwrap(), Signal::SIGINT);
    assert_eq!(lines.next_line().await.unwrap(), None, "nothing else");
    assert!(child.wait().await.unwrap().success());
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_window_asks_about_each_proposal_and_only_yes_approves() {
    let db = database().await;
    let url = approver(&db).await;
    let server = Server::studio(&db).await;
    let kept = spare_package(&db, "default", "Kept").await;
    propose_deletion(&server, kept).await;
    let gone = spare_package(&db, "default", "Gone").await;
    let pty = openpty(None, None).unwrap();
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", &url).args(["proposals", "watch", "--ask"]).kill_on_drop(true);
    command.stdin(Stdio::from(pty.slave.try_clone().unwrap())).stdout(Stdio::from(pty.slave));
    let _child = command.spawn().unwrap();
    drop(command);
    let mut master = File::from(pty.master);
    let answer = |mut master: File, answer: &'static str| {
        tokio::task::spawn_blocking(move || {
            let seen = read_until(&mut master, "Type yes: ");
            master.write_all(answer.as_bytes()).unwrap();
            (master, seen)
        })
    };
    let (terminal, shown) = answer(master, "no\n").await.unwrap();
    assert!(shown.contains("delete 1 row of studio.package") && shown.contains("Kept"), "{shown}");
    propose_deletion(&server, gone).await;
    (master, _) = answer(terminal, "yes\n").await.unwrap();
    db.until_value(&format!("select count(*) from studio.package where package_id = {gone}"), "0").await;
    assert!(super::is_there(&db, kept).await);
    drop(master);
    let refused = proposals(&url, &["watch", "--ask"]).await;
    assert!(refused.code == 1 && refused.err.contains("nobody can be asked here"), "{}", refused.err);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_watching_prints_text() {
    let db = database().await;
    let url = approver(&db).await;
    let server = Server::studio(&db).await;
    let proposal = propose_deletion(&server, spare_package(&db, "default", "Spare").await).await;
    let pty = openpty(None, None).unwrap();
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", &url).args(["proposals", "watch"]).stdout(Stdio::from(pty.slave)).kill_on_drop(true);
    let _child = command.spawn().unwrap();
    drop(command);
    let mut master = File::from(pty.master);
    let line = tokio::task::spawn_blocking(move || read_until(&mut master, "\n"));
    let line = line.await.unwrap();
    let expected = format!("  {}  pending  default: ", text(&proposal, "proposal_id"));
    assert!(line.starts_with("20") && line.contains(&expected), "{line}");
    server.close().await;
}
