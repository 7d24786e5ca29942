//! Errors of writes contain what an agent, or its operator, needs to correct them.

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database, run_countersign};

const WARD: &str = "\
create schema ward;
create type ward.status as enum ('planned', 'admitted', 'moved', 'discharged', 'cancelled');
create table ward.bed (id int primary key, note text);
create table ward.stay (id int primary key generated always as identity, bed int references ward.bed,
    status ward.status not null, at timestamptz not null, during daterange, price numeric(12,2));
insert into ward.bed values (1, 'a'), (2, 'b');
insert into ward.stay (bed, status, at) values (1, 'planned', now());
create schema audit;
create table audit.event_log (what text);
create function ward.log() returns trigger language plpgsql as
    $$ begin insert into audit.event_log values (new.note); return new; end $$;
create trigger log_bed after update on ward.bed for each row execute function ward.log();
grant usage on schema ward to countersign_writer;
grant select, insert, update, delete on all tables in schema ward to countersign_writer;";

const TOOLS: &str = r#"
[[tool]]
name = "admit"
access = "write"
description = "Admit somebody."
sql = "insert into ward.stay (bed, status, at, during, price) values ($1, $2, $3, $4, $5) returning id, price"
rows = "one"
undo = { irreversible = "A test." }
param = [{ name = "bed", description = "Where." }, { name = "status", description = "How." },
    { name = "at", description = "When." }, { name = "during", description = "How long.", optional = true },
    { name = "price", description = "How much.", optional = true, scale = 2 }]

[[tool]]
name = "remove_bed"
access = "write"
tier = "approve"
description = "Remove a bed."
before = "select id from ward.bed where id = $1 for update"
sql = "delete from ward.bed where id = $1 returning id"
rows = "one"
undo = { irreversible = "A test." }
param = [{ name = "id", description = "Which." }]

[[tool]]
name = "note_bed"
access = "write"
description = "Note something about a bed."
sql = "update ward.bed set note = $2 where id = $1 returning id"
rows = "one"
undo = { irreversible = "A test." }
param = [{ name = "id", description = "Which." }, { name = "note", description = "What." }]
"#;

async fn ward() -> (Database, Server) {
    let db = database().await;
    db.run(WARD).await;
    let server = TestManifest::new(TOOLS).serve(&db).await;
    (db, server)
}

fn hint(error: &Value) -> &str {
    error["hint"].as_str().unwrap_or_default()
}

/// N-26
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_a_foreign_key_refuses_and_a_wrong_range_have_a_hint() {
    let (_db, server) = ward().await;
    let key = "Constraint stay_bed_fkey of ward.stay: FOREIGN KEY (bed) REFERENCES ward.bed(id)";
    // It needs approval, so the preview finds it.
    let error = server.fail("remove_bed", json!({"id": 1}), "sql_error").await;
    assert_eq!((&error["sqlstate"], hint(&error)), (&json!("23503"), key), "{error}");
    let params = json!({"tool": "remove_bed", "params": {"id": 1}});
    let error = server.fail("preview_mutation", params, "sql_error").await;
    assert_eq!(hint(&error), key, "{error}");

    let call = json!({"bed": 1, "status": "planned", "at": "2026-01-31T13:45:00Z", "during": "January"});
    let error = server.fail("admit", call, "invalid_params").await;
    assert_eq!(error["sqlstate"], "22P02", "{error}");
    assert!(hint(&error).contains("during: range such as [2026-01-31,2026-02-28)"), "{error}");
}

/// N-11
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_without_a_privilege_is_named_with_the_grant() {
    let (db, server) = ward().await;
    db.run("revoke all on schema audit from countersign_writer; revoke all on audit.event_log from countersign_writer")
        .await;
    for (grant, missing) in [
        ("grant usage on schema audit to countersign_writer", "GRANT USAGE ON SCHEMA audit TO countersign_writer;"),
        (
            "grant insert on audit.event_log to countersign_writer",
            "GRANT INSERT ON audit.event_log TO countersign_writer;",
        ),
    ] {
        let error = server.fail("note_bed", json!({"id": 1, "note": "x"}), "sql_error").await;
        assert_eq!(
            hint(&error),
            format!(
                "ward.log() runs as a trigger (log_bed of ward.bed) and needs a privilege that countersign_writer does \
                 not have. The owner can grant it: {missing}"
            ),
            "{error}"
        );
        let preview = json!({"tool": "note_bed", "params": {"id": 1, "note": "x"}});
        let error = server.fail("preview_mutation", preview, "sql_error").await;
        assert!(hint(&error).ends_with(missing), "{error}");
        db.run(grant).await;
    }
    server.succeed("note_bed", json!({"id": 1, "note": "x"})).await;
    // PostgreSQL names a function without its schema where that is in its search_path.
    db.run(
        "revoke insert on audit.event_log from countersign_writer; alter function ward.log() set search_path = ward, audit",
    )
    .await;
    let error = server.fail("note_bed", json!({"id": 1, "note": "y"}), "sql_error").await;
    assert!(hint(&error).contains("GRANT INSERT ON audit.event_log"), "{error}");
}

