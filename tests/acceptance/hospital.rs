//! A schema that nobody wrote for the product: tables are tracked with no option, and what each receipt says comes true, before and
//! after a migration. N-1, N-2, N-3.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database, run_countersign};

const SCHEMA: &str = include_str!("hospital/schema.sql");

pub(crate) const TABLES: &[&str] = &[
    "hospital.ward",
    "hospital.room",
    "hospital.bed",
    "hospital.patient",
    "hospital.admission",
    "hospital.bed_assignment",
    "hospital.vital",
    "hospital.diagnosis",
    "hospital.admission_diagnosis",
    "hospital.medication",
    "hospital.prescription",
    "hospital.attachment",
    "hospital.equipment",
    "hospital.setting",
    "staffing.\"Employee\"",
    "staffing.shift",
    "staffing.shift_employee",
    "staffing.leave",
    "\"Billing\".\"Invoice\"",
    "\"Billing\".payment",
];

const TOOLS: &str = r#"
[[tool]]
name = "change_prescription"
access = "write"
description = "Change how often a medication is taken."
sql = "update hospital.prescription set times_per_day = $2, note = $3 where id = $1 returning id, updated_at"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "times", description = "How often." }, { name = "note", description = "Why.", optional = true }]

[[tool]]
name = "stop_prescriptions"
access = "write"
description = "Stop what an admission is given."
sql = "update hospital.prescription set active = false where admission_id = $1 returning id"
rows = "some"
max_rows = 100
param = [{ name = "admission", description = "Which." }]

[[tool]]
name = "prescribe"
access = "write"
description = "Prescribe a medication."
sql = "insert into hospital.prescription (admission_id, medication_id, times_per_day) values ($1, $2, $3) returning id"
rows = "one"
param = [{ name = "admission", description = "Whose." }, { name = "medication", description = "What." }, { name = "times", description = "How often." }]

[[tool]]
name = "drop_prescription"
access = "write"
description = "Drop a prescription."
sql = "delete from hospital.prescription where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]

[[tool]]
name = "set_admission_state"
access = "write"
description = "Set the state of an admission."
sql = "update hospital.admission set state = $2 where id = $1 returning id, state"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "state", description = "What." }]

[[tool]]
name = "rename_patient"
access = "write"
description = "Correct the name of a patient."
sql = "update hospital.patient set family_name = $2 where id = $1 returning full_name"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "name", description = "The family name." }]

[[tool]]
name = "move_bed"
access = "write"
description = "Give an admission another bed."
sql = "update hospital.bed_assignment set bed_id = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "bed", description = "The bed." }]

[[tool]]
name = "record_vital"
access = "write"
description = "Record a value."
sql = "insert into hospital.vital values ($1, $2, $3, $4, 'bpm') on conflict (patient_id, taken_at, kind) do update set value = excluded.value returning value"
rows = "one"
param = [{ name = "patient", description = "Whose." }, { name = "at", description = "When." }, { name = "kind", description = "What." }, { name = "value", description = "The value." }]

[[tool]]
name = "drop_admission"
access = "write"
description = "Drop an admission."
sql = "delete from hospital.admission where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]

[[tool]]
name = "drop_shift"
access = "write"
description = "Drop a shift with who works in it."
sql = "delete from staffing.shift where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]

[[tool]]
name = "rename_employee"
access = "write"
description = "Rename an employee."
sql = 'update staffing."Employee" set "Full Name" = $2, salary = salary where "Id" = $1 returning "Id"'
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "name", description = "The name." }]

[[tool]]
name = "pay"
access = "write"
description = "Take a payment."
sql = 'with paid as (insert into "Billing".payment (invoice_no, paid) values ($1, $2) returning invoice_no) update "Billing"."Invoice" i set paid_on = current_date from paid where i."InvoiceNo" = paid.invoice_no returning i."InvoiceNo"'
rows = "one"
param = [{ name = "invoice", description = "Which." }, { name = "paid", description = "How much." }]

[[tool]]
name = "set_setting"
access = "write"
description = "Set a setting."
sql = "insert into hospital.setting values ($1, $2) on conflict (key) do update set value = excluded.value returning key"
rows = "one"
param = [{ name = "key", description = "Which." }, { name = "value", description = "What." }]
"#;

