//! Tools over a partitioned table: rows before and after, an undo, a row that moves to another partition (docs/setup/databases.md,
//! "Partitioned tables").

use serde_json::json;
use testkit::{Server, TestManifest, database};

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

#[tokio::test(flavor = "multi_thread")]
async fn a_tracked_table_is_attached_and_detached_and_each_of_its_rows_is_recorded_once() {
    let db = database().await;
    db.run(VISITS).await;
    db.run(
        "create table social.visit_2027 (id bigint not null, at date not null, guest text not null, note text, primary key (id, at));
         alter table social.visit_2027 drop column note;
         create function social.trim_guest() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as
             $$ begin new.guest := trim(new.guest); return new; end $$;
         create trigger trim_guest before update on social.visit for each row execute function social.trim_guest();
         grant select, insert, update, delete on social.visit, social.visit_2027 to countersign_writer;
         grant select on social.visit, social.visit_2027 to countersign_reader;
         select countersign.track('social.visit'), countersign.track('social.visit_2027', all_writers => true)",
    )
    .await;
    let server = Server::with(&db, |it| it.args(["--execute-sql", "--execute-sql-tier", "auto"])).await;
    let write = async |sql: &str| {
        let done = server.succeed("execute_sql", json!({"sql": sql})).await;
        done["meta"]["correlation_id"].as_str().unwrap().to_owned()
    };
    let undo = async |id: &str| server.call("undo_mutation", json!({"correlation_id": id})).await;
    let recorded = async |id: &str| {
        db.value(&format!(
            "select coalesce(string_agg(e.relation::regclass || ' ' || e.op::text, ', ' order by e.position), '')
             from countersign.effect e where e.correlation_id = '{id}'"
        ))
        .await
    };
    let guests = "select coalesce(string_agg(guest, ' ' order by id), '') from social.visit_2027";
    let alone = write("insert into social.visit_2027 values (3, '2027-06-01', 'Cy')").await;
    assert_eq!(recorded(&alone).await, "social.visit_2027 I");

    let attach =
        "alter table social.visit attach partition social.visit_2027 for values from ('2027-01-01') to ('2028-01-01')";
    db.run(attach).await;
    let by_root = write("update social.visit set guest = 'Di' where id = 3").await;
    assert_eq!(recorded(&by_root).await, "social.visit U");
    assert_eq!(undo(&by_root).await["success"], true);
    assert_eq!(db.value(guests).await, "Cy");
    // What others write is recorded as the partitioned table says, and not as the table that was attached.
    db.run("update social.visit_2027 set guest = 'Ed' where id = 3; update social.visit_2027 set guest = 'Cy' where id = 3").await;
    assert_eq!(db.value("select count(*) from countersign.effect where correlation_id is null").await, "0");
    // The undo of a write from before changes nothing, and says why.
    let refused = undo(&alone).await;
    assert_eq!(refused["success"], false, "{refused}");
    assert_eq!(db.value(guests).await, "Cy");
    let problems =
        "select string_agg(problem, ';') from countersign.tracking_problems() where name = 'social.visit_2027'";
    let problem = db.value(problems).await;
    assert!(problem.starts_with("it is a partition of social.visit, whose triggers record it"), "{problem}");
    // A renewal leaves it out.
    db.run("insert into countersign.writer_login values ('another'); select countersign.renew_tracking()").await;
    assert_eq!(
        db.value("select count(*) from countersign.tracking_problems() where problem like '%know the login%'").await,
        "0"
    );
    let after = write("insert into social.visit values (4, '2027-07-01', 'Flo')").await;
    assert_eq!(recorded(&after).await, "social.visit I");
    assert_eq!(undo(&after).await["success"], true);

    db.run("alter table social.visit detach partition social.visit_2027").await;
    let detached = write("update social.visit_2027 set guest = 'Gil' where id = 3").await;
    assert_eq!(recorded(&detached).await, "social.visit_2027 U");
    assert_eq!(undo(&detached).await["success"], true);
    let undone = undo(&alone).await;
    assert_eq!(undone["success"], true, "{undone}");
    assert_eq!(db.value(guests).await, "");
    // As often as its owner likes, also if it was tracked while it was detached, and the partitioned table after it.
    db.run(&format!(
        "{attach}; alter table social.visit detach partition social.visit_2027;
         select countersign.untrack('social.visit'); {attach}; select countersign.track('social.visit')"
    ))
    .await;
    let last = write("insert into social.visit values (5, '2027-08-01', 'Hal')").await;
    assert_eq!(recorded(&last).await, "social.visit I");
    server.close().await;
}
