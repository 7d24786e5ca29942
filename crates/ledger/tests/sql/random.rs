//! Random writes, duplicates, undos, redos and changes from outside at the same time, under kills of backends.
//!
//! Writes are relative, so the balance of every row has to be its start plus the deltas of exactly the writes that are in force, plus
//! what was changed outside: a lost, doubled or overwritten change shows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Database, long_form};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::server::{Outcome, is_taken, perform, resolve, settle};
use crate::support::{Call, array, connect, ledger, ledger_without, run, server};

const ROWS: i64 = 12;

const SCHEMA: &str = "create schema s; create table s.acct (id int primary key, bal int not null, upd timestamptz);
    create table s.part (id int primary key, acct int references s.acct on delete cascade, n int);
    create table s.witness (correlation_id uuid); create table s.outside (id int, d int);
    create function s.upd() returns trigger language plpgsql as $$ begin new.upd := clock_timestamp(); return new; end $$;
    create trigger upd before update on s.acct for each row execute function s.upd();
    insert into s.acct select g, 100 from generate_series(1, 12) g; insert into s.part select g, g, 0 from generate_series(1, 12) g;
    select countersign.track('s.acct', maintained => '{upd}'), countersign.track('s.part')";

/// A call that was made, perhaps several times, and what came of it.
struct Made {
    call: Call,
    sql: String,
    deltas: Vec<(i64, i64)>,
    done: Vec<Uuid>,
    undos: Vec<Uuid>,
    reversed: HashSet<Uuid>,
}

#[derive(Default)]
struct World {
    made: Vec<Arc<Mutex<Made>>>,
    /// What a receipt adds to each row.
    deltas: HashMap<Uuid, Vec<(i64, i64)>>,
    counts: BTreeMap<String, u64>,
    /// Writes and undos that have ended, however they ended.
    operations: u64,
    broken: Vec<String>,
}

type Shared = Arc<Mutex<World>>;

/// How much a run tries.
#[derive(Clone, Copy)]
enum Extent {
    Until(Instant),
    Operations(u64),
}

impl Extent {
    fn is_reached(self, world: &Shared) -> bool {
        match self {
            Self::Until(end) => Instant::now() >= end,
            Self::Operations(wanted) => world.lock().unwrap().operations >= wanted,
        }
    }
}

fn count(world: &Shared, what: String) {
    *world.lock().unwrap().counts.entry(what).or_default() += 1;
}

fn count_outcome(world: &Shared, what: String) {
    world.lock().unwrap().operations += 1;
    count(world, what);
}

fn new_call(world: &Shared, random: &mut fastrand::Rng) -> Arc<Mutex<Made>> {
    let mut ids: Vec<i64> = (1..=ROWS).collect();
    random.shuffle(&mut ids);
    ids.truncate(random.usize(1..=2));
    ids.sort_unstable();
    let delta = [-7, -3, 1, 2, 5][random.usize(..5)];
    let list = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let update = format!("update s.acct set bal = bal + {delta} where id in ({list})");
    let sql = if random.f32() < 0.3 {
        format!("with a as ({update}) update s.part set n = n + 1 where id = {}", ids[0])
    } else {
        update
    };
    let call = Call::new("t", &Uuid::new_v4().to_string());
    let call = if random.bool() { call.keyed(&Uuid::new_v4().to_string()) } else { call };
    let deltas = ids.iter().map(|id| (*id, delta)).collect();
    let made = Made { call, sql, deltas, done: Vec::new(), undos: Vec::new(), reversed: HashSet::new() };
    let made = Arc::new(Mutex::new(made));
    world.lock().unwrap().made.push(Arc::clone(&made));
    made
}

async fn write(database: &Database, session: &mut Client, world: &Shared, made: &Arc<Mutex<Made>>) {
    let (call, sql, reversed) = {
        let made = made.lock().unwrap();
        let call = made.call.again();
        let call = Call { is_admitted_first: call.correlation_id.as_u128() & 1 == 0, ..call };
        let sql = format!("insert into s.witness values ('{}'); {}", call.correlation_id, made.sql);
        world.lock().unwrap().deltas.insert(call.correlation_id, made.deltas.clone());
        (call, sql, made.reversed.clone())
    };
    let outcome = perform(database, session, &call, &sql).await;
    match &outcome {
        Outcome::Success => made.lock().unwrap().done.push(call.correlation_id),
        Outcome::Resolved(status) if status == "success" => made.lock().unwrap().done.push(call.correlation_id),
        // Undone before the call, and never redone.
        Outcome::Duplicate(original) if reversed.contains(original) => {
            let redone = format!(
                "select from countersign.reversal v join countersign.reversal r on r.correlation_id = v.reversed_by where v.correlation_id = '{original}'"
            );
            if database.rows(&redone).await.is_empty() {
                world
                    .lock()
                    .unwrap()
                    .broken
                    .push(format!("a duplicate of {original} was answered after it had been reversed"));
            }
        }
        _ => {}
    }
    let name = match outcome {
        Outcome::Duplicate(_) => "duplicate".to_owned(),
        other => format!("{other:?}"),
    };
    count_outcome(world, name);
}

