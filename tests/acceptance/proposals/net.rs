//! A row that a write changes several times is one row: as it was, and as it will be.

use serde_json::{Value, json};
use testkit::{database, run_countersign};

use super::{agreement, approve, id, server_with_questions, state};

const SCHEMA: &str = "
create schema s;
create table s.item (id int primary key, state text not null, n int not null, seen int not null default 0);
create table s.sums (state text primary key, total int not null);
create table s.queue (id int primary key, done bool not null);
insert into s.item select i, 'open', i from generate_series(1, 60) i;
insert into s.sums values ('open', 1830), ('paid', 0), ('lost', 0);
create function s.sum() returns trigger language plpgsql as $$ begin
    update s.sums set total = total - old.n where state = old.state;
    update s.sums set total = total + new.n where state = new.state;
    insert into s.queue values (new.id, false);
    update s.queue set done = true where id = new.id;
    delete from s.queue where id = new.id;
    return null; end $$;
create trigger sum after update of state on s.item for each row execute function s.sum();
create function s.see() returns trigger language plpgsql as $$ begin
    update s.item set seen = seen + 1 where id = new.id;
    return null; end $$;
create trigger see after insert or update of state on s.item for each row execute function s.see();
grant usage on schema s to countersign_writer;
grant select, insert, update, delete on all tables in schema s to countersign_writer;
select countersign.track(t) from unnest(array['s.item', 's.sums', 's.queue']::regclass[]) t";

/// The numbers of changed rows by table and kind.
fn counts(effects: &Value) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> = Vec::new();
    for row in effects["rows"].as_array().unwrap() {
        let by = if row["by_trigger"] == true { " by triggers" } else { "" };
        let place = format!("{} {}{by}", row["change"].as_str().unwrap(), row["table"].as_str().unwrap());
        match found.iter_mut().find(|(one, _)| *one == place) {
            Some((_, count)) => *count += 1,
            None => found.push((place, 1)),
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_triggers_touch_again_and_again_are_counted_once_before_and_after_the_write() {
    let db = database().await;
    db.run(SCHEMA).await;
    let (server, _asked) = server_with_questions(&db).await;
    for (sql, sentence, expected) in [
        (
            "update s.item set state = 'paid' where id <= 48",
            "It would update 48 rows of s.item, and change 2 more rows of s.sums.",
            vec![("update s.item", 48), ("update s.sums by triggers", 2)],
        ),
        (
            "insert into s.item (id, state, n) values (61, 'open', 1), (62, 'open', 1)",
            "It would insert 2 rows of s.item.",
            vec![("insert s.item", 2)],
        ),
        (
            "update s.item set id = id + 100 where id in (61, 62)",
            "It would update 2 rows of s.item.",
            vec![("update s.item", 2)],
        ),
    ] {
        let answer = server.call("execute_sql", json!({"sql": sql})).await;
        let proposal = &answer["data"]["proposal"];
        let description = proposal["description"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(description.contains(sentence), "{description}");
        let expected: Vec<_> = expected.into_iter().map(|(place, count)| (place.to_owned(), count)).collect();
        let stored = format!("from countersign.proposal where proposal_id = '{}'", id(proposal));
        let effects = db.value(&format!("select preview -> 'effects' {stored}")).await;
        assert_eq!(counts(&serde_json::from_str(&effects).unwrap()), expected, "{sql}");
        assert_eq!(approve(&db, proposal).await, "done");
        let done = server.succeed("confirm_proposal", agreement(proposal)).await;
        assert_eq!(state(&db, proposal).await, "executed", "{done}");
        let write = db.value(&format!("select correlation_id {stored}")).await;
        let record = run_countersign(&db.url(), &["audit", "show", &write, "--json"]).await.succeeded();
        let record: Value = serde_json::from_str(&record.out).unwrap();
        assert_eq!(counts(&record["effects"]), expected, "{sql}");
    }
    // The row is as it will be, with what the triggers add.
    let seen = "select before || ' ' || after from countersign.net_effects((select effective_as from (select correlation_id as effective_as \
        from countersign.effect order by position limit 1) w)) where key = '{\"id\": 7}'";
    assert_eq!(db.value(seen).await, "(7,open,7,0) (7,paid,7,1)");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_stays_as_it_is_has_no_sensitive_changes() {
    let db = database().await;
    db.run(
        "create schema s; create table s.crew (id int primary key, name text, pin text); \
         insert into s.crew select n, 'n' || n % 2, 'secret' from generate_series(1, 4) n; \
         select countersign.track('s.crew', sensitive => array['pin']); \
         grant usage on schema s to countersign_writer; grant select, update on s.crew to countersign_writer",
    )
    .await;
    let (server, asked) = server_with_questions(&db).await;
    let proposal = server.propose("execute_sql", json!({"sql": "update s.crew set name = 'n1'"})).await;
    let shown = run_countersign(&db.url(), &["proposals", "show", id(&proposal)]).await.succeeded().out;
    let question = asked.lock().unwrap().clone();
    for face in [&shown, &question, &proposal.to_string()] {
        assert!(face.contains("It would update 2 rows of s.crew"), "{face}");
        assert!(!face.contains("sensitive"), "{face}");
    }
    // So nobody is asked about a statement that leaves all rows as they are.
    let answer = server.call("execute_sql", json!({"sql": "update s.crew set name = name"})).await;
    assert!(answer["success"] == true && answer["data"]["requires_approval"].is_null(), "{answer}");
    server.close().await;
}