/// What each tool is called with. An admission is dropped that nothing refers to.
pub(crate) async fn calls(db: &Database) -> Vec<(&'static str, Value)> {
    let free = "select b.id from hospital.bed b where not exists (select from hospital.bed_assignment a where a.bed_id = b.id) limit 1";
    let bed: i64 = db.value(free).await.parse().unwrap();
    vec![
        ("change_prescription", json!({"id": 1, "times": 4, "note": "after meals"})),
        ("stop_prescriptions", json!({"admission": 2})),
        ("prescribe", json!({"admission": 3, "medication": 1, "times": 2})),
        ("drop_prescription", json!({"id": 4})),
        ("rename_patient", json!({"id": 5, "name": "Ångström"})),
        ("move_bed", json!({"id": 1, "bed": bed})),
        ("record_vital", json!({"patient": 1, "at": "2026-11-02T10:00:00Z", "kind": "pulse", "value": 71})),
        ("drop_admission", json!({"id": 900})),
        ("drop_shift", json!({"id": 9})),
        ("rename_employee", json!({"id": 7, "name": "Emp \"Seven\""})),
        ("pay", json!({"invoice": "INV-3", "paid": "20.50"})),
        ("set_setting", json!({"key": "visiting_hours", "value": {"from": "15:00"}})),
        ("set_setting", json!({"key": "quiet", "value": true})),
        // A write that finds the row as it should be.
        ("set_admission_state", json!({"id": 4, "state": "planned"})),
        ("set_admission_state", json!({"id": 8, "state": "cancelled"})),
    ]
}

/// The hospital, its tables tracked; none where PostgreSQL has no btree_gist.
pub(crate) async fn hospital() -> Option<(Database, TestManifest)> {
    let db = database().await;
    if db.rows("select from pg_available_extensions where name = 'btree_gist'").await.is_empty() {
        testkit::external::skip("PostgreSQL has no extension btree_gist: apt-get install postgresql-contrib");
        return None;
    }
    db.run(SCHEMA).await;
    for schema in ["hospital", "staffing", "\"Billing\""] {
        db.run(&format!(
            "grant usage on schema {schema} to countersign_writer; grant all on all tables in schema {schema} to countersign_writer;
             grant usage on all sequences in schema {schema} to countersign_writer"
        ))
        .await;
    }
    let arguments: Vec<&str> = ["track"].iter().chain(TABLES).copied().collect();
    let tracked = run_countersign(&db.url(), &arguments).await;
    assert_eq!(tracked.code, 0, "{}{}", tracked.out, tracked.err);
    Some((db, TestManifest::new(TOOLS)))
}

/// Every row of every table, but for some columns and tables.
async fn contents(db: &Database, but_columns: &[&str], but_tables: &[&str]) -> BTreeSet<String> {
    let columns = "select c.oid::regclass, string_agg(quote_ident(a.attname), ', ' order by a.attnum)
         from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
         where c.relkind = 'r' and c.relnamespace::regnamespace::text in ('hospital', 'staffing', '\"Billing\"')";
    let but = but_columns.iter().map(|name| format!("and a.attname <> '{name}'")).collect::<Vec<_>>().join(" ");
    let mut all = BTreeSet::new();
    for table in db.rows(&format!("{columns} {but} group by 1 order by 1")).await {
        if !but_tables.contains(&table[0].as_str()) {
            let sql = format!("select '{}', row({})::text from {}", table[0].replace('\'', "''"), table[1], table[0]);
            all.extend(db.rows(&sql).await.into_iter().map(|row| row.join(" ")));
        }
    }
    all
}

fn assert_same(found: &BTreeSet<String>, wanted: &BTreeSet<String>, context: &str) {
    let (extra, missing): (Vec<_>, Vec<_>) = (found.difference(wanted).collect(), wanted.difference(found).collect());
    assert!(extra.is_empty() && missing.is_empty(), "{context}: found {extra:#?} instead of {missing:#?}");
}

/// What the receipt of a write promises, and what its undo is called with.
fn promised(done: &Value, context: &str) -> Value {
    let rollback = &done["meta"]["rollback"];
    assert_eq!(
        (&rollback["reversible"], &rollback["checked"], &rollback["undo_tool"]),
        (&json!(true), &json!(true), &json!("undo_mutation")),
        "{context}: {done:#}"
    );
    rollback["undo_params"].clone()
}