/// An undo whose connection may be lost anywhere.
async fn undo(database: &Database, session: &mut Client, write: Uuid) -> (Uuid, Outcome) {
    let call = Call::undo(&[write]);
    let call = Call { is_admitted_first: call.correlation_id.as_u128() & 1 == 0, ..call };
    let opening = format!("{}; select countersign.undo({})", call.begin(), array(&[write]));
    let mut answer = run(session, &opening).await;
    if let Ok(values) = &answer
        && values.last().is_some_and(|value| serde_json::from_str::<Value>(value).unwrap()["status"] == "ok")
    {
        answer = run(session, &call.finish()).await;
        if answer.is_ok() {
            return (call.correlation_id, Outcome::Success);
        }
    }
    let failed = match answer {
        Ok(_) => "conflict".to_owned(),
        Err(refused) if refused.code == "08006" || refused.code.starts_with("57P") => {
            *session = server(database).await;
            return (call.correlation_id, Outcome::Resolved(resolve(database, session, &call).await));
        }
        Err(refused) if is_taken(&refused) => {
            let _lost = run(session, "rollback").await;
            match settle(session, &call).await {
                Ok(None) => "given up".to_owned(),
                Ok(Some(other)) => return (call.correlation_id, other),
                Err(refused) => refused.code,
            }
        }
        Err(refused) => refused.code,
    };
    let _lost = run(session, "rollback").await;
    let ended = run(session, &call.fail(&failed, "{}")).await;
    if ended.is_err() {
        *session = server(database).await;
        return (call.correlation_id, Outcome::Resolved(resolve(database, session, &call).await));
    }
    (call.correlation_id, Outcome::Failed(failed))
}

async fn worker(database: Database, world: Shared, seed: u64, extent: Extent) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut session = server(&database).await;
    let person = connect(&database, "postgres").await;
    while !extent.is_reached(&world) {
        if random.f32() < 0.15 {
            kill(&person, &world, &mut random).await;
        }
        let dice = random.f32();
        let old = {
            let world = world.lock().unwrap();
            let newest = world.made.len().saturating_sub(40);
            (!world.made.is_empty()).then(|| Arc::clone(&world.made[random.usize(newest..world.made.len())]))
        };
        match old {
            Some(old) if (0.5..0.75).contains(&dice) => write(&database, &mut session, &world, &old).await,
            Some(old) if (0.75..0.93).contains(&dice) => {
                let targets = {
                    let made = old.lock().unwrap();
                    [made.done.clone(), made.undos.clone()].concat()
                };
                if !targets.is_empty() {
                    let target = targets[random.usize(..targets.len())];
                    let (id, outcome) = undo(&database, &mut session, target).await;
                    if matches!(&outcome, Outcome::Success) || outcome == Outcome::Resolved("success".to_owned()) {
                        let mut made = old.lock().unwrap();
                        made.reversed.insert(target);
                        made.undos.push(id);
                    }
                    let name = match outcome {
                        Outcome::Duplicate(_) => "undo duplicate".to_owned(),
                        other => format!("undo {other:?}"),
                    };
                    count_outcome(&world, name);
                    // Chance alone repeats few of the calls whose write was just undone.
                    if random.bool() {
                        write(&database, &mut session, &world, &old).await;
                    }
                }
            }
            Some(_) if dice >= 0.93 => {
                let (id, delta) = (random.i64(1..=ROWS), if random.bool() { 1000 } else { -1000 });
                let sql = format!(
                    "begin; update s.acct set bal = bal + {delta} where id = {id}; insert into s.outside values ({id}, {delta}); commit"
                );
                run(&person, &sql).await.unwrap();
            }
            _ => {
                let made = new_call(&world, &mut random);
                write(&database, &mut session, &world, &made).await;
            }
        }
    }
}

/// Kills a backend of a server, and sweeps at times. The workers do this between their own operations, so that as many operations meet
/// a kill on a slow machine as on a fast one.
async fn kill(person: &Client, world: &Shared, random: &mut fastrand::Rng) {
    let victim = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'countersign_writer' and datname = current_database() order by random() limit 1";
    let killed = run(person, victim).await.unwrap();
    killed.iter().for_each(|_| count(world, "kills".to_owned()));
    if random.f32() < 0.1 {
        run(person, "select countersign.sweep('1 second', 100)").await.unwrap();
    }
}

