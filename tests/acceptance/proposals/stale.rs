//! Only the approved effects happen: if the rows have changed since, nothing happens.

use serde_json::{Value, json};
use testkit::{Database, Server, database, poll, repository};

use super::{PRICE, agreement, price, state};

async fn refused_as_stale(db: &Database, server: &Server, proposal: &Value) {
    let rows = db.rows("select * from studio.package order by package_id").await;
    let error = server.fail("confirm_proposal", agreement(proposal), "proposal_stale").await;
    assert!(error["message"].as_str().unwrap().contains("nothing was written"), "{error}");
    assert_eq!(state(db, proposal).await, "stale");
    assert_eq!(db.rows("select * from studio.package order by package_id").await, rows, "nothing was written");
    // The repeated call gets an equal answer.
    assert_eq!(server.fail("confirm_proposal", agreement(proposal), "proposal_stale").await["code"], "proposal_stale");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_changed_or_deleted_since_stops_the_write() {
    let db = database().await;
    let server = Server::studio(&db).await;
    for change in [
        "update studio.package set price = price + 1 where package_id = 1",
        "update studio.package set description = 'Other words.' where package_id = 1",
        "update studio.package set title = 'Another title' where package_id = 1",
    ] {
        let proposal = server.propose("upsert_package", price("150")).await;
        db.run(change).await;
        refused_as_stale(&db, &server, &proposal).await;
    }
    let records = db.rows("select distinct status, error_code, approval is null from countersign.mutation").await;
    assert_eq!(records, [["failure", "proposal_stale", "f"]], "each is a mutation that failed, and says who agreed");

    let proposal = server
        .propose(
            "upsert_package",
            json!({"package_id": 3, "title": "Gone", "description": "", "price": 1, "duration_minutes": 15}),
        )
        .await;
    db.run("delete from studio.booking where package_id = 3; delete from studio.package where package_id = 3").await;
    refused_as_stale(&db, &server, &proposal).await;

    // The control: what the write neither looks at nor comes to may change.
    let proposal = server.propose("upsert_package", price("150")).await;
    db.run("update studio.package set price = 1 where package_id = 2").await;
    server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!(db.value(PRICE).await, "150.00");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_waits_for_the_row_is_seen_before_the_write_commits() {
    // The server compares the rows under the lock: a change that commits while the write waits counts.
    let db = database().await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    let mut other = db.connect().await;
    let change = other.transaction().await.unwrap();
    change.batch_execute("update studio.package set price = 121 where package_id = 1").await.unwrap();
    let confirm = server.call("confirm_proposal", agreement(&proposal));
    let commit = async {
        db.first_value("select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%for update%'",
        )
        .await;
        // Only this write waits; a write of tier auto runs at once.
        assert_eq!(server.query(PRICE).await[0]["price"].to_string(), "120.00");
        server.propose("delete_package", json!({"package_id": 3})).await;
        let hours = json!({"weekday": 7, "opens": "10:00", "closes": "12:00"});
        let written = server.succeed("manage_working_hours", hours).await;
        assert_eq!((&written["meta"]["rows_affected"], written["data"].get("proposal")), (&json!(1), None));
        let opens = "select opens from studio.working_hours where tenant_id = 'default' and weekday = 7";
        assert_eq!(db.value(opens).await, "10:00:00");
        change.commit().await.unwrap();
    };
    let (answer, ()) = tokio::join!(confirm, commit);
    assert_eq!(answer["error"]["code"], "proposal_stale", "{answer}");
    assert_eq!(db.value(PRICE).await, "121.00");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_values_are_named_and_do_not_make_a_proposal_stale() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let new = json!({"title": "Newborn", "description": "", "price": 99, "duration_minutes": 90});
    let proposal = server.propose("upsert_package", new).await;
    assert_eq!(proposal["preview"]["result"]["package_id"], "(generated)", "no number is promised: {proposal}");
    let generated = proposal["preview"]["generated"].as_array().unwrap();
    assert!(generated.contains(&json!("result.package_id")), "{proposal}");
    let done = server.succeed("confirm_proposal", agreement(&proposal)).await;
    let package: i64 = done["data"]["result"]["package_id"].as_i64().unwrap();
    assert_eq!(db.value(&format!("select title from studio.package where package_id = {package}")).await, "Newborn");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_tool_has_changed_leaves_the_proposal_to_one_that_has_it() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    let manifest = std::fs::read_to_string(repository().join("manifests/studio.toml")).unwrap();
    let changed = manifest.replace("set title = $3, description = $4,", "set title = $3, description = $4 || '!',");
    assert_ne!(manifest, changed);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("studio.toml");
    std::fs::write(&path, changed).unwrap();
    let other = Server::bare_with(&db, |it| it.arg("--manifest").arg(&path)).await;
    let error = other.fail("confirm_proposal", agreement(&proposal), "proposal_stale").await;
    assert!(error["message"].as_str().unwrap().contains("tool"), "{error}");
    assert_eq!((db.value(PRICE).await, state(&db, &proposal).await), ("120.00".to_owned(), "pending".to_owned()));
    other.close().await;
    server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!(db.value(PRICE).await, "150.00");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identical_write_in_between_makes_it_stale_and_is_not_made_twice() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let first = server.propose("upsert_package", price("150")).await;
    // The row changes, so the next proposal of the same call is another one; then it changes back.
    db.run("update studio.package set price = 130 where package_id = 1").await;
    let second = server.propose("upsert_package", price("150")).await;
    assert_ne!(first["proposal_id"], second["proposal_id"]);
    server.succeed("confirm_proposal", agreement(&second)).await;
    db.run("update studio.package set price = 120 where package_id = 1").await;
    let error = server.fail("confirm_proposal", agreement(&first), "proposal_stale").await;
    assert!(error["message"].as_str().unwrap().contains("identical"), "{error}");
    assert_eq!(db.value(PRICE).await, "120.00");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_after_approval_is_reported_and_the_next_call_can_propose_again() {
    let db = database().await;
    db.run(
        "create table public.refusal (why text); grant select on public.refusal to public; \
         create function public.refuse() returns trigger language plpgsql as $$ begin \
         if exists (select from public.refusal) then raise exception 'refused' using errcode = '23514'; end if; return new; end $$; \
         create trigger refuse before insert on studio.package for each row execute function public.refuse()",
    )
    .await;
    let mut command = Server::studio_command(&db);
    command.env("COUNTERSIGN_DUPLICATE_MEMORY_S", "0");
    let server = Server::start(command).await;
    let new = json!({"title": "Newborn", "description": "", "price": 99, "duration_minutes": 90});
    let proposal = server.propose("upsert_package", new.clone()).await;
    db.run("insert into public.refusal values ('for now')").await;
    let error = server.fail("confirm_proposal", agreement(&proposal), "sql_error").await;
    assert_eq!(error["sqlstate"], "23514");
    assert_eq!(state(&db, &proposal).await, "failed");
    let stored = server.succeed("get_proposal", json!({"proposal_id": proposal["proposal_id"]})).await["data"].clone();
    let record = server.succeed("get_mutation_detail", json!({"correlation_id": stored["correlation_id"]})).await;
    assert_eq!(record["data"]["status"], "failure", "{record}");
    db.run("delete from public.refusal").await;
    let again = server.propose("upsert_package", new).await;
    assert_ne!(again["proposal_id"], proposal["proposal_id"]);
    let done = server.succeed("confirm_proposal", agreement(&again)).await;
    assert_ne!(done["meta"]["correlation_id"], stored["correlation_id"]);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_of_deferred_triggers_are_shown_and_compared() {
    let db = database().await;
    db.run(
        "create function public.round_up() returns trigger language plpgsql as $$ begin \
         update studio.package set price = ceil(price) where package_id = new.package_id and price <> ceil(price); return null; end $$; \
         create constraint trigger round_up after update on studio.package deferrable initially deferred \
         for each row execute function public.round_up()",
    )
    .await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("upsert_package", price("150.50")).await;
    assert_eq!(proposal["preview"]["after"][0]["price"].to_string(), "151.00", "{proposal}");
    db.run(
        "create or replace function public.round_up() returns trigger language plpgsql as $$ begin return null; end $$",
    )
    .await;
    refused_as_stale(&db, &server, &proposal).await;
    server.close().await;
}

/// From when `public.others` has a row, an update of a package is a conflict with others when `condition` holds.
async fn conflicts(db: &Database, condition: &str) {
    db.run(&format!(
        "create sequence public.tries; grant usage on sequence public.tries to public; \
         create table public.others (id integer); grant select on public.others to public; \
         create function public.conflict() returns trigger language plpgsql as $$ begin \
         if exists (select from public.others) then if {condition} then \
         raise exception 'a conflict' using errcode = '40001'; end if; end if; return new; end $$; \
         create trigger conflict before update on studio.package for each row execute function public.conflict()"
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_with_others_does_not_use_up_an_agreement() {
    let db = database().await;
    let server = Server::studio(&db).await;
    // Fails the first two times that it is really written; a sequence does not go back.
    conflicts(&db, "nextval('public.tries') < 3").await;
    let proposal = server.propose("upsert_package", price("150")).await;
    db.run("insert into public.others values (1)").await;
    let error = server.fail("confirm_proposal", agreement(&proposal), "sql_error").await;
    assert_eq!((&error["sqlstate"], &error["retryable"]), (&json!("40001"), &json!(true)), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("stays confirmed"), "{error}");
    let executed = format!(
        "select 1 from countersign.proposal where proposal_id = '{}' and status = 'executed'",
        super::id(&proposal)
    );
    db.first_value(&executed).await;
    assert_eq!(db.value(PRICE).await, "150.00");
    let records = db.rows("select status, coalesce(error_sqlstate, '') from countersign.mutation order by id").await;
    assert_eq!(records, [["failure", "40001"], ["failure", "40001"], ["success", ""]]);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_that_never_ends_uses_no_agreement_up_and_ends_with_its_time() {
    let db = database().await;
    let server = Server::studio(&db).await;
    conflicts(&db, "true").await;
    let proposal = server.propose("upsert_package", price("150")).await;
    db.run("insert into public.others values (1)").await;
    server.fail("confirm_proposal", agreement(&proposal), "sql_error").await;
    // As if the pause before the next attempt had passed, more often than a server may die in the middle.
    let of_it = format!("where proposal_id = '{}'", super::id(&proposal));
    let no_pause = format!(
        "update countersign.proposal set attempt_until = now() {of_it} and attempt is null and status = 'confirmed'"
    );
    let seventh = async || {
        db.run(&no_pause).await;
        db.rows("select 1 from countersign.mutation offset 6").await.pop()
    };
    poll::until_some("it was tried seven times", seventh).await;
    let waits = format!("select status, error_code, attempts from countersign.proposal {of_it} and attempt is null");
    let waits = async || db.rows(&waits).await.pop();
    assert_eq!(poll::until_some("it waits", waits).await, ["confirmed", "sql_error", "0"]);
    // A pause adds no time: it ends when its own time is over.
    db.run("alter table countersign.proposal disable trigger user").await;
    db.run(&format!(
        "update countersign.proposal set expires_at = now(), decided_at = now() - interval '6 minutes', attempt_until = now() {of_it}"
    ))
    .await;
    db.run(&format!("update countersign.proposal p set digest = countersign.proposal_digest(p) {of_it}")).await;
    db.run("alter table countersign.proposal enable trigger user").await;
    db.first_value(&format!("select 1 from countersign.proposal {of_it} and status = 'expired'")).await;
    assert_eq!(db.value(PRICE).await, "120.00");
    server.close().await;
}
