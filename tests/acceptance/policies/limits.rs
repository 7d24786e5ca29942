//! The limit of a tool's calls.

use futures_util::future::join_all;
use serde_json::{Value, json};
use testkit::{Database, External, PgBouncer, Server, skip_without};

use super::{decisions, paid, pay, payments, records};

const TWO: &str = "limit = { calls = 2, per = \"1h\" }";

fn code(answer: &Value) -> &str {
    answer["error"]["code"].as_str().unwrap_or("none")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_reached_says_when_the_next_call_is_possible() {
    let db = payments().await;
    let server = pay(TWO).serve(&db).await;
    server.succeed("pay", json!({"amount": 1})).await;
    server.succeed("pay", json!({"amount": 2})).await;
    let error = server.fail("pay", json!({"amount": 3}), "limit_reached").await;
    assert_eq!(error["retryable"], true);
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with("the limit of pay (2 calls in 3600 s for each account) is reached; nothing was written"),
        "{message}"
    );
    let seconds: i64 = message.rsplit(' ').nth(1).unwrap().parse().unwrap();
    assert!((3500..=3600).contains(&seconds), "{message}");
    assert_eq!((paid(&db).await.len(), records(&db).await), (2, "2".to_owned()), "no record of a refused call");
    assert_eq!(decisions(&db).await.concat(), ["run", "NULL", "NULL", "run", "NULL", "NULL", "limit", "NULL", "NULL"]);
    // The period is the one before the call, not one of the clock.
    db.run("update countersign.policy_log set decided_at = decided_at - interval '59 minutes 59 seconds'").await;
    db.run("update countersign.policy_log set decided_at = decided_at - interval '2 seconds' where id = (select min(id) from countersign.policy_log)").await;
    server.succeed("pay", json!({"amount": 4})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_use_nothing_up_and_are_answered_when_the_limit_is_reached() {
    let db = payments().await;
    let manifest = pay(TWO);
    let call = |amount: i64| json!({"amount": amount, "idempotency_key": format!("payment-{amount}")});
    let first = manifest.serve(&db).await;
    first.succeed("pay", call(1)).await;
    // With the memory of a server, and without it.
    let mut command = manifest.command(&db);
    command.args(["--duplicate-memory-s", "0"]);
    let second = Server::start(command).await;
    for server in [&first, &second, &second] {
        let again = server.succeed("pay", call(1)).await;
        assert_eq!(again["data"]["duplicate"], true, "{again}");
    }
    second.succeed("pay", call(2)).await;
    for server in [&first, &second] {
        assert_eq!(server.succeed("pay", call(2)).await["data"]["duplicate"], true);
        server.fail("pay", call(3), "limit_reached").await;
    }
    assert_eq!(paid(&db).await, [["1"], ["2"]]);
    let runs = decisions(&db).await.into_iter().filter(|row| row[0] == "run").count();
    assert_eq!(runs, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_account_or_actor_has_its_own_limit() {
    let db = payments().await;
    for (by, of_bob, of_eve) in [("account", "limit_reached", "none"), ("actor", "none", "none")] {
        db.run("delete from countersign.policy_log").await;
        let manifest = pay(&format!("limit = {{ calls = 1, per = \"15m\", by = \"{by}\" }}"));
        let start = async |account: &str, actor: &str| {
            let mut command = manifest.command(&db);
            command.args(["--account", account, "--actor", actor]);
            Server::start(command).await
        };
        let ann = start("shop", "ann").await;
        let call = |purpose: &str| json!({"amount": 1, "purpose": format!("{by} {purpose}")});
        ann.succeed("pay", call("1")).await;
        ann.fail("pay", call("2"), "limit_reached").await;
        assert_eq!(code(&start("shop", "bob").await.call("pay", call("3")).await), of_bob, "{by}");
        assert_eq!(code(&start("other", "ann").await.call("pay", call("4")).await), of_eve, "{by}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_proposed_counts_and_its_execution_does_not() {
    let db = payments().await;
    let rule = "[[tool.rule]]\nwhen = \"param.amount > 100\"\nthen = \"confirm\"";
    let server = pay(&format!("{TWO}\n{rule}")).serve(&db).await;
    let proposal = server.propose("pay", json!({"amount": 101})).await;
    server.succeed("pay", json!({"amount": 1})).await;
    server.fail("pay", json!({"amount": 102}), "limit_reached").await;
    server.succeed("confirm_proposal", crate::proposals::agreement(&proposal)).await;
    assert_eq!(paid(&db).await, [["1"], ["101"]]);
}

/// Sixteen different calls over two servers, at most five of which may run; how many did. The decisions take a while, so
/// that all of them would see the same count without the lock.
async fn sixteen_at_once(db: &Database) -> usize {
    db.run(
        "create function social.slowly() returns trigger language plpgsql as 'begin perform pg_sleep(0.05); return new; end';
         create trigger slowly before insert on countersign.policy_log for each row execute function social.slowly()",
    )
    .await;
    let manifest = pay("limit = { calls = 5, per = \"1h\" }");
    let servers = [manifest.serve(db).await, manifest.serve(db).await];
    let call = |n: usize| servers[n % 2].call("pay", json!({"amount": n}));
    let answers = join_all((0..16).map(call)).await;
    let refused = answers.iter().filter(|answer| code(answer) == "limit_reached").count();
    let written = paid(db).await.len();
    assert_eq!(refused + written, 16, "{answers:?}");
    written
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_at_once_do_not_exceed_the_limit() {
    let db = payments().await;
    assert_eq!(sixteen_at_once(&db).await, 5);
    assert_eq!(db.value("select count(*) from countersign.policy_log where outcome = 'run'").await, "5");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_lock_they_would() {
    let db = payments().await;
    let id = "'countersign.apply_policy'::regproc";
    let definition = db.value(&format!("select pg_get_functiondef({id})")).await;
    let lock = definition.lines().find(|line| line.contains("pg_advisory_xact_lock")).expect("the lock");
    db.run(&definition.replace(lock, "")).await;
    assert!(sixteen_at_once(&db).await > 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_decisions_are_pruned_with_the_records_and_the_log_says_so() {
    let db = payments().await;
    let server = pay(TWO).serve(&db).await;
    for amount in 1..=2 {
        server.succeed("pay", json!({"amount": amount})).await;
    }
    db.run("update countersign.policy_log set decided_at = decided_at - interval '3 days' where id = (select min(id) from countersign.policy_log)").await;
    let output = testkit::run_countersign(&db.url(), &["audit", "prune", "--older-than", "48h"]).await;
    assert!(output.out.contains("Removed 1 decision of the policy log"), "{output:?}");
    let left = db.rows("select outcome, entries, actor is not null from countersign.policy_log order by id").await;
    assert_eq!(left, [["run", "NULL", "f"], ["pruned", "1", "t"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn identical_calls_at_once_count_as_one() {
    let db = payments().await;
    let manifest = pay("limit = { calls = 1, per = \"1h\" }");
    let servers = [manifest.serve(&db).await, manifest.serve(&db).await];
    db.run(
        "create function social.slowly() returns trigger language plpgsql as 'begin perform pg_sleep(0.2); return new; end';
         create trigger slowly before insert on social.payment for each row execute function social.slowly()",
    )
    .await;
    let answers = join_all((0..16).map(|n| servers[n % 2].call("pay", json!({"amount": 1})))).await;
    assert!(answers.iter().all(|answer| answer["success"] == true), "{answers:?}");
    assert_eq!((paid(&db).await.len(), decisions(&db).await.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_write_fails_counts_and_may_be_repeated_within_the_limit() {
    let db = payments().await;
    let server = pay(TWO).serve(&db).await;
    let call = json!({"amount": 5, "idempotency_key": "once"});
    db.run("alter table social.payment add constraint closed check (amount <> 5)").await;
    server.fail("pay", call.clone(), "sql_error").await;
    db.run("alter table social.payment drop constraint closed").await;
    // The key is bound by the failure, so the ledger judges the call again: the slow way in.
    server.succeed("pay", call.clone()).await;
    server.succeed("pay", call).await;
    server.fail("pay", json!({"amount": 6}), "limit_reached").await;
    assert_eq!(decisions(&db).await.iter().filter(|row| row[0] == "run").count(), 2);
    assert_eq!(paid(&db).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler_policies_are_the_same() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let db = payments().await;
    let pooler = PgBouncer::with(&db, &[("default_pool_size", "2")]).await;
    let rules = "[[tool.rule]]\nwhen = \"param.amount > 100\"\nthen = \"confirm\"\n[[tool.rule]]\nwhen = \"param.amount < 0\"\nthen = \"deny\"";
    let manifest = pay(&format!("{TWO}\n{rules}"));
    let mut command = manifest.command(&db);
    command.env("DATABASE_URL", pooler.url()).env("COUNTERSIGN_POOLER", "transaction");
    let server = Server::start(command).await;
    let done = server.succeed("pay", json!({"amount": 1})).await;
    assert_eq!(server.succeed("pay", json!({"amount": 1})).await["data"]["duplicate"], true);
    server.fail("pay", json!({"amount": -1}), "rule_denied").await;
    let proposal = server.propose("pay", json!({"amount": 101})).await;
    server.fail("pay", json!({"amount": 2}), "limit_reached").await;
    server.succeed("confirm_proposal", crate::proposals::agreement(&proposal)).await;
    assert_eq!(done["data"]["amount"], 1);
    let outcomes: Vec<String> = decisions(&db).await.into_iter().map(|mut row| row.remove(0)).collect();
    assert_eq!(outcomes, ["run", "deny", "confirm", "limit"]);
}