/// N-1: a write and its undo, the redo, and the undo of that.
async fn there_and_back(db: &Database, server: &Server, tool: &str, arguments: &Value) {
    let context = format!("{tool} {arguments}");
    // What triggers write is said; the rest is exact.
    let but = (["updated_at"], ["hospital.event_log"]);
    let before = contents(db, &but.0, &but.1).await;
    let log = db.value("select count(*) from hospital.event_log").await;
    let done = server.succeed(tool, arguments.clone()).await;
    let is_logged = db.value("select count(*) from hospital.event_log").await != log;
    let named = done["meta"]["rollback"]["not_restored"].to_string();
    assert_eq!(named.contains("hospital.event_log"), is_logged, "{context}: {done:#}");
    let after = contents(db, &but.0, &but.1).await;
    let undone = server.succeed("undo_mutation", promised(&done, &context)).await;
    assert_eq!(
        undone["data"]["set_again"]["columns"], done["meta"]["rollback"]["set_by_triggers"],
        "{context}: what was foreseen: {undone:#}"
    );
    assert_same(&contents(db, &but.0, &but.1).await, &before, &format!("undo of {context}"));
    let redone = server.succeed("undo_mutation", promised(&undone, &context)).await;
    assert_same(&contents(db, &but.0, &but.1).await, &after, &format!("redo of {context}"));
    server.succeed("undo_mutation", promised(&redone, &context)).await;
    assert_same(&contents(db, &but.0, &but.1).await, &before, &format!("second undo of {context}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_receipt_of_an_unfamiliar_schema_comes_true() {
    let Some((db, manifest)) = hospital().await else { return };
    let checked = run_countersign(&db.url(), &["check", "--manifest", manifest.path().to_str().unwrap()]).await;
    assert!(checked.code == 0 && !checked.out.contains("!countersign"), "its own triggers: {}", checked.out);
    let server = manifest.serve(&db).await;
    for (tool, arguments) in calls(&db).await {
        there_and_back(&db, &server, tool, &arguments).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_column_is_in_no_receipts_way() {
    let Some((db, manifest)) = hospital().await else { return };
    let server = manifest.serve(&db).await;
    let but = (["updated_at", "reviewed_by", "risk", "remark", "reminded"], ["hospital.event_log"]);
    let before = contents(&db, &but.0, &but.1).await;
    let mut earlier = Vec::new();
    for (tool, arguments) in calls(&db).await {
        let done = server.succeed(tool, arguments.clone()).await;
        earlier.push((format!("{tool} {arguments}"), promised(&done, tool)));
    }
    db.run(
        "alter table hospital.prescription add column reviewed_by text;
         alter table hospital.patient add column risk text not null default 'none';
         alter table hospital.setting add column remark text; alter table \"Billing\".\"Invoice\" add column reminded date",
    )
    .await;
    // The server that runs records in the new shape; the caller sees nothing of it.
    let later = [
        ("change_prescription", json!({"id": 10, "times": 5, "note": "later"})),
        ("prescribe", json!({"admission": 5, "medication": 2, "times": 1})),
        ("drop_prescription", json!({"id": 12})),
        ("rename_patient", json!({"id": 20, "name": "Later"})),
        ("pay", json!({"invoice": "INV-5", "paid": "1.00"})),
    ];
    for (tool, arguments) in &later {
        there_and_back(&db, &server, tool, arguments).await;
    }
    // N-3: a server starts after it.
    server.close().await;
    let server = manifest.serve(&db).await;
    for (number, (tool, arguments)) in later.iter().enumerate() {
        // An identical call would be a duplicate of a write that was undone.
        let mut again = arguments.clone();
        again["idempotency_key"] = json!(format!("after-the-restart-{number}"));
        there_and_back(&db, &server, tool, &again).await;
    }
    for (context, undo) in earlier.into_iter().rev() {
        let undone = server.call("undo_mutation", undo).await;
        assert_eq!(undone["success"], true, "{context}: {undone:#}");
    }
    assert_same(&contents(&db, &but.0, &but.1).await, &before, "all of it undone");
}
