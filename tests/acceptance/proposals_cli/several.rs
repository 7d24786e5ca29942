//! Tools that several people, or the members of a group, have to approve (docs/adr/0083).

use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, countersign, database, repository, run_countersign};
use tokio::process::Command;

use super::{is_there, once_it_is, os_user, proposals, propose_deletion, spare_package, stored, successes, text};

/// The studio's manifest, with these keys for `delete_package`.
fn studio(keys: &str) -> TestManifest {
    let text = std::fs::read_to_string(repository().join("manifests/studio.toml")).unwrap();
    let tool = "title = \"Delete a package\"\naccess = \"write\"\ntier = \"approve\"\n";
    assert!(text.contains(tool));
    TestManifest::from_text(&text.replace(tool, &format!("{tool}{keys}\n")))
}

/// A login of this person for this database, with these roles; its name.
async fn person(db: &Database, name: &str, roles: &str) -> String {
    let login = format!("{name}_{}", db.name());
    db.run(&format!("create role {login} login; grant {roles} to {login}")).await;
    login
}

async fn reviewer(db: &Database, name: &str) -> String {
    person(db, name, "countersign_approver").await
}

/// A package, and the proposal to delete it.
async fn deletion(db: &Database, server: &Server) -> (i64, Value) {
    let title = format!("Spare {}", db.value("select gen_random_uuid()").await);
    let package = spare_package(db, "default", &title).await;
    (package, propose_deletion(server, package).await)
}

