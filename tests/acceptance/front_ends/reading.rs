//! Reading is the default, and whoever types it may be a superuser: every hostile statement through the pipe, as one. Looked at
//! afterwards: the database, the session, another session of the same login, files, a port that counts connections.

use serde_json::{Value, json};
use testkit::Pipe;

use crate::layers::world::{Harm, World};

const STATE: &str = "select current_user::text, session_user::text, current_setting('work_mem') as work_mem, \
     current_setting('search_path') as search_path, current_setting('row_security') as row_security, \
     (select count(*) from pg_prepared_statements where from_sql) as prepared, pg_my_temp_schema()::text as temp, \
     (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory') as locks";

#[tokio::test(flavor = "multi_thread")]
async fn no_hostile_statement_of_a_superuser_does_harm_without_being_told_to_write() {
    // B3-12, B9-32; attacks of tests/attacks/reads.jsonl
    let (mut world, db) = World::new().await;
    world.watch(&db.target()).await;
    let mut pipe = Pipe::on(&db);
    let clean = pipe.run("state", STATE).await["rows"].take();
    let mut harms: Vec<(String, Harm)> = Vec::new();
    for attack in world.attacks() {
        let timeout = if attack.takes_time() { 300 } else { 10_000 };
        let mut seen = Vec::new();
        for sql in &attack.sql {
            let options = json!({"statement_timeout_ms": timeout});
            let event = pipe.run_with("attack", sql, json!({"options": options})).await;
            seen.extend(event["rows"].as_array().into_iter().flatten().map(Value::to_string));
        }
        let mut harm = world.harm(&seen).await;
        harm.network &= !attack.may_connect();
        for _ in 0..2 {
            let state = pipe.run("state", STATE).await["rows"].take();
            harm.left |= state != clean;
        }
        if harm.any() {
            world.restore(&db.target()).await;
            harms.push((attack.id.clone(), harm));
        }
    }
    assert!(harms.is_empty(), "{harms:?}");
    assert!(world.sibling_runs().await);
    pipe.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_does_one_in_a_transaction_that_cannot_write() {
    let (mut world, db) = World::new().await;
    world.watch(&db.target()).await;
    let mut pipe = Pipe::on(&db);
    let mut harms: Vec<(String, Harm)> = Vec::new();
    for attack in world.attacks().into_iter().filter(|attack| !attack.takes_time()) {
        pipe.send(json!({"code": "begin", "id": "begin"})).await;
        assert_eq!(pipe.end_of("begin").await["command_tag"], "BEGIN", "{}", attack.id);
        let mut seen = Vec::new();
        for sql in &attack.sql {
            let event = pipe.run("attack", sql).await;
            seen.extend(event["rows"].as_array().into_iter().flatten().map(Value::to_string));
        }
        pipe.send(json!({"code": "commit", "id": "commit"})).await;
        pipe.end_of("commit").await;
        let mut harm = world.harm(&seen).await;
        harm.network &= !attack.may_connect();
        if harm.any() {
            world.restore(&db.target()).await;
            harms.push((attack.id.clone(), harm));
        }
    }
    assert!(harms.is_empty(), "{harms:?}");
    pipe.finish().await;
}
