//! Logins that may approve, and logins that may not.

use std::process::Stdio;

use testkit::{Server, countersign, database};
use tokio::process::Command;

use super::{approver, os_user, proposals, propose_deletion, spare_package, stored, successes, text};

#[tokio::test(flavor = "multi_thread")]
async fn only_a_role_of_approvers_approves_and_never_the_server_or_the_proposer() {
    let db = database().await;
    let url = approver(&db).await;
    let (account, user) = (os_user(), os_user());
    db.run(&format!("insert into studio.studio values ('{account}', 'Own', 'UTC', 'EUR')")).await;
    let mut as_account = Server::studio_command(&db);
    as_account.env("COUNTERSIGN_ACCOUNT", &account);
    let as_account = Server::start(as_account).await;
    let mut as_actor = Server::studio_command(&db);
    as_actor.env("COUNTERSIGN_ACTOR", &user);
    let as_actor = Server::start(as_actor).await;
    let other = Server::studio(&db).await;
    let own = propose_deletion(&as_account, spare_package(&db, &account, "Own").await).await;
    let labelled = propose_deletion(&as_actor, spare_package(&db, "default", "Labelled").await).await;
    let foreign = propose_deletion(&other, spare_package(&db, "default", "Foreign").await).await;
    let stranger = format!("stranger_{}", db.name());
    db.run(&format!("create role {stranger} login")).await;
    let before = db.contents("studio").await;

    let proposed = format!("\"{user}\" has proposed this, and nobody approves their own proposals");
    for (login, proposal, named) in [
        (db.writer_url(), &foreign, "grant countersign_approver to <login>"),
        (db.url_as(&stranger), &foreign, "this login may not read the ledger: use one that has the role"),
        (url.clone(), &own, proposed.as_str()),
        (url.clone(), &labelled, &proposed),
    ] {
        let id = text(proposal, "proposal_id");
        let ran = proposals(&login, &["approve", id, "--digest", text(proposal, "digest")]).await;
        assert!(ran.code == 1 && ran.err.contains(named), "{} {}", ran.code, ran.err);
        assert_eq!(stored(&url, id).await["status"], "pending");
    }
    // Who approves is not what a variable says.
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", &url).envs([("USER", "somebody"), ("LOGNAME", "somebody"), ("SUDO_USER", "somebody")]);
    command.args(["proposals", "approve", text(&own, "proposal_id"), "--yes"]).stdin(Stdio::null());
    let output = command.output().await.unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains(&proposed) && output.status.code() == Some(1));
    // The server's login cannot reject as a person either.
    let ran = proposals(&db.writer_url(), &["reject", text(&foreign, "proposal_id")]).await;
    assert!(ran.code == 1 && ran.err.contains("may not decide"), "{}", ran.err);
    let ran = proposals(&url, &["approve", "00000000-0000-4000-8000-000000000001", "--yes"]).await;
    assert!(ran.code == 1 && ran.err.contains("no proposal has the id 00000000-"), "{}", ran.err);
    assert_eq!(db.contents("studio").await, before);
    assert_eq!(successes(&db).await, "0");
}
