//! What `schema show` says of a change before it is carried out.

use serde_json::{Value, json};

use super::{propose, schema, server, stored, ward};

fn found<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    let entry = list.as_array().unwrap().iter().find(|one| one[key].as_str().is_some_and(|text| text.contains(name)));
    entry.unwrap_or_else(|| panic!("{name} is not in {list:#}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_shown_with_its_locks_rewrites_and_scans() {
    let db = ward().await;
    db.run("create table ward.note (author int); insert into ward.note select generate_series(1, 500)").await;
    let agent = server(&db, "agent").await;
    let relations = "select oid, relfilenode from pg_class where relnamespace::regnamespace::text = 'ward' order by 1";
    let before = db.rows(relations).await;
    let sql = "alter table ward.bed alter column id type bigint;\n\
               alter table ward.note alter column author set not null;\n\
               create index concurrently on ward.note (author); create table ward.new as select * from ward.bed;";
    let id = propose(&agent, sql).await;
    let shown = stored(&db, &id).await;
    let impact = &shown["impact"];
    let lock = found(&impact["locks"], "relation", "table ward.bed");
    assert_eq!(
        (&lock["mode"], &lock["blocks"]),
        (&json!("ACCESS EXCLUSIVE"), &json!("reads_and_writes")),
        "{impact:#}"
    );
    let rewritten = found(&impact["rewritten"], "relation", "table ward.bed");
    assert!(rewritten["bytes"].as_u64().unwrap() >= 8192, "{impact:#}");
    assert_eq!(found(&impact["scanned"], "table", "ward.note")["rows"], 500, "{impact:#}");
    assert_eq!(found(&impact["untried"], "sql", "concurrently")["line"], 3);
    assert!(impact.get("failed").is_none() && impact["dropped"] == json!([]), "{impact:#}");
    assert!(!impact.to_string().contains("ward.new"), "{impact:#}");
    assert_eq!(db.rows(relations).await, before, "it was rolled back");
    let text = schema(&db.url(), &["show", &id, "--try"]).await.succeeded().out;
    for part in ["rewrites", "scans", "ACCESS EXCLUSIVE blocks reads and writes", "alone, outside of a transaction"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cascade_drops_is_shown_whatever_the_text_hides() {
    let db = ward().await;
    db.run(
        "create view ward.label as select label from ward.bed; create view ward.\"Short\" as select left(label, 3) from ward.label;
         create table ward.stay (bed int references ward.bed)",
    )
    .await;
    let agent = server(&db, "agent").await;
    let id = propose(&agent, "set client_min_messages = error;\ndrop table ward.bed cascade").await;
    let text = schema(&db.url(), &["show", &id, "--try"]).await.succeeded().out;
    for part in [
        "notice           line 2: drop cascades to 3 other objects\n",
        "drop cascades to view ward.\"Short\"\n",
        "drop cascades to constraint stay_bed_fkey on table ward.stay\n",
        "drops            view ward.label\n",
        "drops            table ward.bed\n",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    // A block raises notices of its own, and hides those of PostgreSQL.
    let hidden = "do $$ begin for n in 1 .. 1000 loop raise notice 'nothing'; end loop; set local client_min_messages = error;\n\
                  drop table ward.bed cascade; end $$; select 1";
    let id = propose(&agent, hidden).await;
    let impact = stored(&db, &id).await["impact"].clone();
    assert_eq!(impact["notices"].as_array().unwrap().len(), 20, "{impact:#}");
    assert_eq!(impact["notices"][0], json!({"line": 1, "message": "nothing"}));
    assert_eq!(impact["dropped"], json!(["view ward.\"Short\"", "table ward.bed", "view ward.label"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_fails_is_shown_and_nothing_is_begun() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let id = propose(&agent, "alter table ward.bed add a int;\nalter table ward.bed add check (id > 10);").await;
    let impact = stored(&db, &id).await["impact"].clone();
    assert_eq!((&impact["failed"]["line"], &impact["failed"]["sqlstate"]), (&json!(2), &json!("23514")), "{impact:#}");
    found(&impact["locks"], "relation", "ward.bed");
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
