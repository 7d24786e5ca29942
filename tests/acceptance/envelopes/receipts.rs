//! After admission every failure has a record, and the answer names it.

use std::future::Future;

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database};

use super::keys;

const TOOLS: &str = r#"
[[tool]]
name = "put_item"
access = "write"
description = "Put it."
sql = "insert into social.item (id) values ($1) returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]
undo = { tool = "drop_item", params = { id = "result.id" } }

[[tool]]
name = "drop_item"
access = "write"
description = "Drop it."
sql = "delete from social.item where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]
undo = { tool = "put_item", params = { id = "result.id" } }

[[tool]]
name = "fill_items"
access = "write"
description = "Fill it."
sql = "insert into social.item select n from generate_series(11, 15) n returning id, repeat('x', 900000) as body"
rows = "some"
max_rows = 10
undo = { irreversible = "No." }

[[tool]]
name = "name_item"
access = "write"
description = "Name it."
sql = "update social.item set name = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "name", description = "Its name." }]
undo = { irreversible = "No." }
"#;

const CONFLICT: &str = "do $$ begin raise exception 'a conflict' using errcode = '40001'; end $$";

struct World {
    db: Database,
    server: Server,
    failed: u32,
}

impl World {
    /// A call that must fail with this code: its record has it too.
    async fn fails(&mut self, code: &str, retryable: bool, call: impl Future<Output = Value>) {
        let envelope = call.await;
        assert_eq!(
            (&envelope["error"]["code"], &envelope["error"]["retryable"]),
            (&json!(code), &json!(retryable)),
            "{envelope}"
        );
        assert_eq!(keys(&envelope["meta"]), ["tool_version", "elapsed_ms", "correlation_id"], "{envelope}");
        let found = self.server.record(&envelope).await;
        assert_eq!((&found["status"], &found["error_code"]), (&json!("failure"), &json!(code)), "{found}");
        self.failed += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failure_after_admission_has_the_receipt_of_its_record() {
    // commit_outcome_unknown is in `lost_commit.rs`.
    let db = database().await;
    db.run("create table social.item (id bigint primary key, name text); insert into social.item values (1)").await;
    let manifest = TestManifest::new(TOOLS);
    let start = |limits: &[(&str, &str)]| {
        let mut command = manifest.command(&db);
        command.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "auto"]).envs(limits.to_vec());
        Server::start(command)
    };
    let (patient, hasty) = tokio::join!(start(&[]), start(&[("COUNTERSIGN_CALL_DEADLINE_MS", "1500")]));
    let mut world = World { server: start(&[]).await, db, failed: 0 };

    let put = |id: u32| patient.call("put_item", json!({"id": id}));
    world.fails("sql_error", false, put(1)).await;
    world.fails("sql_error", true, patient.call("execute_sql", json!({"sql": CONFLICT}))).await;
    world.fails("row_count_mismatch", false, patient.call("drop_item", json!({"id": 99}))).await;
    let wrong = json!({"sql": "select $1::int", "params": ["one"]});
    world.fails("invalid_params", false, patient.call("execute_sql", wrong)).await;
    world.fails("result_too_large", false, patient.call("fill_items", json!({}))).await;
    let keyed = |id: u32| json!({"id": id, "idempotency_key": "k"});
    patient.succeed("put_item", keyed(2)).await;
    world.fails("idempotency_key_reused", false, patient.call("put_item", keyed(3))).await;
    world.fails("timeout", true, hasty.call("execute_sql", json!({"sql": "select pg_sleep(60)"}))).await;

    // An identical call that waits in vain, and the backend of the one that it waits for is killed.
    let lock = world.db.lock("social.item").await;
    let waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like '%social.item%' \
                   and datname = current_database() and pid <> pg_backend_pid()";
    let db = world.db.clone();
    let second = async {
        let pid = db.first_value(waiting).await;
        let told = hasty.call("put_item", json!({"id": 5})).await;
        db.run(&format!("select pg_terminate_backend({pid})")).await;
        told
    };
    let (killed, told) = tokio::join!(put(5), second);
    lock.release().await;
    world.fails("duplicate_in_flight", true, async { told }).await;
    world.fails("in_doubt_aborted", true, async { killed }).await;

    world.db.run("alter table social.item drop column name").await;
    let named = json!({"id": 1, "name": "one"});
    world.fails("tool_outdated", false, patient.call("name_item", named)).await;
    world
        .db
        .run(
            "do $$ begin execute format('revoke execute on function %s from countersign_writer', \
             'countersign.record_success'::regproc::regprocedure); end $$",
        )
        .await;
    world.fails("db_error", true, put(6)).await;

    let records = "select count(*) filter (where status = 'failure') || ' of ' || count(*) from countersign.mutation";
    assert_eq!(world.db.value(records).await, format!("{} of {}", world.failed, world.failed + 1));
    assert_eq!(world.db.value("select string_agg(id::text, ' ' order by id) from social.item").await, "1 2");
}
