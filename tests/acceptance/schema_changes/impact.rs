//! What `schema show` says of a change before it is carried out.

use serde_json::{Value, json};
use testkit::Server;

use super::{propose, schema, server, stored, ward};
use crate::hospital::hospital;

fn found<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    let entry = list.as_array().unwrap().iter().find(|one| one[key].as_str().is_some_and(|text| text.contains(name)));
    entry.unwrap_or_else(|| panic!("{name} is not in {list:#}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_shown_with_its_locks_rewrites_scans_and_lost_undo() {
    let Some((db, manifest)) = hospital().await else { return };
    let mut command = manifest.command(&db);
    command.args(["--profile", "admin", "--account", "agent"]);
    let server = Server::start(command).await;
    server.succeed("change_prescription", json!({"id": 1, "times": 4, "note": "after meals"})).await;
    server.succeed("change_prescription", json!({"id": 2, "times": 4, "note": "before meals"})).await;
    // A write that does not change the column.
    server.succeed("stop_prescriptions", json!({"admission": 2})).await;
    let before = db
        .rows("select oid, relfilenode from pg_class where relnamespace::regnamespace::text = 'hospital' order by 1")
        .await;
    let sql = "alter table hospital.medication alter column dose_mg type double precision;\n\
               alter table hospital.note alter column author_id set not null;\n\
               alter table hospital.prescription drop column note;\n\
               create index concurrently on hospital.note (author_id);";
    let id = propose(&server, sql).await;
    let shown = stored(&db, &id).await;
    let impact = &shown["impact"];
    let lock = found(&impact["locks"], "relation", "hospital.medication");
    assert_eq!(
        (&lock["mode"], &lock["blocks"]),
        (&json!("ACCESS EXCLUSIVE"), &json!("reads_and_writes")),
        "{impact:#}"
    );
    let rewritten = found(&impact["rewritten"], "relation", "hospital.medication");
    assert!(rewritten["bytes"].as_u64().unwrap() >= 8192, "{impact:#}");
    assert_eq!(found(&impact["scanned"], "table", "hospital.note")["rows"], 500, "{impact:#}");
    let lost = &impact["lost_undo"];
    assert_eq!(*lost, json!([{"table": "hospital.prescription", "because": "note", "writes": 2}]));
    assert_eq!(found(&impact["untried"], "sql", "concurrently")["line"], 4);
    let column = found(&impact["objects"], "name", "hospital.prescription.note");
    assert_eq!((&column["change"], &column["kind"]), (&json!("dropped"), &json!("column")), "{impact:#}");
    assert_eq!(found(&impact["objects"], "name", "hospital.note.author_id")["after"], "integer not null");
    assert!(impact.get("failed").is_none() && impact.get("inverse").is_none(), "{impact:#}");
    found(&shown["findings"], "rule", "ban-drop-column");
    let after = db
        .rows("select oid, relfilenode from pg_class where relnamespace::regnamespace::text = 'hospital' order by 1")
        .await;
    assert_eq!(before, after, "it was rolled back");
    let text = schema(&db.url(), &["show", &id, "--try"]).await.succeeded().out;
    for part in [
        "rewrites",
        "scans",
        "undo lost",
        "2 recorded writes of hospital.prescription, since it loses note",
        "alone, outside of a transaction",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    // What the sentence says comes true: of three writes one can be undone.
    schema(&db.url(), &["apply", &id, "--yes"]).await.succeeded();
    let undone = db.rows("select tool_name, correlation_id from countersign.record order by id").await;
    let mut outcomes = Vec::new();
    for row in &undone {
        let answer = server.call("undo_mutation", json!({"correlation_id": row[1]})).await;
        outcomes.push((row[0].as_str(), answer["success"] == true));
    }
    let expected = [("change_prescription", false), ("change_prescription", false), ("stop_prescriptions", true)];
    assert_eq!(outcomes, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inverse_takes_a_change_back() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let sql = "alter table ward.bed add column \"Höhe \"\"cm\"\"\" int default 7;\n\
               create index \"Mixed Case\" on ward.bed (\"Höhe \"\"cm\"\"\"); create table ward.\"on\" (id int primary key);\n\
               alter table ward.bed drop column label; create view ward.v as select id from ward.bed";
    let columns =
        "select string_agg(attname || atttypid::regtype || attnotnull, ' ' order by attname) from pg_attribute
                   where attrelid = 'ward.bed'::regclass and attnum > 0 and not attisdropped";
    let before = db.value(columns).await;
    let id = propose(&agent, sql).await;
    let inverse = stored(&db, &id).await["impact"]["inverse"].clone();
    assert_eq!(inverse["lost_values"], json!(["ward.bed.label"]), "{inverse:#}");
    schema(&db.url(), &["apply", &id, "--yes"]).await.succeeded();
    assert_ne!(db.value(columns).await, before);
    db.run("delete from ward.bed").await;
    for statement in inverse["statements"].as_array().unwrap() {
        db.run(statement.as_str().unwrap()).await;
    }
    assert_eq!(db.value(columns).await, before);
    assert_eq!(db.value("select count(*) from pg_class where relnamespace = 'ward'::regnamespace").await, "2");
    // What has no inverse has none.
    let id = propose(&agent, "alter table ward.bed alter column label type varchar(10)").await;
    let impact = stored(&db, &id).await["impact"].clone();
    assert!(impact.get("inverse").is_none(), "{impact:#}");
    let changed = found(&impact["objects"], "name", "ward.bed.label");
    assert_eq!(
        (&changed["before"], &changed["after"]),
        (&json!("text not null"), &json!("character varying(10) not null"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_fails_is_shown_and_nothing_is_begun() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let id = propose(&agent, "alter table ward.bed add a int;\nalter table ward.bed add check (id > 10);").await;
    let impact = stored(&db, &id).await["impact"].clone();
    assert_eq!((&impact["failed"]["line"], &impact["failed"]["sqlstate"]), (&json!(2), &json!("23514")), "{impact:#}");
    found(&impact["objects"], "name", "ward.bed.a");
    let refused = schema(&db.url(), &["apply", &id, "--yes"]).await;
    assert!(refused.code == 1 && refused.err.contains("line 2 fails"), "{refused:?}");
    assert_eq!(super::status(&db, &id).await, "pending");
    // The trial gives up on a lock that somebody else has.
    let mut holder = db.connect().await;
    let open = holder.transaction().await.unwrap();
    open.batch_execute("lock table ward.bed in access share mode").await.unwrap();
    let shown = schema(&db.url(), &["show", &id, "--try", "--json", "--lock-timeout-ms", "50"]).await.succeeded();
    let impact: Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(impact["impact"]["failed"]["sqlstate"], "55P03", "{impact:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_with_five_thousand_tables_is_compared_in_the_time_of_a_trial() {
    let db = ward().await;
    // Not in one transaction, which could not hold the locks.
    for first in (1..=5000).step_by(500) {
        let last = first + 499;
        let create = "execute format('create table ward.t%s (id int primary key, a text, b text)', n)";
        db.run(&format!("do $$ begin for n in {first} .. {last} loop {create}; end loop; end $$")).await;
    }
    let agent = server(&db, "agent").await;
    let id = propose(&agent, "alter table ward.t77 add column c int").await;
    let impact = stored(&db, &id).await["impact"].clone();
    println!("5,000 tables: {} ms", impact["tried_ms"]);
    assert_eq!(impact["objects"].as_array().unwrap().len(), 1, "{impact:#}");
    assert_eq!(impact["objects"][0]["name"], "ward.t77.c");
}