/// N-11
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_finds_no_name_in_the_search_path_of_tools_is_named() {
    let (db, server) = ward().await;
    db.run(
        "create table ward.sheet (id bigint);
         create or replace function ward.log() returns trigger language plpgsql as $$ begin insert into sheet values (1); return null; end $$;
         grant insert on ward.sheet to countersign_writer",
    )
    .await;
    let error = server.fail("note_bed", json!({"id": 1, "note": "x"}), "sql_error").await;
    let fix = "ALTER FUNCTION ward.log() SET search_path = ward, pg_temp;";
    assert!(hint(&error).contains("log_bed of ward.bed") && hint(&error).ends_with(fix), "{error}");
    db.run(fix).await;
    server.succeed("note_bed", json!({"id": 1, "note": "x"})).await;
}

/// N-12
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_label_and_a_wrong_time_are_told_with_all_labels_and_the_form() {
    let (db, server) = ward().await;
    let call = |status: &str, at: &str| json!({"bed": 1, "status": status, "at": at});
    let error = server.fail("admit", call("gone", "2026-01-31T13:45:00Z"), "invalid_params").await;
    let labels = "\"planned\", \"admitted\", \"moved\", \"discharged\", \"cancelled\"";
    assert!(error["message"].as_str().unwrap().contains(labels), "{error}");
    let error = server.fail("admit", call("planned", "31.1.2026"), "invalid_params").await;
    let form = "is no date and time with time zone, such as 2026-01-31T13:45:00+00:00";
    assert!(error["message"].as_str().unwrap().contains(form), "{error}");
    // As PostgreSQL prints it.
    let printed = db.value("select '2026-01-31 13:45:00.25+00'::timestamptz::text").await;
    server.succeed("admit", call("planned", &printed)).await;
    let stored = "select count(*) from ward.stay where at = '2026-01-31T13:45:00.25Z'";
    assert_eq!(db.value(stored).await, "1");
}

/// N-27
#[tokio::test(flavor = "multi_thread")]
async fn the_same_time_in_another_zone_is_the_same_call() {
    let (db, server) = ward().await;
    let call = |at: &str| json!({"bed": 2, "status": "planned", "at": at});
    let first = server.succeed("admit", call("2026-01-31T13:45:00+00:00")).await;
    for same in ["2026-01-31T14:45:00+01:00", "2026-01-31 13:45:00+00", "2026-01-31T13:45:00.000Z"] {
        let again = server.succeed("admit", call(same)).await;
        assert_eq!(again["data"]["cached_result"], first["data"], "{same}: {again}");
    }
    let other = server.succeed("admit", call("2026-01-31T13:45:00+01:00")).await;
    assert_ne!(other["data"], first["data"]);
    assert_eq!(db.value("select count(*) from ward.stay where bed = 2").await, "2");
}

/// N-28
#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_a_column_would_round_is_refused() {
    let (db, server) = ward().await;
    let call = |price: Value| json!({"bed": 2, "status": "planned", "at": "2026-01-31T13:45:00Z", "price": price});
    for rounded in [json!(19.999), json!("19.999")] {
        let error = server.fail("admit", call(rounded), "invalid_params").await;
        let why = "argument \"price\" has more than 2 digits after the decimal point";
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
    }
    assert_eq!(db.value("select count(*) from ward.stay where bed = 2").await, "0");
    let done = server.succeed("admit", call(json!("19.990"))).await;
    assert_eq!(done["data"]["price"].to_string(), "19.99");
}

/// N-25: the text is a parameter, and in the images before and after, the result and the effects.
#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_a_long_text_has_it_once() {
    let db = database().await;
    db.run(WARD).await;
    db.run("drop trigger log_bed on ward.bed").await;
    run_countersign(&db.url(), &["track", "ward.bed"]).await.succeeded();
    let tool = TOOLS.rsplit_once("[[tool]]").unwrap().1.replace(
        "undo = { irreversible = \"A test.\" }",
        "before = \"select id, note from ward.bed where id = $1 for update\"",
    );
    let tool = format!("[[tool]]{}", tool.replace("returning id", "returning id, note"));
    let server = TestManifest::new(&tool).serve(&db).await;
    let texts = ["x", "y"].map(|letter| letter.repeat(2_800));
    server.succeed("note_bed", json!({"id": 1, "note": texts[0]})).await;
    let done = server.succeed("note_bed", json!({"id": 1, "note": texts[1]})).await;
    let receipt = json!({"correlation_id": done["meta"]["correlation_id"], "rows": "all"});
    let record = server.succeed("get_mutation_detail", receipt).await["data"].clone();
    assert_eq!(record["params"]["note"], texts[1]);
    assert_eq!(record["result"]["note"], json!({"same_as": "params.note"}), "{record}");
    assert_eq!(record["after_image"][0]["note"], json!({"same_as": "params.note"}), "{record}");
    let text = record.to_string();
    for value in &texts {
        assert_eq!(text.matches(value.as_str()).count(), 1, "{text}");
    }
    // Old and new value, and what every record has.
    assert!(text.len() < 2 * 2_800 + 3_000, "{}", text.len());
}

/// N-24
#[tokio::test(flavor = "multi_thread")]
async fn sql_in_a_fenced_block_has_a_hint() {
    let db = database().await;
    let server =
        Server::with(&db, |it| it.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "auto"]))
            .await;
    for (tool, argument) in [("query_database", "query"), ("explain_query", "query"), ("execute_sql", "sql")] {
        let error = server.fail(tool, json!({argument: "```sql\nselect 1\n```"}), "sql_error").await;
        assert!(hint(&error).contains("fenced block of Markdown"), "{tool}: {error}");
    }
}
