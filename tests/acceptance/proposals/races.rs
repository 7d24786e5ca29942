//! Many approvals at once, in one server and in several: one execution, one answer.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use testkit::{Server, database};

use super::{PRICE, agreement, approve, id, price, state};

#[tokio::test(flavor = "multi_thread")]
async fn twelve_confirmations_at_once_over_three_servers_execute_once_with_equal_answers() {
    let db = database().await;
    let servers = join_all((0..3).map(|_| Server::studio(&db))).await;
    for round in 0..5 {
        let proposal = servers[0].propose("upsert_package", price(&format!("{}", 150 + round))).await;
        let confirms = (0..12).map(|number| servers[number % 3].succeed("confirm_proposal", agreement(&proposal)));
        let answers = join_all(confirms).await;
        let receipts: BTreeSet<String> = answers.iter().map(|it| it["meta"]["correlation_id"].to_string()).collect();
        assert_eq!(receipts.len(), 1, "{answers:?}");
        let results: BTreeSet<String> = answers.iter().map(|it| it["data"].to_string()).collect();
        assert_eq!(results.len(), 1, "{answers:?}");
        let records = db.rows("select status from countersign.mutation order by id desc limit 2").await;
        assert_eq!(records[0], ["success"]);
        assert_eq!(db.value("select count(*) from countersign.mutation").await, (round + 1).to_string());
    }
    for server in servers {
        server.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_confirmation_and_a_rejection_at_once_exactly_one_applies() {
    let db = database().await;
    let server = Server::studio(&db).await;
    for round in 0..10 {
        let proposal = server.propose("upsert_package", price(&format!("{}", 150 + round))).await;
        let reject = json!({"proposal_id": proposal["proposal_id"]});
        let (confirmed, rejected) =
            tokio::join!(server.call("confirm_proposal", agreement(&proposal)), server.call("reject_proposal", reject));
        let outcome = state(&db, &proposal).await;
        let both = (confirmed["success"] == true, rejected["success"] == true);
        let expected = if outcome == "executed" { (true, false) } else { (false, true) };
        assert_eq!(both, expected, "{outcome}: {confirmed} {rejected}");
        let is_written = db.value(PRICE).await == format!("{}.00", 150 + round);
        assert_eq!(is_written, outcome == "executed");
    }
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_servers_execute_an_approved_proposal_once() {
    let db = database().await;
    let servers = join_all((0..3).map(|_| async {
        let mut command = Server::studio_command(&db);
        command.args(["--profile", "admin", "--execute-sql=any"]);
        Server::start(command).await
    }))
    .await;
    let proposals: Vec<Value> = join_all((0..12).map(|number| {
        let sql = format!("insert into social.tweet (account_id, text) values ('default', 'approved {number}')");
        servers[number % 3].propose("execute_sql", json!({"sql": sql}))
    }))
    .await;
    for proposal in &proposals {
        assert_eq!(approve(&db, proposal).await, "done");
    }
    db.first_value("select 1 where (select count(*) from countersign.proposal where status = 'executed') = 12").await;
    let written = "select count(*), count(distinct text) from social.tweet where text like 'approved %'";
    assert_eq!(db.rows(written).await, [["12", "12"]]);
    let records = "select status, count(*) from countersign.mutation group by status";
    assert_eq!(db.rows(records).await, [["success", "12"]], "nobody else even tried");
    for proposal in &proposals {
        assert!(!id(proposal).is_empty());
    }
    for server in servers {
        server.close().await;
    }
}
