//! `countersign proposals`: a reviewer sees the whole proposal, and only the reviewer's decision applies, once.

mod approvers;
mod several;
mod terminal;
mod watch;

use std::fs::File;
use std::io::Read;

use nix::unistd::{Uid, User};
use serde_json::{Value, json};
use testkit::audit::tamper;
use testkit::{CommandOutput, Database, Server, database, poll, run_countersign};

/// What a terminal shows until this text, or until the command has ended.
fn read_until(terminal: &mut File, end: &str) -> String {
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while (end.is_empty() || !seen.ends_with(end.as_bytes())) && matches!(terminal.read(&mut byte), Ok(1)) {
        seen.push(byte[0]);
    }
    String::from_utf8(seen).unwrap()
}

/// A package of this tenant without bookings.
async fn spare_package(db: &Database, tenant: &str, title: &str) -> i64 {
    let insert = format!(
        "insert into studio.package (tenant_id, title, description, price, duration_minutes) \
         values ('{tenant}', '{title}', '', 10, 60) returning package_id"
    );
    db.value(&insert).await.parse().unwrap()
}

async fn is_there(db: &Database, package: i64) -> bool {
    db.value(&format!("select count(*) from studio.package where package_id = {package}")).await == "1"
}

/// Proposes to delete the package; the proposal.
async fn propose_deletion(server: &Server, package: i64) -> Value {
    server.propose("delete_package", json!({"package_id": package})).await
}

fn text<'a>(proposal: &'a Value, key: &str) -> &'a str {
    proposal[key].as_str().unwrap_or_else(|| panic!("no {key} in {proposal}"))
}

/// A login of a person who may approve, and nothing else.
async fn approver(db: &Database) -> String {
    db.login("approver", "countersign_approver").await
}

async fn proposals(url: &str, arguments: &[&str]) -> CommandOutput {
    run_countersign(url, &[&["proposals"], arguments].concat()).await
}

/// The user of the operating system who runs the tests.
fn os_user() -> String {
    User::from_uid(Uid::effective()).unwrap().expect("this user has a name").name
}

