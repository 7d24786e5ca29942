//! `countersign check` on manifests whose tables are tracked.

use serde_json::json;
use testkit::{CommandOutput, Database, TestManifest, run};
use tokio::process::Command;

use super::{shop, succeed};

const TOOLS: &str = r#"
[[tool]]
name = "set_note"
access = "write"
description = "Set the note."
sql = "update shop.orders set note = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "note", description = "What." }]

[[tool]]
name = "drop_order"
access = "write"
description = "Drop it, and note that."
sql = "with gone as (delete from shop.orders where id = $1 returning id) insert into shop.bare select 'gone ' || id from gone returning line"
rows = "one"
param = [{ name = "id", description = "Which." }]
"#;

async fn check(db: &Database, manifest: &TestManifest) -> CommandOutput {
    let mut command = Command::new(testkit::countersign());
    run(command.env("DATABASE_URL", db.writer_url()).arg("check").args(manifest.arguments())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_needs_no_declared_undo_once_all_tables_that_it_changes_are_tracked() {
    let (db, anna) = shop().await;
    db.run(
        "grant all on all tables in schema shop to countersign_writer;
         create function shop.noted() returns trigger language plpgsql as 'begin return null; end';
         create trigger noted after delete on shop.items for each row execute function shop.noted();
         create table shop.parts (\"order\" bigint, no int, foreign key (\"order\", no) references shop.items on delete set null)",
    )
    .await;
    let manifest = TestManifest::new(TOOLS);
    let refused = check(&db, &manifest).await;
    assert_eq!(refused.code, 1, "{}", refused.out);
    let told = refused.err.matches("a write says how it is undone ([tool.undo] with tool and params)").count();
    assert_eq!(told, 2, "{}", refused.err);
    assert!(
        refused.err.contains("tool set_note") && refused.err.contains(": shop.orders (not tracked)\n"),
        "{}",
        refused.err
    );
    succeed(&anna, &["track", "shop.orders", "shop.items", "shop.bare"]).await;
    // Foreign keys lead on: over the items to their parts. A log needs no key.
    let refused = check(&db, &manifest).await;
    let line = refused.err.lines().find(|line| line.contains("tool drop_order")).expect("a mistake");
    assert!(line.ends_with(": shop.bare (no key), shop.parts (not tracked)"), "{line}");
    assert!(!refused.err.contains("tool set_note"), "{}", refused.err);
    assert!(manifest.compile_error(&db).await.contains("shop.parts (not tracked)"), "no server starts with it");
    db.run("alter table shop.parts add primary key (\"order\", no)").await;
    db.run(&format!("alter table shop.parts owner to anna_{}", db.name())).await;
    succeed(&anna, &["track", "shop.parts"]).await;
    succeed(&anna, &["track", "shop.bare", "--is-log"]).await;
    let fits = check(&db, &manifest).await.succeeded();
    for line in [
        "  set_note    shop.orders; undo by recorded changes",
        "  drop_order  shop.bare, shop.orders, shop.items (by foreign key items_order_fkey), \
         shop.parts (by foreign key parts_order_no_fkey); not seen: what trigger noted of shop.items writes; \
         undo by recorded changes",
    ] {
        assert!(fits.out.lines().any(|found| found == line), "{line}: {}", fits.out);
    }
    let server = manifest.serve(&db).await;
    db.run("insert into shop.orders (note) values ('old')").await;
    let done = server.succeed("set_note", json!({"id": 1, "note": "new"})).await;
    let note = done["meta"]["rollback"]["note"].as_str().expect("a note");
    assert!(!note.contains("changes nothing"), "{note}");
    assert_eq!(db.value("select count(*) from countersign.effect").await, "1");
    // N-3: after DDL the ledger renews the shape by itself.
    db.run("alter table shop.orders add extra int").await;
    let fits = check(&db, &manifest).await.succeeded();
    let changed = "  set_note    shop.orders (its columns have changed since it was tracked); undo by recorded changes";
    assert!(fits.out.lines().any(|line| line == changed), "{}", fits.out);
}

const SECRETIVE: &str = r#"
[[tool]]
name = "set_note"
access = "write"
description = "Set the note of an order."
sql = "update shop.orders set note = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "note", description = "What.", sensitive = true }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn check_warns_of_a_sensitive_value_that_would_be_recorded_with_its_row() {
    let (db, anna) = shop().await;
    db.run("grant all on all tables in schema shop to countersign_writer").await;
    succeed(&anna, &["track", "shop.orders"]).await;
    let manifest = TestManifest::new(SECRETIVE);
    let warned = check(&db, &manifest).await.succeeded();
    let said = "tool set_note: \"note\" is sensitive, and shop.orders is tracked without a sensitive column";
    assert!(format!("{}{}", warned.out, warned.err).contains(said), "{}{}", warned.out, warned.err);
    succeed(&anna, &["track", "shop.orders", "--sensitive", "note"]).await;
    let quiet = check(&db, &manifest).await;
    assert!(!format!("{}{}", quiet.out, quiet.err).contains(said), "{}{}", quiet.out, quiet.err);
}
