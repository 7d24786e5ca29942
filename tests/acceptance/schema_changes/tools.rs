//! Which tools of manifests a change would break: said before it is carried out, and asked for by name.

use serde_json::{Value, json};
use testkit::{CommandOutput, Database, TestManifest, run_countersign};

use super::{propose, schema, server, status, ward};

/// `label_of`, `count_beds` and `relabel` are tools of the beds; `other` names a table that does not exist.
const TOOLS: &str = r#"
[[tool]]
name = "label_of"
access = "read"
description = "The label."
sql = "select label from ward.bed where id = $1"
rows = "at_most_one"
param = [{ name = "id", description = "Which." }]

[[tool]]
name = "count_beds"
access = "read"
description = "How many."
sql = "select count(*) as beds from ward.bed"
rows = "one"

[[tool]]
name = "relabel"
access = "write"
description = "Another label."
sql = "update ward.bed set label = $2 where id = $1 returning id"
rows = "one"
undo = { irreversible = "for the test" }
param = [{ name = "id", description = "Which." }, { name = "label", description = "What." }]

[[tool]]
name = "other"
access = "read"
description = "Does not fit."
sql = "select 1 as one from ward.nowhere"
rows = "any"
"#;

async fn tools_of(db: &Database, manifest: &TestManifest, sql: &str) -> Value {
    let agent = server(db, "agent").await;
    let id = propose(&agent, sql).await;
    let path = manifest.path();
    let shown = schema(&db.url(), &["show", &id, "--try", "--json", "--manifest", path.to_str().unwrap()]).await;
    let shown: Value = serde_json::from_str(&shown.succeeded().out).unwrap();
    shown["impact"]["tools"].clone()
}

async fn apply(db: &Database, manifest: &TestManifest, arguments: &[&str]) -> CommandOutput {
    let path = manifest.path();
    schema(&db.url(), &[&["apply"], arguments, &["--manifest", path.to_str().unwrap()]].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_would_not_compile_any_more_are_named_with_the_reason_of_postgresql() {
    let db = ward().await;
    let manifest = TestManifest::new(TOOLS);
    let found = tools_of(&db, &manifest, "alter table ward.bed rename label to name").await;
    assert_eq!((&found["compiled"], &found["not_compiled"]), (&json!(3), &json!(["other"])), "{found:#}");
    let broken = found["broken"].as_array().unwrap();
    let names: Vec<&str> = broken.iter().map(|one| one["tool"].as_str().unwrap()).collect();
    assert_eq!(names, ["label_of", "relabel"], "{found:#}");
    let reasons = broken[0]["reasons"].to_string();
    assert!(reasons.contains(r#"column \"label\" does not exist"#), "{reasons}");
    // What the trial says is what a server finds: it was rolled back before.
    for (sql, expected) in [
        // The parameter gets another type, and the tool compiles with it.
        ("alter table ward.bed alter column id type bigint", json!([])),
        ("alter table ward.bed add column extra int", json!([])),
        ("drop table ward.bed", json!(["count_beds", "label_of", "relabel"])),
        // A view in its place can be read.
        (
            "alter table ward.bed rename to old; create view ward.bed as select id, label from ward.old group by id, label",
            json!(["relabel"]),
        ),
    ] {
        let found = tools_of(&db, &manifest, sql).await;
        let names: Value = found["broken"].as_array().unwrap().iter().map(|one| one["tool"].clone()).collect();
        assert_eq!(names, expected, "{sql}: {found:#}");
        assert!(found.get("unknown_because").is_none(), "{sql}: {found:#}");
    }
    // A tool that a change makes fit is not broken by it.
    let found = tools_of(&db, &manifest, "create table ward.nowhere (id int)").await;
    assert_eq!(found["broken"], json!([]), "{found:#}");
    assert_eq!(db.value("select count(*) from ward.bed").await, "50");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_breaks_tools_is_carried_out_only_if_that_is_asked_for() {
    let db = ward().await;
    let manifest = TestManifest::new(TOOLS);
    let agent = server(&db, "agent").await;
    let id = propose(&agent, "alter table ward.bed rename label to name").await;
    let refused = apply(&db, &manifest, &[&id, "--yes"]).await;
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.out.contains("breaks tool") && refused.out.contains("other"), "{refused:?}");
    assert!(refused.err.contains("(label_of, relabel)") && refused.err.contains("--break-tools"), "{refused:?}");
    assert_eq!(status(&db, &id).await, "pending");
    let done = apply(&db, &manifest, &[&id, "--yes", "--break-tools"]).await.succeeded();
    assert!(done.out.contains("Applied."), "{done:?}");
    let checked = run_countersign(&db.url(), &["check", "--manifest", manifest.path().to_str().unwrap()]).await;
    assert!(checked.code == 1 && checked.err.contains("tool label_of"), "{checked:?}");
    // A file of a person, too, and one that breaks nothing needs no option.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("change.sql");
    let file = file.to_str().unwrap();
    for (sql, code) in [("alter table ward.bed add column a int", 0), ("drop table ward.bed", 1)] {
        std::fs::write(file, sql).unwrap();
        let ended = apply(&db, &manifest, &[file, "--reason", "for the test", "--yes"]).await;
        assert_eq!(ended.code, code, "{sql}: {ended:?}");
    }
    assert_eq!(db.value("select count(*) from ward.bed").await, "50");
}

/// Nothing is promised that was not compiled.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_said_if_the_tools_were_not_compared() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let id = propose(&agent, "alter table ward.bed add column a int").await;
    let shown = schema(&db.url(), &["show", &id, "--try"]).await.succeeded().out;
    assert!(shown.contains("not compared: no manifest is given or configured"), "{shown}");
    let wrong = TestManifest::new("[[tool]]\nname = 7\n");
    let found = tools_of(&db, &wrong, "alter table ward.bed add column b int").await;
    assert!(found["unknown_because"].as_str().is_some_and(|why| why.contains("test.toml")), "{found:#}");
    let manifest = TestManifest::new(TOOLS);
    let found = tools_of(&db, &manifest, "alter table ward.bed add column c int; select 1 / 0").await;
    assert_eq!(found["unknown_because"], "the trial ended in line 1", "{found:#}");
    // Rights of the login decide what it can compile.
    db.run(
        "create role plain_owner login in role countersign_approver; grant usage, create on schema ward to plain_owner",
    )
    .await;
    let id = propose(&agent, "create table ward.mine (id int)").await;
    let path = manifest.path();
    let arguments = ["show", &id, "--try", "--manifest", path.to_str().unwrap()];
    let shown = schema(&db.url_as("plain_owner"), &arguments).await.succeeded().out;
    assert!(shown.contains("not compared, since this login cannot compile them now: other, relabel"), "{shown}");
    let short = schema(&db.url(), &[&arguments[..], &["--try-for", "1", "--json"]].concat()).await.succeeded();
    let short: Value = serde_json::from_str(&short.out).unwrap();
    assert_eq!(short["impact"]["tools"]["compiled"], 3, "{short:#}");
}