async fn approve(db: &Database, login: &str, id: &str) -> testkit::CommandOutput {
    proposals(&db.url_as(login), &["approve", id, "--yes"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_two_people_have_to_approve_waits_for_the_second_one() {
    let db = database().await;
    let (anna, ben) = (reviewer(&db, "anna").await, reviewer(&db, "ben").await);
    let server = studio("approvals = 2").serve(&db).await;
    let (package, proposal) = deletion(&db, &server).await;
    let id = text(&proposal, "proposal_id");
    assert_eq!((&proposal["approvals"], proposal.get("approved_by")), (&json!(2), None), "{proposal}");
    let shown = proposals(&db.url_as(&anna), &["show", id]).await.out;
    assert!(shown.contains("approvals        0 of 2 approved\n"), "{shown}");

    let first = approve(&db, &anna, id).await;
    let said = format!("Approved as {anna} (OS user {}): 1 of 2 approved, by {anna}.\n", os_user());
    let waits = "Nothing was written yet: another person has to approve it, until 20";
    assert!(first.code == 0 && first.out.contains(&format!("{said}{waits}")), "{} {}", first.out, first.err);
    for _ in 0..2 {
        let again = approve(&db, &anna, id).await;
        let said = format!("You have approved this before: 1 of 2 approved, by {anna}.\n{waits}");
        assert!(again.code == 0 && again.out.contains(&said), "{} {}", again.out, again.err);
    }
    let waiting = stored(&db.url_as(&ben), id).await;
    assert_eq!((&waiting["status"], &waiting["decided_by"]), (&json!("pending"), &Value::Null), "{waiting}");
    assert!(is_there(&db, package).await);
    let shown = proposals(&db.url_as(&ben), &["show", id]).await.out;
    assert!(shown.contains(&format!("approvals        1 of 2 approved, by {anna}\n")), "{shown}");
    let listed = proposals(&db.url_as(&ben), &["list", "--wide"]).await.out;
    assert!(listed.contains(&format!("  pending, 1 of 2 approved, by {anna}  ")), "{listed}");
    let seen = server.succeed("get_proposal", json!({"proposal_id": id})).await["data"].clone();
    assert_eq!((&seen["approvals"], &seen["approved_by"]), (&json!(2), &json!([anna])), "{seen}");

    let second = approve(&db, &ben, id).await;
    let said = format!("Approved as {ben} (OS user {}): 2 of 2 approved, by {anna}, {ben}.\nExecuted: ", os_user());
    assert!(second.code == 0 && second.out.contains(&said), "{} {}", second.out, second.err);
    assert!(!is_there(&db, package).await);
    assert_eq!(successes(&db).await, "1");

    // Both are in the record, and each approval is an entry of the log.
    let done = stored(&db.url_as(&ben), id).await;
    let record = server.succeed("get_mutation_detail", json!({"correlation_id": done["correlation_id"]})).await;
    let approval = &record["data"]["approval"];
    assert_eq!((&approval["approvals"], &approval["decided_login"]), (&json!(2), &json!(ben)), "{approval}");
    let people = approval["approved_by"].as_array().unwrap().iter().map(|one| &one["person"]).collect::<Vec<_>>();
    assert_eq!(people, [&json!(anna), &json!(ben)], "{approval}");
    server.close().await;
    assert_eq!(run_countersign(&db.url(), &["audit", "seal"]).await.code, 0);
    let entries = db.rows("select entry from countersign.leaf where entry like E'%kind decision\\n%' order by 1").await;
    assert_eq!(entries.len(), 2, "{entries:?}");
    for (login, decision, number) in [(&anna, "approved", "1/2"), (&ben, "confirmed", "2/2")] {
        let lines = [format!("login {login}"), format!("decision {decision}"), format!("approvals {number}")];
        let is_it = |entry: &String| lines.iter().all(|line| entry.contains(&format!("\n{line}\n")));
        assert_eq!(entries.concat().iter().filter(|entry| is_it(entry)).count(), 1, "{lines:?} {entries:?}");
    }
    for entry in entries.concat() {
        tlog::Entry::parse(entry.as_bytes()).unwrap_or_else(|error| panic!("{error}: {entry}"));
    }
    assert_eq!(run_countersign(&db.url(), &["audit", "verify"]).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_rejection_ends_a_proposal_that_others_have_approved() {
    let db = database().await;
    let [anna, ben, carl] = [reviewer(&db, "anna").await, reviewer(&db, "ben").await, reviewer(&db, "carl").await];
    let server = studio("approvals = 3").serve(&db).await;
    let (package, proposal) = deletion(&db, &server).await;
    let id = text(&proposal, "proposal_id");
    let first = approve(&db, &anna, id).await;
    assert!(first.out.contains("Nothing was written yet: 2 others have to approve it"), "{}", first.out);
    assert_eq!(approve(&db, &ben, id).await.code, 0);
    assert_eq!(proposals(&db.url_as(&carl), &["reject", id, "--reason", "no"]).await.code, 0);
    for login in [&anna, &carl] {
        let late = approve(&db, login, id).await;
        assert!(late.code == 1 && late.err.contains("the proposal was rejected"), "{} {}", late.out, late.err);
    }
    let ended = stored(&db.url_as(&anna), id).await;
    assert_eq!((&ended["status"], &ended["decided_login"]), (&json!("rejected"), &json!(carl)), "{ended}");
    assert_eq!(ended["approved_by"].as_array().unwrap().len(), 2, "who had approved is kept: {ended}");

    // The proposer takes one back in the same way.
    let (_, proposal) = deletion(&db, &server).await;
    let id = text(&proposal, "proposal_id");
    assert_eq!(approve(&db, &anna, id).await.code, 0);
    server.succeed("reject_proposal", json!({"proposal_id": id})).await;
    assert_eq!(approve(&db, &ben, id).await.code, 1);
    assert!(is_there(&db, package).await);
    assert_eq!(successes(&db).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_with_the_name_of_the_proposer_never_approves() {
    // The user of the operating system is another one.
    let db = database().await;
    let (anna, ben) = (reviewer(&db, "anna").await, reviewer(&db, "ben").await);
    db.run(&format!("insert into studio.studio values ('{anna}', 'Own', 'UTC', 'EUR')")).await;
    let manifest = studio("approvals = 2");
    for (variable, value) in [("COUNTERSIGN_ACCOUNT", anna.clone()), ("COUNTERSIGN_ACTOR", anna.to_ascii_uppercase())] {
        let mut command = manifest.command(&db);
        command.env(variable, &value);
        let server = Server::start(command).await;
        let account = if variable == "COUNTERSIGN_ACCOUNT" { anna.as_str() } else { "default" };
        let proposal = propose_deletion(&server, spare_package(&db, account, "Own").await).await;
        let id = text(&proposal, "proposal_id");
        assert_eq!(approve(&db, &ben, id).await.code, 0);
        let refused = approve(&db, &anna, id).await;
        assert!(refused.code == 1 && refused.err.contains("nobody approves their own proposals"), "{}", refused.err);
        assert_eq!(stored(&db.url_as(&ben), id).await["status"], "pending");
        server.close().await;
    }
    assert_eq!(successes(&db).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_members_of_the_group_approve_and_everybody_who_may_decide_rejects() {
    let db = database().await;
    let finance = format!("finance_{}", db.name());
    db.run(&format!("create role {finance}")).await;
    let outsider = reviewer(&db, "anna").await;
    let member = person(&db, "ben", &format!("countersign_approver, {finance}")).await;
    let not_a_reviewer = person(&db, "carl", &finance).await;
    let server = studio(&format!("approvers = \"{finance}\"")).serve(&db).await;
    let (package, proposal) = deletion(&db, &server).await;
    let id = text(&proposal, "proposal_id");
    let named = format!("this is for the group \"{finance}\" to approve, and this login is not in it");
    for (login, named) in [(&outsider, named.as_str()), (&not_a_reviewer, "this login may not read the ledger")] {
        let refused = approve(&db, login, id).await;
        assert!(refused.code == 1 && refused.err.contains(named), "{}", refused.err);
    }
    // Membership counts when the decision is made.
    db.run(&format!("revoke {finance} from {member}")).await;
    let refused = approve(&db, &member, id).await;
    assert!(refused.code == 1 && refused.err.contains(&named), "{}", refused.err);
    db.run(&format!("grant {finance} to {member}")).await;
    let shown = proposals(&db.url_as(&member), &["show", id]).await.out;
    assert!(shown.contains(&format!("approvers        {finance}\n")), "{shown}");
    let approved = approve(&db, &member, id).await;
    assert!(approved.code == 0 && approved.out.contains("\nExecuted: "), "{} {}", approved.out, approved.err);
    assert!(!is_there(&db, package).await);

    let (_, proposal) = deletion(&db, &server).await;
    assert_eq!(proposals(&db.url_as(&outsider), &["reject", text(&proposal, "proposal_id")]).await.code, 0);
    // A group that is gone has no members.
    let (_, proposal) = deletion(&db, &server).await;
    db.run(&format!("drop role {finance}")).await;
    let refused = approve(&db, &member, text(&proposal, "proposal_id")).await;
    assert!(refused.code == 1 && refused.err.contains(&named), "{}", refused.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_that_was_stored_with_a_proposal_counts_after_a_change_of_the_manifest() {
    let db = database().await;
    let (anna, ben) = (reviewer(&db, "anna").await, reviewer(&db, "ben").await);
    let strict = studio("approvals = 2").serve(&db).await;
    let (package, two) = deletion(&db, &strict).await;
    strict.close().await;
    let lax = Server::studio(&db).await;
    assert!(approve(&db, &anna, text(&two, "proposal_id")).await.out.contains(": 1 of 2 approved, by "));
    // The same call under the new manifest is another proposal, in either direction.
    let one = propose_deletion(&lax, package).await;
    assert_ne!(one["proposal_id"], two["proposal_id"]);
    assert_eq!(one["approvals"], 1);
    lax.close().await;
    let strict = studio("approvals = 2").serve(&db).await;
    assert_eq!(propose_deletion(&strict, package).await["proposal_id"], two["proposal_id"]);
    let approved = approve(&db, &ben, text(&two, "proposal_id")).await;
    assert!(approved.code == 0 && approved.out.contains("\nExecuted: "), "{} {}", approved.out, approved.err);
    assert!(!is_there(&db, package).await);
    strict.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_of_what_has_changed_or_expired_since_write_nothing() {
    let db = database().await;
    let (anna, ben) = (reviewer(&db, "anna").await, reviewer(&db, "ben").await);
    let server = studio("approvals = 2").serve(&db).await;
    let (package, proposal) = deletion(&db, &server).await;
    let id = text(&proposal, "proposal_id");
    assert_eq!(approve(&db, &anna, id).await.code, 0);
    db.run(&format!("update studio.package set title = 'Wanted' where package_id = {package}")).await;
    let stale = approve(&db, &ben, id).await;
    assert!(stale.code == 1 && stale.err.contains("it was approved, and is stale"), "{} {}", stale.out, stale.err);
    assert!(is_there(&db, package).await);
    server.close().await;

    let manifest = studio("approvals = 2");
    let mut command = manifest.command(&db);
    command.env("COUNTERSIGN_PROPOSAL_LIFETIME_S", "5");
    let server = Server::start(command).await;
    let proposal = propose_deletion(&server, package).await;
    let id = text(&proposal, "proposal_id");
    assert_eq!(approve(&db, &anna, id).await.code, 0);
    once_it_is(&db.url_as(&anna), id, "expired").await;
    let late = approve(&db, &ben, id).await;
    assert!(late.code == 1 && late.err.contains("the proposal expired"), "{} {}", late.out, late.err);
    assert!(is_there(&db, package).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_undo_of_a_write_needs_as_many_approvals() {
    let db = database().await;
    let (anna, ben) = (reviewer(&db, "anna").await, reviewer(&db, "ben").await);
    let server = studio("approvals = 2").serve(&db).await;
    db.run("grant countersign_owner to current_user").await;
    assert_eq!(run_countersign(&db.url(), &["track", "studio.package", "studio.package_photo"]).await.code, 0);
    let (package, proposal) = deletion(&db, &server).await;
    let id = text(&proposal, "proposal_id");
    assert_eq!(approve(&db, &anna, id).await.code, 0);
    assert_eq!(approve(&db, &ben, id).await.code, 0);
    let receipt = stored(&db.url_as(&anna), id).await["correlation_id"].clone();
    let undo = server.propose("undo_mutation", json!({"correlation_id": receipt})).await;
    assert_eq!(undo["approvals"], 2, "{undo}");
    let id = text(&undo, "proposal_id");
    assert!(approve(&db, &ben, id).await.out.contains(": 1 of 2 approved"), "{undo}");
    assert!(!is_there(&db, package).await);
    assert_eq!(approve(&db, &anna, id).await.code, 0);
    assert!(is_there(&db, package).await);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_with_an_impossible_number_or_group_is_refused() {
    let db = database().await;
    for (keys, named) in [
        ("approvals = 0", "approvals is 1 to 10"),
        ("approvals = 11", "approvals is 1 to 10"),
        ("approvers = \"\"", "approvers is the name of a role, of 1 to 63 bytes"),
    ] {
        let refused = studio(keys).compile_error(&db).await;
        assert!(refused.contains(named), "{keys}: {refused}");
    }
    let lower =
        studio("approvals = 2").text().replace("tier = \"approve\"\napprovals", "tier = \"confirm\"\napprovals");
    let refused = TestManifest::from_text(&lower).compile_error(&db).await;
    assert!(refused.contains("approvals is for tier = \"approve\""), "{refused}");

    // A role that is not there can be made later, so `check` warns.
    let manifest = studio("approvers = \"nobody_of_this_name\"");
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", db.url()).arg("check").args(manifest.arguments()).stdin(Stdio::null());
    let checked = command.output().await.unwrap();
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success() && said.contains("there is no role \"nobody_of_this_name\""), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_of_several_people_is_accepted() {
    let db = database().await;
    let sample = crate::samples::sample("docs/topics/proposals.md", "[[tool]]");
    let keys: Vec<&str> = sample.lines().filter(|line| line.starts_with("approv")).collect();
    assert_eq!(keys.len(), 2, "{sample}");
    let server = studio(&keys.join("\n")).serve(&db).await;
    let (_, proposal) = deletion(&db, &server).await;
    assert_eq!((&proposal["approvals"], &proposal["approvers"]), (&json!(2), &json!("finance")), "{proposal}");
    server.close().await;
}
