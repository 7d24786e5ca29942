//! Reading is the default, also for a superuser: every hostile statement runs through the pipe as one. Afterwards the test
//! checks the session, files and a port that counts connections. At the end, or after each statement in the long form, it
//! checks the database and another session of the same login.

use serde_json::{Value, json};
use testkit::{Pipe, long_form};

use crate::layers::world::{Attack, Harm, World};

const STATE: &str = "select current_user::text, session_user::text, current_setting('work_mem') as work_mem, \
     current_setting('search_path') as search_path, current_setting('row_security') as row_security, \
     (select count(*) from pg_prepared_statements where from_sql) as prepared, pg_my_temp_schema()::text as temp, \
     (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory') as locks";

/// What an attack did; to the database, what all did that came before the last one.
async fn harm_of(world: &mut World, attack: &Attack, seen: &[String], is_last: bool) -> Harm {
    let mut harm = world.harm_outside(seen);
    harm.network &= !attack.may_connect();
    if is_last || long_form::is_on() {
        let Harm { changed, stopped, .. } = world.harm_inside().await;
        (harm.changed, harm.stopped) = (changed, stopped);
    }
    harm
}

#[tokio::test(flavor = "multi_thread")]
async fn no_hostile_statement_of_a_superuser_does_harm_without_the_write_option() {
    let (mut world, db) = World::new().await;
    world.watch(&db.target()).await;
    let mut pipe = Pipe::on(&db);
    let clean = pipe.run("state", STATE).await["rows"].take();
    let mut harms: Vec<(String, Harm)> = Vec::new();
    let attacks = world.attacks();
    for (number, attack) in attacks.iter().enumerate() {
        let timeout = if attack.takes_time() { 100 } else { 10_000 };
        let mut seen = Vec::new();
        for sql in &attack.sql {
            let options = json!({"statement_timeout_ms": timeout});
            let event = pipe.run_with("attack", sql, json!({"options": options})).await;
            seen.extend(event["rows"].as_array().into_iter().flatten().map(Value::to_string));
        }
        let mut harm = harm_of(&mut world, attack, &seen, number + 1 == attacks.len()).await;
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
async fn no_hostile_statement_in_a_read_only_transaction_does_harm() {
    let (mut world, db) = World::new().await;
    world.watch(&db.target()).await;
    let mut pipe = Pipe::on(&db);
    let mut harms: Vec<(String, Harm)> = Vec::new();
    let attacks: Vec<Attack> = world.attacks().into_iter().filter(|attack| !attack.takes_time()).collect();
    for (number, attack) in attacks.iter().enumerate() {
        pipe.send(json!({"code": "begin", "id": "begin"})).await;
        assert_eq!(pipe.last_event_of("begin").await["command_tag"], "BEGIN", "{}", attack.id);
        let mut seen = Vec::new();
        for sql in &attack.sql {
            let event = pipe.run("attack", sql).await;
            seen.extend(event["rows"].as_array().into_iter().flatten().map(Value::to_string));
        }
        pipe.send(json!({"code": "commit", "id": "commit"})).await;
        pipe.last_event_of("commit").await;
        let harm = harm_of(&mut world, attack, &seen, number + 1 == attacks.len()).await;
        if harm.any() {
            world.restore(&db.target()).await;
            harms.push((attack.id.clone(), harm));
        }
    }
    assert!(harms.is_empty(), "{harms:?}");
    pipe.finish().await;
}
