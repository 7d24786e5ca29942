//! The preview pairs rows before and after by the key of their table.

use serde_json::{Value, json};
use testkit::{TestManifest, database};

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