/// What must hold afterwards; each thing that does not.
async fn invariants(database: &Database, world: &Shared) -> Vec<String> {
    let mut broken = world.lock().unwrap().broken.clone();
    database.rows("select countersign.sweep('0 s', 10000)").await;
    let uuid = |text: &str| Uuid::parse_str(text).unwrap();
    let reversals: HashMap<Uuid, Uuid> = database
        .rows("select correlation_id, reversed_by from countersign.reversal")
        .await
        .iter()
        .map(|row| (uuid(&row[0]), uuid(&row[1])))
        .collect();
    let in_force = |mut write: Uuid| {
        let mut stands = true;
        while let Some(by) = reversals.get(&write) {
            stands = !stands;
            write = *by;
        }
        stands
    };
    let successes: Vec<Uuid> = database
        .rows("select correlation_id from countersign.record where status = 'success' and undo_of is null")
        .await
        .iter()
        .map(|row| uuid(&row[0]))
        .collect();
    let mut wanted: BTreeMap<i64, i64> = (1..=ROWS).map(|id| (id, 100)).collect();
    let mut add = |id: i64, delta: i64| *wanted.get_mut(&id).unwrap() += delta;
    {
        let world = world.lock().unwrap();
        for write in successes.iter().filter(|write| in_force(**write)) {
            world.deltas[write].iter().for_each(|(id, delta)| add(*id, *delta));
        }
        for made in &world.made {
            let made = made.lock().unwrap();
            if made.done.iter().any(|done| !successes.contains(done)) {
                broken.push("a write was acknowledged and is no success on record".to_owned());
            }
            if made.done.iter().collect::<HashSet<_>>().len() > 1 {
                broken.push(format!("one call ran {} times", made.done.len()));
            }
        }
    }
    for row in database.rows("select id, d from s.outside").await {
        add(row[0].parse().unwrap(), row[1].parse().unwrap());
    }
    let found: BTreeMap<i64, i64> = database
        .rows("select id, bal from s.acct")
        .await
        .iter()
        .map(|row| (row[0].parse().unwrap(), row[1].parse().unwrap()))
        .collect();
    if wanted != found {
        broken.push(format!("balances: wanted {wanted:?}, found {found:?}"));
    }
    for (name, sql) in [
        ("successes without a witness, or witnesses without a success", "select count(*) from (select correlation_id from countersign.record where status = 'success' and undo_of is null) r
             full join (select distinct on (ctid) correlation_id from s.witness) w using (correlation_id) where r is null or w is null"),
        ("effects without a success", "select count(*) from countersign.effect e left join countersign.record r using (correlation_id) where r.status is distinct from 'success'"),
        ("successes without an effect", "select count(*) from countersign.record r where r.status = 'success' and not exists (select from countersign.effect e where e.correlation_id = r.correlation_id)"),
        ("attempts that are left", "select count(*) from countersign.attempt"),
        ("keys that succeeded twice", "select count(*) from (select from countersign.record where status = 'success' and undo_of is null and idempotency_key is not null group by idempotency_key having count(*) > 1) x"),
        ("reversals without an undo", "select count(*) from countersign.reversal v left join countersign.record u on u.correlation_id = v.reversed_by where u.status is distinct from 'success' or v.correlation_id <> all (u.undo_of)"),
    ] {
        let number = database.value(sql).await;
        if number != "0" {
            broken.push(format!("{name}: {number}"));
        }
    }
    broken
}

#[allow(clippy::print_stdout, clippy::disallowed_macros, reason = "what was tried is part of the result")]
async fn run_world(database: Database, extent: Extent) -> Vec<String> {
    database.run(SCHEMA).await;
    let world = Shared::default();
    let tasks: Vec<_> =
        (0..6).map(|seed| tokio::spawn(worker(database.clone(), Arc::clone(&world), seed, extent))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let broken = invariants(&database, &world).await;
    println!("{:?}", world.lock().unwrap().counts);
    broken
}

#[tokio::test(flavor = "multi_thread")]
async fn random_writes_and_undos_under_kills_keep_every_promise() {
    let seconds = long_form::variable_or("COUNTERSIGN_TEST_LEDGER_S", 4, 60);
    let until = Instant::now() + Duration::from_secs(seconds);
    let broken = run_world(ledger("random").await, Extent::Until(until)).await;
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The control: without a mechanism, the test above notices.
#[tokio::test(flavor = "multi_thread")]
async fn a_mechanism_that_is_missing_is_noticed() {
    if long_form::is_left_out() {
        return;
    }
    let mechanisms: [(&str, &[(&str, &str)]); 3] = [
        ("run_twice", &[("if account is null or refusal is not null then", "if account is null then")]),
        (
            "undo_unchecked",
            &[
                (
                    "when w.after is not null and now.image is distinct from w.after\n",
                    "when false and now.image is distinct from w.after\n",
                ),
                ("where j.is_right is not true)", "where false)"),
            ],
        ),
        (
            "stale_duplicate",
            &[
                (
                    "from countersign.reversal r where r.correlation_id = effective_as;",
                    "from countersign.reversal r where false;",
                ),
                ("where e.correlation_id = standing.effective_as and l.position > e.position", "where false"),
            ],
        ),
    ];
    for (name, replaced) in mechanisms {
        let database = ledger_without(&format!("random_{name}"), replaced).await;
        let broken = run_world(database, Extent::Operations(3000)).await;
        assert!(!broken.is_empty(), "{name} was not noticed");
    }
}
