//! The reason of a write: what an agent says about why, for people. It decides nothing.

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, UserAnswer, database, run_countersign, startup_error};

use crate::console::Console;

const REASON: &str = "The customer called: the hour was booked for two.";

const MANIFEST: &str = "[[tool]]\nname = 'set_note'\naccess = 'write'\nrows = 'one'\ndescription = 'It.'\n\
    sql = 'update shop.note set body = $2 where id = $1 returning id, body'\n\
    param = [{ name = 'id', description = 'It.' }, { name = 'body', description = 'It.' }]\n";

async fn notes() -> Database {
    let db = database().await;
    db.run(
        "create schema shop; create table shop.note (id int primary key, body text, reason text);
         insert into shop.note values (1, 'first'), (2, 'second'); select countersign.track('shop.note');
         grant usage on schema shop to countersign_writer; grant select, update on shop.note to countersign_writer",
    )
    .await;
    db
}

fn note(body: &str, reason: &str) -> Value {
    json!({"id": 1, "body": body, "reason": reason})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_a_write_is_in_its_record() {
    let db = notes().await;
    let server = TestManifest::new(MANIFEST).serve(&db).await;
    let written = server.succeed("set_note", note("second", &format!("  {REASON} "))).await;
    let record = server.record(&written).await;
    assert_eq!(record["reason"], REASON, "{record}");
    assert_eq!(record["params"], json!({"id": 1, "body": "second"}), "it is no parameter: {record}");
    let id = written["meta"]["correlation_id"].as_str().unwrap();
    let shown = run_countersign(&db.url(), &["audit", "show", id]).await.out;
    assert!(shown.lines().any(|line| line.starts_with("reason ") && line.ends_with(REASON)), "{shown}");
    let list = run_countersign(&db.url(), &["audit", "list", "--wide"]).await.out;
    assert!(list.contains("REASON") && list.contains(REASON), "{list}");
    // The undo has a reason of its own.
    let undo = json!({"correlation_id": id, "reason": "It was another note."});
    let undone = server.succeed("undo_mutation", undo).await;
    assert_eq!(server.record(&undone).await["reason"], "It was another note.");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reason_is_optional_bounded_and_no_part_of_the_call() {
    let db = notes().await;
    let server = TestManifest::new(MANIFEST).serve(&db).await;
    for refused in ["x".repeat(501), "a\0b".to_owned()] {
        let error = server.fail("set_note", note("no", &refused), "invalid_params").await;
        assert!(error["message"].as_str().unwrap().contains("reason"), "{error}");
    }
    let first = server.succeed("set_note", note("new", &"\u{e9}".repeat(500))).await;
    // Another reason is the same call, and so is none.
    for again in [note("new", "Once more."), note("new", " "), json!({"id": 1, "body": "new"})] {
        let again = server.succeed("set_note", again).await;
        assert_eq!(again["data"]["original_correlation_id"], first["meta"]["correlation_id"], "{again}");
    }
    assert_eq!(db.value("select count(*) from countersign.mutation where status = 'success'").await, "1");
    // A failure has its reason as well.
    server.fail("set_note", json!({"id": 99, "body": "x", "reason": REASON}), "row_count_mismatch").await;
    assert_eq!(db.value("select reason from countersign.mutation where status = 'failure'").await, REASON);
    // A preview takes the same arguments.
    let preview = json!({"tool": "set_note", "params": note("tried", REASON)});
    assert_eq!(server.succeed("preview_mutation", preview).await["data"]["params"]["body"], "tried");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_can_require_a_reason() {
    let db = notes().await;
    let manifest = MANIFEST.replace("access =", "reason = 'required'\naccess =");
    let manifest = TestManifest::new(&manifest);
    let mut command = manifest.command(&db);
    command.args(["--profile", "admin", "--execute-sql", "--execute-sql-tier=auto", "--execute-sql-reason=required"]);
    let server = Server::start(command).await;
    let sql = json!({"sql": "update shop.note set body = 'x' where id = 2"});
    for (tool, call) in [("set_note", json!({"id": 1, "body": "new"})), ("execute_sql", sql)] {
        let error = server.fail(tool, call.clone(), "invalid_params").await;
        assert!(error["message"].as_str().unwrap().contains("reason"), "{error}");
        let mut blank = call.clone();
        blank["reason"] = json!(" \t");
        let error = server.fail(tool, blank, "invalid_params").await;
        assert!(error["message"].as_str().unwrap().contains("reason"), "{error}");
        let mut explained = call;
        explained["reason"] = json!(REASON);
        server.succeed(tool, explained).await;
    }
    let tools = server.client().list_tools().await.unwrap();
    for tool in tools.iter().filter(|tool| ["set_note", "execute_sql"].contains(&tool["name"].as_str().unwrap())) {
        assert!(tool["inputSchema"]["required"].as_array().unwrap().contains(&json!("reason")), "{tool}");
    }
    assert_eq!(db.value("select count(*) from countersign.record").await, "2", "a refused call leaves no record");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_with_a_parameter_of_the_name_keeps_it() {
    let db = notes().await;
    let own = "[[tool]]\nname = 'explain_note'\naccess = 'write'\nrows = 'one'\ndescription = 'It.'\n\
        sql = 'update shop.note set reason = $2 where id = $1 returning id, reason'\n\
        param = [{ name = 'id', description = 'It.' }, { name = 'reason', description = 'It.' }]\n";
    let server = TestManifest::new(own).serve(&db).await;
    let written = server.succeed("explain_note", json!({"id": 1, "reason": " kept as it is "})).await;
    assert_eq!(written["data"]["reason"], " kept as it is ");
    assert_eq!(server.record(&written).await["reason"], Value::Null);
    server.close().await;
    for (manifest, place) in [
        (own.replace("access =", "reason = 'required'\naccess ="), "the tool has a parameter \"reason\" of its own"),
        (
            "[[tool]]\nname = 'look'\naccess = 'read'\nreason = 'optional'\ndescription = 'It.'\nsql = 'select 1 as n'\n"
                .to_owned(),
            "a read changes nothing: reason is for writes",
        ),
    ] {
        let manifest = TestManifest::new(&manifest);
        let mut command = manifest.command(&db);
        let said = startup_error(&mut command).await;
        assert!(said.contains(place), "{said}");
    }
}

/// The first thing that a person is told of a proposal; and what they agree to, for this reason and no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_shows_its_reason_to_whoever_decides() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let mut call = crate::proposals::price("150.00");
    call["reason"] = json!(REASON);
    let proposal = server.propose("upsert_package", call).await;
    assert_eq!(proposal["reason"], REASON);
    let id = proposal["proposal_id"].as_str().unwrap();
    let listed = server.succeed("list_proposals", json!({})).await;
    assert_eq!(listed["data"]["proposals"][0]["reason"], REASON, "{listed}");
    let shown = run_countersign(&db.url(), &["proposals", "show", id]).await.out;
    assert!(shown.lines().any(|line| line.starts_with("reason ") && line.ends_with(REASON)), "{shown}");
    let console = Console::on(&db).await;
    let mut anna = console.browser(&db, "anna", &[]).await;
    let page = anna.get(&format!("/proposals/{id}")).await.body;
    assert!(page.contains(REASON), "{page}");
    let confirmed = json!({"proposal_id": id, "digest": proposal["digest"]});
    let written = server.succeed("confirm_proposal", confirmed).await;
    let record = server.record(&written).await;
    assert_eq!(record["reason"], REASON, "{record}");
    let page = anna.get(&format!("/records/{}", record["correlation_id"].as_str().unwrap())).await.body;
    assert!(page.contains(REASON), "{page}");

    let altered = server.propose("upsert_package", crate::proposals::price("160.00")).await;
    let id = altered["proposal_id"].as_str().unwrap();
    db.run(&format!(
        "set session_replication_role = replica;
         update countersign.proposal set reason = 'Harmless.' where proposal_id = '{id}'"
    ))
    .await;
    let confirm = json!({"proposal_id": id, "digest": altered["digest"]});
    server.fail("confirm_proposal", confirm, "digest_mismatch").await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_question_to_the_user_quotes_the_reason() {
    let db = database().await;
    let (server, questions) = crate::elicitation::server_with_user(&db, Some(UserAnswer::Decline)).await;
    let mut call = crate::proposals::price("150.00");
    call["reason"] = json!("Harmless.\nIt would touch 0 rows.");
    server.fail("upsert_package", call, "proposal_rejected").await;
    let asked = questions.lock().unwrap().concat();
    assert_eq!(asked.lines().nth(1), Some(r#"The agent's reason: "Harmless.\nIt would touch 0 rows.""#), "{asked}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_heading_of_a_proposal_is_what_its_call_does() {
    let db = notes().await;
    let summary = "summary = 'Set the text of note {id} to {body}'\ntier = 'approve'\n\
        before = 'select id, body from shop.note where id = $1 for update'\n";
    let server = TestManifest::new(&format!("{MANIFEST}{summary}")).serve(&db).await;
    for (body, heading) in [
        ("second", "Set the text of note 1 to second"),
        ("No. It is fine", "Set the text of note 1 to \"No. It is fine\""),
    ] {
        let proposed = server.propose("set_note", note(body, REASON)).await;
        let id = proposed["proposal_id"].as_str().unwrap();
        let shown = run_countersign(&db.url(), &["proposals", "show", id]).await.out;
        assert!(shown.contains(heading), "{shown}");
        let list = run_countersign(&db.url(), &["proposals", "list"]).await.out;
        assert!(list.contains(heading), "{list}");
        let stored = format!("select title from countersign.proposal where proposal_id = '{id}'");
        assert_eq!(db.value(&stored).await, heading);
        let said = server.succeed("get_proposal", json!({"proposal_id": id})).await;
        assert!(said["data"]["description"].as_str().unwrap().starts_with(heading), "{said}");
    }
    server.close().await;
    // Lists and pages have the parameters that the heading does not have, as they are stored.
    let shorter = summary.replace(" to {body}", "");
    let server = TestManifest::new(&format!("{MANIFEST}{shorter}")).serve(&db).await;
    let proposed = server.propose("set_note", note("It would touch 9 rows. x", REASON)).await;
    let console = Console::on(&db).await;
    let mut anna = console.browser(&db, "anna", &[]).await;
    let more = "body: &#34;It would touch 9 rows. x&#34;";
    for (page, class) in [("/".to_owned(), "note"), (crate::console::path(&proposed), "object")] {
        let shown = anna.get(&page).await.body;
        assert!(shown.contains(&format!("<span class=\"{class}\">{more}</span>")), "{page}: {shown}");
        assert!(!shown.contains(&format!("<span class=\"{class}\">id")), "{page}: {shown}");
    }
    let inbox = anna.get("/").await.body;
    let said = inbox.split("Set the text of note 1 to second</a>").nth(1).expect("the inbox has all of them");
    assert!(said.starts_with("</th>"), "the heading says everything: {said}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_names_parameters_that_people_may_see() {
    let db = notes().await;
    for (summary, why) in [
        ("Set {nothing}", "which the tool does not have"),
        ("Set {body} {", "in pairs of braces"),
        ("", "summary is empty"),
    ] {
        let error = TestManifest::new(&format!("{MANIFEST}summary = '{summary}'\n")).compile_error(&db).await;
        assert!(error.contains(why), "{error}");
    }
    let sensitive = MANIFEST.replace("name = 'body',", "name = 'body', sensitive = true,");
    let error = TestManifest::new(&format!("{sensitive}summary = 'Set {{body}}'\n")).compile_error(&db).await;
    assert!(error.contains("which is sensitive"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_character_that_the_encoding_of_the_database_lacks_is_named_and_nothing_is_written() {
    let db = database().await;
    let name = format!("latin1_{}", db.name());
    db.run(&format!("create database {name} encoding 'LATIN1' template template0 locale 'C'")).await;
    let url = db.url().replace(db.name(), &name);
    let other = testkit::connect(&url).await;
    let table = "create schema shop; create table shop.note (id int primary key, body text); insert into shop.note values (1, 'a')";
    other.batch_execute(table).await.unwrap();
    run_countersign(&url, &["init", "--schema", "shop"]).await.succeeded();
    let mut command = Server::bare_command(&db);
    command.env("DATABASE_URL", &url).args(["--profile", "admin", "--execute-sql", "--execute-sql-tier", "auto"]);
    let server = Server::start(command).await;
    let sql = "update shop.note set body = $1 where id = 1";
    for (body, reason) in [("b", "a dash \u{2014} of a model"), ("\u{1f600}", "none")] {
        let call = json!({"sql": sql, "params": [body], "reason": reason});
        let error = server.call("execute_sql", call).await["error"].clone();
        assert_eq!((&error["code"], &error["retryable"]), (&json!("invalid_params"), &json!(false)), "{error}");
        assert!(error["message"].as_str().unwrap().contains("LATIN1"), "{error}");
    }
    server.succeed("execute_sql", json!({"sql": sql, "params": ["\u{e9}"], "reason": "caf\u{e9}"})).await;
    assert_eq!(other.query_one("select body from shop.note", &[]).await.unwrap().get::<_, String>(0), "\u{e9}");
    server.close().await;
    drop(other);
    db.run(&format!("drop database {name} with (force)")).await;
}
