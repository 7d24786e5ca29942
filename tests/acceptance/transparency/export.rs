//! Exports that fail or are killed: the folder says that it is incomplete, no verifier takes it for a bundle, and the export can
//! be made again.

use std::path::{Path, PathBuf};

use serde_json::json;
use testkit::audit::{insert_failed_records, run_audit, tamper};
use testkit::{Database, TestManifest, database, poll};
use tokio::process::Command;

use super::verifiers::contents;
use super::{Auditor, both, text, verdict};

/// A sealed and signed log of 700 records, and the key of its auditor.
async fn signed_log() -> (Database, Auditor, String) {
    let db = database().await;
    let auditor = Auditor::new();
    let vkey = auditor.makes_a_key(&db).await;
    insert_failed_records(&db, 700, 0).await;
    auditor.signs(&db, &["seal"]).await;
    (db, auditor, vkey)
}

async fn assert_incomplete(dir: &Path, vkey: &str) {
    assert!(dir.join("checkpoint.incomplete").exists() && !dir.join("checkpoint").exists());
    let found = verdict(&[text(dir), "--vkey", vkey]).await;
    assert_eq!(found["findings"], json!([{"code": "checkpoint_malformed", "place": "checkpoint"}]), "{found}");
    for ran in both(&[text(dir), "--vkey", vkey]).await {
        assert!(ran.code == 1 && ran.out.contains("The export into this folder is not complete"), "{ran:?}");
    }
}

/// Exports into the folder of an earlier attempt; the bundle is that of one attempt alone.
async fn assert_repeatable(db: &Database, auditor: &Auditor, vkey: &str, name: &str) {
    let dir = auditor.exports(db, name).await;
    let found = verdict(&[text(&dir), "--vkey", vkey]).await;
    assert_eq!((&found["verdict"], &found["parts"]), (&json!("valid"), &json!(2800)), "{found}");
    assert!(!dir.join("checkpoint.incomplete").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_export_says_that_it_is_incomplete_and_can_be_repeated() {
    let (db, auditor, vkey) = signed_log().await;
    // It cannot read the parts, and waits.
    let holder = db.lock("countersign.effect").await;
    let dir = PathBuf::from(auditor.path("bundle"));
    let mut command = Command::new(testkit::countersign());
    command.env("DATABASE_URL", db.url()).args(["audit", "export", text(&dir)]);
    command.args(["--signing-key", &auditor.path("log.key")]).kill_on_drop(true);
    let mut export = command.spawn().unwrap();
    let waits = "select count(*) from pg_locks where not granted and relation = 'countersign.effect'::regclass";
    poll::until("the export waits", async || db.value(waits).await == "1").await;
    let second = run_audit(&db.url(), &["export", text(&dir)]).await;
    assert!(second.code == 1 && second.err.contains("another process is exporting into this folder"), "{}", second.err);
    export.kill().await.unwrap();
    assert_incomplete(&dir, &vkey).await;
    holder.release().await;
    let logged = "select count(*) from countersign.event where kind = 'export'";
    assert_eq!(db.value(logged).await, "0");
    assert_repeatable(&db, &auditor, &vkey, "bundle").await;
    assert_eq!(db.value(logged).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_fails_half_way_is_incomplete_and_leaves_other_files_alone() {
    let (db, auditor, vkey) = signed_log().await;
    let dir = PathBuf::from(auditor.path("bundle"));
    tamper(&db, "update countersign.record set params_summary = 'altered' where id = 600").await;
    let failed = run_audit(&db.url(), &["export", text(&dir)]).await;
    assert!(failed.code == 1 && failed.err.contains("altered after it was sealed (id 600)"), "{}", failed.err);
    assert!(dir.join("tile/entries/001").exists(), "the files before it are written");
    assert_incomplete(&dir, &vkey).await;

    // A file that no export writes is not removed, and nothing else is either.
    std::fs::write(dir.join("notes.txt"), "mine").unwrap();
    let before = contents(&dir);
    let refused = run_audit(&db.url(), &["export", text(&dir)]).await;
    assert!(refused.code == 1 && refused.err.contains("notes.txt is not of the interrupted export"), "{}", refused.err);
    assert_eq!(contents(&dir), before);
    std::fs::remove_file(dir.join("notes.txt")).unwrap();
    tamper(&db, "update countersign.record set params_summary = '{}' where id = 600").await;
    assert_repeatable(&db, &auditor, &vkey, "bundle").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_ledger_takes_is_exported_whatever_its_size() {
    // S-3: a record with four times 270,000 characters, one of 12 MB, and many that are together larger than one answer.
    let db = database().await;
    let auditor = Auditor::new();
    let vkey = auditor.makes_a_key(&db).await;
    db.run(
        "create schema shop; create table shop.note (id int primary key, text text); grant usage on schema shop to countersign_writer; \
         grant select, insert, update on shop.note to countersign_writer; \
         insert into shop.note select n, '' from generate_series(1, 4000) n",
    )
    .await;
    audit_track(&db).await;
    let tool = "[[tool]]\nname = \"set_note\"\naccess = \"write\"\ndescription = \"Set a note.\"\nrows = \"one\"\n\
        sql = \"update shop.note set text = $2 where id = $1 returning id, text\"\n\
        param = [{ name = \"id\", description = \"Which.\" }, { name = \"text\", description = \"What.\" }]\n\
        [[tool]]\nname = \"fill_notes\"\naccess = \"write\"\ndescription = \"Fill the notes.\"\nrows = \"some\"\nmax_rows = 5000\n\
        sql = \"update shop.note set text = repeat(md5(id::text), 90) where id > 2 returning id\"\n";
    let server = TestManifest::new(tool).serve(&db).await;
    server.succeed("set_note", json!({"id": 1, "text": "\u{e9}".repeat(270_000)})).await;
    for n in 0..20 {
        server.succeed("set_note", json!({"id": 2, "text": format!("{n}{}", "x".repeat(200_000))})).await;
    }
    server.succeed("fill_notes", json!({})).await;
    let bytes = "select sum(octet_length(e.after)) / 1000000 > 10 from countersign.effect e";
    assert_eq!(db.value(bytes).await, "t");
    auditor.signs(&db, &["seal"]).await;
    let dir = auditor.exports(&db, "bundle").await;
    let found = verdict(&[text(&dir), "--vkey", &vkey]).await;
    assert_eq!((&found["verdict"], &found["findings"]), (&json!("valid"), &json!([])), "{found}");
    let largest =
        std::fs::read_dir(dir.join("parts")).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).max();
    assert!(largest > Some(10_000_000), "{largest:?}");
}

/// Tracks `shop.note`.
async fn audit_track(db: &Database) {
    testkit::run_countersign(&db.url(), &["track", "shop.note"]).await.succeeded();
}