/// The proposal, as `proposals show --json` has it.
async fn stored(url: &str, id: &str) -> Value {
    let ran = proposals(url, &["show", id, "--json"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    serde_json::from_str(&ran.out).unwrap()
}

/// The proposal once it reads this state, by the database's clock.
async fn once_it_is(url: &str, id: &str, state: &str) -> Value {
    let in_state = async || Some(stored(url, id).await).filter(|proposal| proposal["status"] == state);
    poll::until_some(&format!("proposal {id} becomes {state}"), in_state).await
}

async fn successes(db: &Database) -> String {
    db.value("select count(*) from countersign.mutation where status = 'success'").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reviewer_sees_the_whole_proposal_and_its_approval_is_executed_once() {
    let db = database().await;
    let url = approver(&db).await;
    let mut command = Server::studio_command(&db);
    command.env("COUNTERSIGN_ACTOR", "claude");
    let server = Server::start(command).await;
    let package = spare_package(&db, "default", "Spare").await;
    let proposal = propose_deletion(&server, package).await;
    let (id, digest) = (text(&proposal, "proposal_id"), text(&proposal, "digest"));

    let listed = proposals(&url, &["list", "--wide", "--status", "pending", "--account", "default"]).await;
    let line = listed.out.lines().nth(1).unwrap();
    for part in [id, "pending", "approve", "delete_package", "default", text(&proposal, "description")] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
    assert_eq!(proposals(&url, &["list", "--status", "executed"]).await.out, "No proposals.\n");
    assert_eq!(proposals(&url, &["list", "--account", "nobody"]).await.out, "No proposals.\n");
    let listed: Value = serde_json::from_str(&proposals(&url, &["list", "--json", "--limit", "1"]).await.out).unwrap();
    let mut short = stored(&url, id).await;
    // What may be large, and what only one proposal is looked at for.
    let left_out = [
        "tool_version",
        "definition",
        "params",
        "params_hash",
        "idempotency_key",
        "preview",
        "client",
        "decision_reason",
        "newer",
        "check",
    ];
    short.as_object_mut().unwrap().retain(|key, _| !left_out.contains(&key.as_str()));
    assert_eq!(listed, short, "nothing else is left out of a list in JSON");

    let shown = proposals(&url, &["show", id]).await.out;
    for part in [
        format!("proposal         {id}\n"),
        "state            pending\n".to_owned(),
        "tool             delete_package 1.0\n".to_owned(),
        "account          default\n".to_owned(),
        "proposed by      claude\n".to_owned(),
        format!("until            {}\n", text(&proposal, "expires_at")),
        format!("\"package_id\": {package}\n"),
        "rows             It would delete 1 row of studio.package.\n".to_owned(),
        "  title             Spare\n".to_owned(),
        "undo             It can be undone, as long as its rows are as it left them.".to_owned(),
        format!("digest           {digest}\n"),
    ] {
        assert!(shown.contains(&part), "{part:?} is missing in:\n{shown}");
    }

    let listed = proposals(&url, &["list"]).await.out;
    let row = listed.lines().nth(1).unwrap();
    assert!(
        row.starts_with(&format!("{}  pending  ends in ", &id[..8])) && row.contains(" min  approve  "),
        "{listed}"
    );
    assert!(proposals(&url, &["list", "--wide"]).await.out.contains(id), "the whole id");
    assert_eq!(proposals(&url, &["show", &id[..8]]).await.out, shown);
    let approved = proposals(&url, &["approve", &id[..8], "--digest", digest]).await.succeeded();
    assert!(approved.out.starts_with(&shown), "what is approved is shown first: {}", approved.out);
    let receipt = text(&stored(&url, id).await, "correlation_id").to_owned();
    let executed = format!("Executed: correlation id {receipt}.\n");
    let login = url.split("user=").nth(1).unwrap().split(' ').next().unwrap();
    assert!(
        approved.out.ends_with(&format!("Approved as {login} (OS user {}).\n{executed}", os_user())),
        "{}",
        approved.out
    );
    assert!(!is_there(&db, package).await);
    let again = proposals(&url, &["approve", id, "--digest", digest]).await;
    assert!(again.code == 0 && again.out.ends_with(&executed) && !again.out.contains("Approved as"), "{}", again.out);
    assert_eq!(successes(&db).await, "1");

    let after = proposals(&url, &["show", id]).await.out;
    let decided = format!(" by {login} (OS user {}), via command_line\n", os_user());
    assert!(after.contains("state            executed\n") && after.contains(&decided), "{after}");
    the_record_names_the_reviewer(&db, &server, &receipt, &proposal, login).await;
    server.close().await;
}

/// The record of an executed proposal has its approval wherever it is shown, and it is sealed with it.
async fn the_record_names_the_reviewer(db: &Database, server: &Server, receipt: &str, proposal: &Value, login: &str) {
    let detail = server.succeed("get_mutation_detail", json!({"correlation_id": receipt})).await["data"].clone();
    let approval = &detail["approval"];
    for (key, expected) in [
        ("proposal_id", text(proposal, "proposal_id")),
        ("digest", text(proposal, "digest")),
        ("tier", "approve"),
        ("decided_by", &os_user()),
        ("decided_login", login),
        ("decided_via", "command_line"),
    ] {
        assert_eq!(approval[key], expected, "{key} in {approval}");
    }
    assert!(approval["decided_at"].is_string() && approval["reason"].is_null(), "{approval}");
    for arguments in [&["audit", "show", "--json", receipt][..], &["audit", "list", "--json", "--limit", "1"]] {
        let ran = run_countersign(&db.url(), arguments).await;
        let record: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(&record["approval"], approval, "{arguments:?}");
    }
    let shown = run_countersign(&db.url(), &["audit", "show", receipt]).await.out;
    assert!(shown.contains(&format!("\"decided_by\": \"{}\"", os_user())), "{shown}");

    assert_eq!(run_countersign(&db.url(), &["audit", "verify"]).await.code, 0);
    let forged = "update countersign.record set approval = \
                  replace(approval::text, '\"tier\" : \"approve\"', '\"tier\" : \"confirm\"')::json \
                  where approval is not null";
    tamper(db, forged).await;
    let verified = run_countersign(&db.url(), &["audit", "verify"]).await;
    assert!(verified.code == 1 && verified.out.contains("was altered"), "{}", verified.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_that_was_not_shown_is_not_approved() {
    let db = database().await;
    let url = approver(&db).await;
    let server = Server::studio(&db).await;
    let package = spare_package(&db, "default", "Spare").await;
    let proposal = propose_deletion(&server, package).await;
    let (id, digest) = (text(&proposal, "proposal_id"), text(&proposal, "digest"));
    let other = "0".repeat(64);
    for (arguments, code, named) in [
        (&["approve", id][..], 1, format!("this is no terminal: give --digest {digest}")),
        (
            &["approve", id, "--digest", &other],
            1,
            format!("the proposal has the digest {digest}, and you gave {other}"),
        ),
        (&["approve", id, "--digest", &other, "--yes"], 1, format!("and you gave {other}")),
        (&["approve", id, "--digest", "abc"], 2, "64 hexadecimal digits".to_owned()),
        (&["approve", id, "--wait", "3601"], 2, "3601 is not in 0..=3600".to_owned()),
        (&["approve", "abc"], 2, "a UUID of 36 characters".to_owned()),
        (&["reject", id, "--reason", " "], 2, "a reason or a question needs a text".to_owned()),
        (&["list", "--status", "done"], 2, "[possible values: pending, confirmed, rejected, expired,".to_owned()),
        (&["list", "--limit", "0"], 2, "0 is not in 1..=1000".to_owned()),
    ] {
        let ran = proposals(&url, arguments).await;
        assert!(ran.code == code && ran.err.contains(&named), "{arguments:?}: {} {}", ran.code, ran.err);
        assert_eq!(stored(&url, id).await["status"], "pending", "{arguments:?}");
    }
    // The right digest approves; a repeated approval with another digest does not.
    assert_eq!(proposals(&url, &["approve", id, "--yes"]).await.code, 0);
    let ran = proposals(&url, &["approve", id, "--digest", &other]).await;
    assert!(ran.code == 1 && ran.err.contains("nothing was approved"), "{}", ran.err);
    assert!(!is_there(&db, package).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_proposal_is_never_written() {
    let db = database().await;
    let url = approver(&db).await;
    let server = Server::studio(&db).await;
    let package = spare_package(&db, "default", "Spare").await;
    let proposal = propose_deletion(&server, package).await;
    let (id, digest) = (text(&proposal, "proposal_id"), text(&proposal, "digest"));
    let login = url.split("user=").nth(1).unwrap().split(' ').next().unwrap();
    let rejected = format!("Rejected by {login} (OS user {}); nothing was written.", os_user());
    for _ in 0..2 {
        let ran = proposals(&url, &["reject", id, "--reason", "We still sell it."]).await;
        assert!(ran.code == 0 && ran.out.starts_with(&rejected), "{} {}", ran.out, ran.err);
    }
    let ran = proposals(&url, &["approve", id, "--digest", digest]).await;
    assert!(ran.code == 1 && ran.err.contains("the proposal was rejected; nothing was written"), "{}", ran.err);
    let seen = server.succeed("get_proposal", json!({"proposal_id": id})).await["data"].clone();
    assert_eq!(
        (&seen["status"], &seen["decision_reason"]),
        (&json!("rejected"), &json!("We still sell it.")),
        "{seen}"
    );
    assert!(is_there(&db, package).await);

    // One that the user would confirm can be rejected by a person too, and one that was executed cannot.
    let photo = server.succeed("delete_package_photo", json!({"package_id": 1, "photo_id": 1})).await;
    let to_confirm = text(&photo["data"]["proposal"], "proposal_id").to_owned();
    assert_eq!(proposals(&url, &["reject", &to_confirm]).await.code, 0);
    let proposal = propose_deletion(&server, package).await;
    let id = text(&proposal, "proposal_id");
    assert_eq!(proposals(&url, &["approve", id, "--yes"]).await.code, 0);
    let ran = proposals(&url, &["reject", id]).await;
    assert!(ran.code == 1 && ran.err.contains("the proposal was executed"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_after_the_expiry_by_the_databases_clock_is_refused() {
    let db = database().await;
    let url = approver(&db).await;
    let mut command = Server::studio_command(&db);
    command.env("COUNTERSIGN_PROPOSAL_LIFETIME_S", "1");
    let server = Server::start(command).await;
    let package = spare_package(&db, "default", "Spare").await;
    let proposal = propose_deletion(&server, package).await;
    let id = text(&proposal, "proposal_id");
    once_it_is(&url, id, "expired").await;
    let ran = proposals(&url, &["approve", id, "--digest", text(&proposal, "digest")]).await;
    assert!(ran.code == 1 && ran.err.contains("the proposal expired"), "{}", ran.err);
    assert_eq!(stored(&url, id).await["decided_by"], Value::Null);
    assert!(is_there(&db, package).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_approved_without_a_server_waits_for_the_next_server_and_runs_once() {
    let db = database().await;
    let url = approver(&db).await;
    let server = Server::studio(&db).await;
    let package = spare_package(&db, "default", "Spare").await;
    let proposal = propose_deletion(&server, package).await;
    let (id, digest) = (text(&proposal, "proposal_id"), text(&proposal, "digest"));
    server.close().await;
    for arguments in [&["approve", id, "--digest", digest, "--wait", "0"][..], &["approve", id, "--yes", "--wait", "1"]]
    {
        let ran = proposals(&url, arguments).await;
        let waits = "Not executed yet: a server that serves delete_package executes it, until ";
        assert!(ran.code == 0 && ran.out.contains(waits), "{arguments:?}: {} {}", ran.out, ran.err);
        let until = ran.out.trim_end().rsplit("until ").next().unwrap();
        assert!(until.starts_with("20") && until.ends_with("Z."), "{until}");
    }
    assert!(is_there(&db, package).await);
    let servers = [Server::studio(&db).await, Server::studio(&db).await];
    let executed = once_it_is(&url, id, "executed").await;
    let ran = proposals(&url, &["approve", id, "--yes"]).await;
    let receipt = text(&executed, "correlation_id");
    assert!(ran.code == 0 && ran.out.ends_with(&format!("Executed: correlation id {receipt}.\n")), "{}", ran.out);
    assert!(!is_there(&db, package).await);
    assert_eq!(successes(&db).await, "1");
    for server in servers {
        server.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_write_that_fails_is_reported_with_its_reason() {
    let db = database().await;
    let url = approver(&db).await;
    let server = Server::studio(&db).await;
    let [changed, refused] =
        [spare_package(&db, "default", "Changed").await, spare_package(&db, "default", "Refused").await];
    let stale = propose_deletion(&server, changed).await;
    let failed = propose_deletion(&server, refused).await;
    db.run(&format!("update studio.package set price = 11 where package_id = {changed}")).await;
    let id = text(&stale, "proposal_id");
    let ran = proposals(&url, &["approve", id, "--yes"]).await;
    assert!(ran.code == 1 && ran.err.contains("it was approved, and is stale: the rows have changed"), "{}", ran.err);
    let again = proposals(&url, &["approve", id, "--yes"]).await;
    assert!(again.code == 1 && again.err.contains("nothing was written"), "{}", again.err);

    db.run("revoke delete on studio.package from countersign_writer").await;
    let ran = proposals(&url, &["approve", text(&failed, "proposal_id"), "--yes"]).await;
    assert!(ran.code == 1 && ran.err.contains("tried and refused; nothing was written: "), "{}", ran.err);
    assert!(ran.err.contains("permission denied for table package"), "{}", ran.err);
    assert!(is_there(&db, changed).await && is_there(&db, refused).await);
    // Also what was tried and refused says who had agreed to it.
    let confirmed = "select status, approval ->> 'decided_by' from countersign.mutation order by id";
    assert_eq!(db.rows(confirmed).await, [["failure", &os_user()], ["failure", &os_user()]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_text_cannot_control_the_terminal_or_imitate_a_line_of_the_program() {
    let db = database().await;
    let url = approver(&db).await;
    let mut command = Server::studio_command(&db);
    command.env("COUNTERSIGN_ACTOR", "agent\u{1b}[2K\nstate            executed");
    let server = Server::start(command).await;
    let hostile = "Looks fine.\nstate            executed\u{1b}[2K\u{9b}31m\u{202e}\u{200b}";
    let arguments = json!({"title": "New", "description": hostile, "price": 1, "duration_minutes": 60});
    let answer = server.succeed("upsert_package", arguments).await;
    let id = text(&answer["data"]["proposal"], "proposal_id").to_owned();
    let hidden = |text: &str| text.chars().any(|c| (c.is_control() && c != '\n') || "\u{202e}\u{200b}".contains(c));
    for arguments in [&["list"][..], &["list", "--json"], &["show", &id], &["show", "--json", &id]] {
        let shown = proposals(&url, arguments).await.out;
        // In the list it is part of a sentence, whose escapes JSON escapes once more.
        let escaped = if arguments == ["list", "--json"] { "\\\\u009b31m\\\\u202e" } else { "\\u009b31m\\u202e" };
        assert!(!hidden(&shown) && shown.contains(escaped), "{shown}");
        assert!(!shown.lines().any(|line| line.starts_with("state            executed")), "{shown}");
    }
    assert_eq!(stored(&url, &id).await["params"]["description"], hostile, "JSON keeps the value");
    let rejected = proposals(&url, &["reject", &id, "--reason", hostile]).await;
    assert!(rejected.code == 0 && !hidden(&rejected.out), "{}", rejected.out);
    let shown = proposals(&url, &["show", &id]).await.out;
    assert!(!hidden(&shown) && !shown.lines().any(|line| line.starts_with("state            executed")), "{shown}");
    assert_eq!(stored(&url, &id).await["decision_reason"], hostile);
}
