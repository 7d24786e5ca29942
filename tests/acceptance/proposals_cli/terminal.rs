//! `countersign proposals approve` on a terminal: it asks, and accepts only yes.

use std::fs::File;
use std::io::Write;
use std::process::Stdio;

use nix::pty::openpty;
use testkit::{Server, countersign, database};
use tokio::process::Command;

use super::{approver, is_there, propose_deletion, read_until, spare_package, stored, text};

/// What a person at a terminal sees until the question, and after they have typed `answer`.
struct Session {
    code: i32,
    question: String,
    after: String,
    err: String,
}

async fn session(url: &str, id: &str, answer: &str) -> Session {
    let pty = openpty(None, None).unwrap();
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", url).args(["--log", "warn", "proposals", "approve", id]);
    command.stdin(Stdio::from(pty.slave.try_clone().unwrap())).stdout(Stdio::from(pty.slave)).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // The command holds the terminal's other end: once it is gone, reading ends.
    drop(command);
    let mut master = File::from(pty.master);
    let answer = format!("{answer}\n");
    let terminal = tokio::task::spawn_blocking(move || {
        let question = read_until(&mut master, "Type yes: ");
        master.write_all(answer.as_bytes()).unwrap();
        (question, read_until(&mut master, ""))
    });
    let output = child.wait_with_output().await.unwrap();
    let (question, after) = terminal.await.unwrap();
    Session { code: output.status.code().unwrap(), question, after, err: String::from_utf8(output.stderr).unwrap() }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_the_reviewer_is_asked_and_only_yes_approves() {
    let db = database().await;
    let url = approver(&db).await;
    let server = Server::studio(&db).await;
    let package = spare_package(&db, "default", "Spare").await;
    let proposal = propose_deletion(&server, package).await;
    let id = text(&proposal, "proposal_id");
    for answer in ["no", "", "y", "Yes!", "yes please"] {
        let session = session(&url, id, answer).await;
        assert!(session.question.contains(text(&proposal, "digest")), "it is shown first: {}", session.question);
        assert!(
            session.code == 1 && session.err.contains("not approved, since the answer was not yes"),
            "{}",
            session.err
        );
        assert_eq!(stored(&url, id).await["status"], "pending", "{answer:?}");
    }
    let session = session(&url, id, "yes").await;
    assert!(
        session.code == 0 && session.after.contains("Executed: correlation id"),
        "{} {}",
        session.after,
        session.err
    );
    assert!(!is_there(&db, package).await);
}
