//! The limit of the rows that a tool changes.

use futures_util::future::join_all;
use serde_json::json;
use testkit::{Database, Server, TestManifest};

use super::{paid, payments, records};

/// A tool that pays `count` times one amount, with this limit and these further lines.
fn pay_often(limit: &str, more: &str) -> TestManifest {
    TestManifest::new(&format!(
        "[[tool]]\nname = \"pay_often\"\naccess = \"write\"\ndescription = \"Pay an amount several times.\"\n\
         sql = \"insert into social.payment (account_id, amount) select $1, $2 from generate_series(1, $3) returning id\"\n\
         rows = \"any\"\nmax_rows = 100\nundo = {{ irreversible = \"It is paid.\" }}\nlimit = {{ {limit} }}\n{more}\n\
         [[tool.param]]\nname = \"account_id\"\nfrom = \"principal.account_id\"\n\
         [[tool.param]]\nname = \"amount\"\ndescription = \"How much.\"\n\
         [[tool.param]]\nname = \"count\"\ndescription = \"How often.\"\n"
    ))
}

async fn counted(db: &Database) -> Vec<Vec<String>> {
    db.rows("select outcome, rows from countersign.policy_log where outcome = 'rows' order by id").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_with_more_rows_than_are_left_is_rolled_back_and_says_when_it_is_possible() {
    let db = payments().await;
    let server = pay_often("rows = 10, per = \"1h\"", "").serve(&db).await;
    server.succeed("pay_often", json!({"amount": 1, "count": 4})).await;
    db.run("update countersign.policy_log set decided_at = decided_at - interval '30 minutes'").await;
    server.succeed("pay_often", json!({"amount": 2, "count": 5})).await;
    let error = server.fail("pay_often", json!({"amount": 3, "count": 2}), "limit_reached").await;
    assert_eq!(error["retryable"], true);
    let message = error["message"].as_str().unwrap();
    let start = "the write would have changed 2 row(s), and 9 of the 10 rows of pay_often in 3600 s for each account are used; \
                 nothing was written, and it is possible in ";
    let seconds: i64 = message.strip_prefix(start).expect(message).strip_suffix(" s").unwrap().parse().unwrap();
    assert!((1700..=1800).contains(&seconds), "when the first write leaves the period: {message}");
    // Six rows need the second write to leave as well.
    let error = server.fail("pay_often", json!({"amount": 3, "count": 6}), "limit_reached").await;
    let seconds: i64 = error["message"].as_str().unwrap().rsplit(' ').nth(1).unwrap().parse().unwrap();
    assert!((3500..=3600).contains(&seconds), "{error}");
    assert_eq!(paid(&db).await.len(), 9);
    let failures = "select error_code from countersign.mutation where status = 'failure'";
    assert_eq!(db.rows(failures).await.concat(), ["limit_reached", "limit_reached"]);
    server.succeed("pay_often", json!({"amount": 4, "count": 1})).await;
    server.succeed("pay_often", json!({"amount": 5, "count": 0})).await;
    assert_eq!(counted(&db).await, [["rows", "4"], ["rows", "5"], ["rows", "1"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_with_more_rows_than_the_limit_is_never_possible() {
    let db = payments().await;
    let server = pay_often("rows = 10, per = \"1h\"", "").serve(&db).await;
    let error = server.fail("pay_often", json!({"amount": 1, "count": 11}), "row_count_mismatch").await;
    assert_eq!(error["retryable"], false);
    assert_eq!(
        error["message"],
        "the write would have touched 11 row(s) where at most 10 (limit.rows) is allowed; nothing was written"
    );
    assert!(paid(&db).await.is_empty() && counted(&db).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_and_rows_are_limited_together_and_actors_apart() {
    let db = payments().await;
    let manifest = pay_often("calls = 3, rows = 10, per = \"1h\", by = \"actor\"", "");
    let start = async |actor: &str| {
        let mut command = manifest.command(&db);
        command.args(["--account", "shop", "--actor", actor]);
        Server::start(command).await
    };
    let (ann, bob) = (start("ann").await, start("bob").await);
    ann.succeed("pay_often", json!({"amount": 1, "count": 8})).await;
    ann.fail("pay_often", json!({"amount": 2, "count": 3}), "limit_reached").await;
    bob.succeed("pay_often", json!({"amount": 3, "count": 8})).await;
    ann.succeed("pay_often", json!({"amount": 4, "count": 2})).await;
    let error = ann.fail("pay_often", json!({"amount": 5, "count": 0}), "limit_reached").await;
    assert!(error["message"].as_str().unwrap().contains("3 calls and 10 rows in 3600 s for each actor"), "{error}");
    assert_eq!(paid(&db).await.len(), 18);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_agreed_to_counts_and_is_not_refused() {
    let db = payments().await;
    let rule = "[[tool.rule]]\nwhen = \"param.amount > 100\"\nthen = \"confirm\"";
    let server = pay_often("rows = 10, per = \"1h\"", rule).serve(&db).await;
    server.succeed("pay_often", json!({"amount": 1, "count": 8})).await;
    let proposal = server.propose("pay_often", json!({"amount": 101, "count": 8})).await;
    server.succeed("confirm_proposal", crate::proposals::agreement(&proposal)).await;
    assert_eq!(counted(&db).await, [["rows", "8"], ["rows", "8"]]);
    server.fail("pay_often", json!({"amount": 1, "count": 1}), "limit_reached").await;
    assert_eq!(paid(&db).await.len(), 16);
}

/// Eight different calls of two rows each over two servers, of which five may be written; the rows that were. None ends before
/// all of them wait: for the lock of their limit, or where the rows are logged. Without the lock all of them see the same sum.
async fn eight_at_once(db: &Database) -> usize {
    db.run(
        "create function social.wait_for_the_gate() returns trigger language plpgsql
             as 'begin perform pg_advisory_xact_lock_shared(7); return new; end';
         create trigger gate before insert on countersign.policy_log for each row when (new.outcome = 'rows')
             execute function social.wait_for_the_gate()",
    )
    .await;
    let gate = db.connect().await;
    gate.batch_execute("select pg_advisory_lock(7)").await.unwrap();
    let manifest = pay_often("rows = 10, per = \"1h\"", "");
    let servers = [manifest.serve(db).await, manifest.serve(db).await];
    let call = |n: usize| servers[n % 2].call("pay_often", json!({"amount": n, "count": 2}));
    let open_gate = async {
        let waiting =
            "select count(*) from pg_stat_activity where wait_event = 'advisory' and datname = current_database()";
        db.until_value(waiting, "8").await;
        gate.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
    };
    let (answers, ()) = tokio::join!(join_all((0..8).map(call)), open_gate);
    let refused = answers.iter().filter(|answer| answer["error"]["code"] == "limit_reached").count();
    let written = paid(db).await.len();
    assert_eq!(refused * 2 + written, 16, "{answers:?}");
    written
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_at_once_do_not_exceed_the_limit() {
    let db = payments().await;
    assert_eq!(eight_at_once(&db).await, 10);
    assert_eq!(records(&db).await, "8");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_lock_of_rows_they_would() {
    let db = payments().await;
    let id = "'countersign.apply_row_limit'::regproc";
    let definition = db.value(&format!("select pg_get_functiondef({id})")).await;
    let (before, after) = definition.split_once("perform pg_advisory_xact_lock").expect("the lock");
    let (_, after) = after.split_once("1668641653));").expect("its end");
    db.run(&format!("{before}{after}")).await;
    assert!(eight_at_once(&db).await > 10);
}
