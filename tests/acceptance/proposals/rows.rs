//! The preview pairs rows before and after by the key of their table.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::{Server, TestManifest, UserAnswer, database};

use super::agreement;

/// Two tools that swap the names of two rows; one shows the rows with their key, which does not come first, and one without.
const TOOLS: &str = r#"
[[tool]]
name = "swap"
access = "write"
tier = "confirm"
description = "Swap the names of two seats."
before = "select name, row_no, seat_no from public.seat where row_no = $1 order by name for update"
sql = "update public.seat s set name = o.name from public.seat o where s.row_no = $1 and o.row_no = $1 and o.seat_no = 3 - s.seat_no returning s.seat_no"
after = "select name, row_no, seat_no from public.seat where row_no = $1 order by name"
rows = "some"
max_rows = 2
undo = { irreversible = "It is a test." }
param = [{ name = "row_no", description = "Which." }]

[[tool]]
name = "swap_blindly"
access = "write"
tier = "confirm"
description = "Swap the names of two seats."
before = "select name from public.seat where row_no = $1 order by name for update"
sql = "update public.seat s set name = o.name from public.seat o where s.row_no = $1 and o.row_no = $1 and o.seat_no = 3 - s.seat_no returning s.seat_no"
after = "select name from public.seat where row_no = $1 order by name"
rows = "some"
max_rows = 2
undo = { irreversible = "It is a test." }
param = [{ name = "row_no", description = "Which." }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn swapped_values_are_shown_by_key_or_with_a_warning() {
    let db = database().await;
    db.run(
        "create table public.seat (name text, seat_no int, row_no int, primary key (row_no, seat_no)); \
         insert into public.seat values ('anna', 1, 1), ('ben', 2, 1); \
         grant select, update on public.seat to countersign_writer",
    )
    .await;
    let server = TestManifest::new(TOOLS).serve(&db).await;
    let call = json!({"row_no": 1});
    let shown = server.propose("swap", call.clone()).await;
    assert_eq!(shown["preview"]["row_key"], json!(["row_no", "seat_no"]), "{shown}");
    assert_eq!(shown["preview"]["warnings"], Value::Null, "{shown}");
    let blind = server.propose("swap_blindly", call).await;
    assert!(blind["preview"]["warnings"][0].as_str().unwrap().contains("without a primary key"), "{blind}");

    // A person sees both rows change.
    let id = shown["proposal_id"].as_str().unwrap();
    let screen = testkit::run_countersign(&db.url(), &["proposals", "show", id]).await.succeeded();
    assert!(screen.out.contains("update 2 rows") && !screen.out.contains("as before"), "{}", screen.out);

    // And what changes places meanwhile is noticed.
    db.run("update public.seat s set name = o.name from public.seat o where o.seat_no = 3 - s.seat_no").await;
    server.fail("confirm_proposal", agreement(&shown), "proposal_stale").await;
    server.close().await;
}

/// The tool finds its row by the column that it changes, so it does not find it afterwards.
const RENAME: &str = r#"
[[tool]]
name = "rename"
access = "write"
tier = "confirm"
description = "Rename a cast."
before = "select ssn, pub from public.cast_of where pub = $1 for update"
sql = "update public.cast_of set pub = $2 where pub = $1 returning pub"
after = "select ssn, pub from public.cast_of where pub = $1"
rows = "one"
param = [{ name = "from", description = "Which." }, { name = "to", description = "What." }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_its_tool_no_longer_finds_is_no_removal() {
    // S-10
    let db = database().await;
    db.run(
        "create table public.cast_of (id int primary key, ssn text, pub text); \
         insert into public.cast_of select n, 'ssn ' || n, 'pub' || n from generate_series(1, 30) n; \
         grant select, update on public.cast_of to countersign_writer; select countersign.track('public.cast_of')",
    )
    .await;
    let manifest = TestManifest::new(RENAME);
    let questions = Arc::new(Mutex::new(String::new()));
    let asked = Arc::clone(&questions);
    let server = Server::with_user(manifest.command(&db), move |question| {
        question.clone_into(&mut asked.lock().unwrap());
        Some(UserAnswer::Cancel)
    })
    .await;
    let answer = server.call("rename", json!({"from": "pub24", "to": "zz24"})).await;
    let question = questions.lock().unwrap().clone();
    assert!(question.contains("pub: \"pub24\" → \"zz24\"") && !question.contains("removed"), "{question}");
    let id = db.value("select proposal_id from countersign.proposal").await;
    let screen = testkit::run_countersign(&db.url(), &["proposals", "show", &id]).await.succeeded().out;
    assert!(screen.contains("pub24") && screen.contains("zz24"), "{screen}");
    assert!(!screen.contains("delete 1 row") && !screen.contains("as the tool reads them"), "{screen} {answer}");
    server.close().await;
}
