//! Tools over a partitioned table: rows before and after, an undo, a row that moves to another partition (docs/setup/databases.md,
//! "Partitioned tables").

use serde_json::json;
use testkit::{TestManifest, database};

const VISITS: &str = "
    create table social.visit (id bigint not null, at date not null, guest text not null, primary key (id, at))
        partition by range (at);
    create table social.visit_2025 partition of social.visit for values from ('2025-01-01') to ('2026-01-01');
    create table social.visit_2026 partition of social.visit for values from ('2026-01-01') to ('2027-01-01');
    insert into social.visit values (1, '2025-06-01', 'Ana'), (2, '2026-06-01', 'Bob')";

const TOOLS: &str = r#"
[[tool]]
name = "move_visit"
access = "write"
description = "Move a visit to another day."
before = "select id, at from social.visit where id = $1 for update"
sql = "update social.visit set at = $2 where id = $1 returning id, at"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "at", description = "The new day." }]
undo = { tool = "move_visit", params = { id = "param.id", at = "before.at" } }

[[tool]]
name = "add_visit"
access = "write"
description = "Add a visit."
sql = "insert into social.visit (id, at, guest) values ($1, $2, $3) returning id, at"
rows = "one"
param = [{ name = "id", description = "Its number." }, { name = "at", description = "The day." },
         { name = "guest", description = "Who comes." }]
undo = { tool = "cancel_visit", params = { id = "result.id" } }

[[tool]]
name = "cancel_visit"
access = "write"
description = "Cancel a visit."
before = "select id, at, guest from social.visit where id = $1 for update"
sql = "delete from social.visit where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]
undo = { tool = "add_visit", params = { id = "before.id", at = "before.at", guest = "before.guest" } }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_a_partitioned_table_shows_its_rows_and_is_undone_also_across_partitions() {
    // An update with the rows before is undone by an update, a delete by an insert.
    let db = database().await;
    db.run(VISITS).await;
    let server = TestManifest::new(TOOLS).serve(&db).await;
    let places = "select tableoid::regclass || ' ' || id || ' ' || at || ' ' || guest from social.visit order by id";
    let before = db.rows(places).await;

    // From one partition to another: the rows are found again by their key.
    let moved = server.succeed("move_visit", json!({"id": 1, "at": "2026-03-01"})).await;
    assert_eq!(db.rows(places).await[0], ["social.visit_2026 1 2026-03-01 Ana"]);
    let kept = server.record(&moved).await;
    assert_eq!(kept["before_image"].to_string(), r#"[{"id":1,"at":"2025-06-01"}]"#, "{kept}");
    assert_eq!(kept["after_image"].to_string(), r#"[{"id":1,"at":"2026-03-01"}]"#, "{kept}");
    let undo = &moved["meta"]["rollback"];
    server.succeed(undo["undo_tool"].as_str().unwrap(), undo["undo_params"].clone()).await;
    assert_eq!(db.rows(places).await, before);

    let cancelled = server.succeed("cancel_visit", json!({"id": 2})).await;
    let undo = &cancelled["meta"]["rollback"];
    server.succeed(undo["undo_tool"].as_str().unwrap(), undo["undo_params"].clone()).await;
    assert_eq!(db.rows(places).await, before);

    // A day that has no partition: refused, recorded, nothing is changed.
    let refused = server.fail("move_visit", json!({"id": 1, "at": "2030-01-01"}), "sql_error").await;
    assert_eq!(refused["sqlstate"], "23514", "{refused}");
    assert_eq!(db.rows(places).await, before);
    let statuses = "select string_agg(status, ' ' order by id) from countersign.mutation";
    assert_eq!(db.value(statuses).await, "success success success success failure");
}
