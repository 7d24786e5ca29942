//! What an agent gets of a proposal or a record is bounded, and the rest comes in pages.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database};

/// The most bytes of a proposal in an answer.
const MOST: usize = 4 << 10;

async fn doses() -> Database {
    let db = database().await;
    db.run(
        "create schema ward; create table ward.dose (id int primary key, times int not null, note text not null);
         insert into ward.dose select n, n % 3, 'after a meal ' || n from generate_series(1, 90) n;
         create table ward.letter (id int primary key, body text); insert into ward.letter values (1, repeat('old ', 2000));
         select countersign.track(t) from unnest(array['ward.dose', 'ward.letter']::regclass[]) t;
         grant usage on schema ward to countersign_writer; grant select, update on all tables in schema ward to countersign_writer",
    )
    .await;
    db
}

async fn server(db: &Database) -> Server {
    let manifest = TestManifest::new(
        "[[tool]]\nname = 'set_doses'\naccess = 'write'\ntier = 'confirm'\nrows = 'some'\nmax_rows = 100\ndescription = 'It.'\n\
         undo = { irreversible = 'It.' }\n\
         before = 'select id, times, note from ward.dose where id <= $2 order by id for update'\n\
         sql = 'update ward.dose set times = $1 where id <= $2 returning id, times, note'\n\
         param = [{ name = 'times', description = 'It.' }, { name = 'last', description = 'It.' }]\n",
    );
    let mut command = manifest.command(db);
    command.args(["--profile", "write", "--execute-sql"]);
    Server::start(command).await
}

fn bytes(proposal: &Value) -> usize {
    proposal.to_string().len()
}

/// The rows of all pages, and the number of pages.
async fn pages(server: &Server, proposal: &Value, list: &str) -> (Vec<Value>, usize) {
    let (mut rows, mut after, mut count) = (Vec::new(), json!(0), 0);
    while !after.is_null() {
        let ask = json!({"proposal_id": proposal["proposal_id"], "rows": "all", "after": after});
        let page = server.succeed("get_proposal", ask).await["data"].clone();
        assert!(bytes(&page) < 100_000, "{}", bytes(&page));
        rows.extend(page.pointer(list).unwrap().as_array().unwrap().clone());
        after = page["next_after"].clone();
        count += 1;
    }
    (rows, count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_of_many_rows_is_bounded_and_read_in_pages() {
    let db = doses().await;
    let server = server(&db).await;
    let sql = json!({"sql": "update ward.dose set times = 5 where id <= 80"});
    for (tool, call) in [("set_doses", json!({"times": 5, "last": 80})), ("execute_sql", sql)] {
        let proposal = server.propose(tool, call).await;
        assert!(bytes(&proposal) <= MOST, "{tool}: {}", bytes(&proposal));
        let shown = proposal["preview"]["effects"]["rows"].as_array().unwrap();
        assert!(!shown.is_empty() && shown.len() < 80, "{tool}: {proposal}");
        assert_eq!(
            (&proposal["preview"]["effects"]["count"], &proposal["preview"]["rows_affected"]),
            (&json!(80), &json!(80))
        );
        let summary = proposal["summary"].to_string();
        assert!(summary.contains("times: ") && summary.contains("80 rows"), "{tool}: {summary}");
        assert!(proposal["left_out"].as_str().unwrap().contains("rows = \"all\""), "{proposal}");
        let again = server.succeed("get_proposal", json!({"proposal_id": proposal["proposal_id"]})).await;
        assert_eq!(again["data"]["preview"], proposal["preview"], "{tool}");
        let beyond = json!({"proposal_id": proposal["proposal_id"], "rows": "all", "after": (1_u64 << 53) - 1});
        let beyond = server.succeed("get_proposal", beyond).await["data"].clone();
        assert_eq!(
            (&beyond["preview"]["effects"]["rows"], &beyond["next_after"]),
            (&json!([]), &Value::Null),
            "{beyond}"
        );
        let (rows, _) = pages(&server, &proposal, "/preview/effects/rows").await;
        let ids: BTreeSet<i64> = rows.iter().map(|row| row["key"]["id"].as_i64().unwrap()).collect();
        assert_eq!((rows.len(), ids), (80, (1..=80).collect()), "{tool}: each row once");
        assert_eq!(rows[..shown.len()], shown[..], "{tool}");
        // What is agreed to is all of it.
        let confirm = json!({"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]});
        let written = server.succeed("confirm_proposal", confirm).await;
        assert_eq!(db.value("select count(*) from ward.dose where times = 5").await, "80");
        let receipt = json!({"correlation_id": written["meta"]["correlation_id"]});
        let record = server.succeed("get_mutation_detail", receipt.clone()).await["data"].clone();
        assert!(bytes(&record) <= MOST && record["left_out"].is_string(), "{tool}: {}", bytes(&record));
        assert!(record["rollback_action"]["reversible"].is_boolean(), "{record}");
        let (mut ids, mut after) = (BTreeSet::new(), json!(0));
        while !after.is_null() {
            let ask = json!({"correlation_id": receipt["correlation_id"], "rows": "all", "after": after});
            let page = server.succeed("get_mutation_detail", ask).await["data"].clone();
            let rows = page["effects"]["rows"].as_array().unwrap();
            ids.extend(rows.iter().map(|row| row["key"]["id"].as_i64().unwrap()));
            after = page["next_after"].clone();
        }
        assert_eq!(ids, (1..=80).collect(), "{tool}");
        db.run("update ward.dose set times = 0").await;
    }
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_texts_are_cut_and_whole_on_the_page_of_all_rows() {
    let db = doses().await;
    let server = server(&db).await;
    let text = "\u{e9}new ".repeat(3_000);
    let call = json!({"sql": "update ward.letter set body = $1 returning body", "params": [text]});
    let proposal = server.propose("execute_sql", call).await;
    assert!(bytes(&proposal) <= MOST, "{}", bytes(&proposal));
    let after = proposal["preview"]["effects"]["rows"][0]["columns"]["body"]["after"].as_str().unwrap();
    assert!(after.starts_with("\u{e9}new ") && after.contains("more characters"), "{after}");
    let all = json!({"proposal_id": proposal["proposal_id"], "rows": "all"});
    let page = server.succeed("get_proposal", all).await["data"].clone();
    assert_eq!(page["params"]["params"], json!([text]));
    // The ledger keeps the first 500 characters of a value with its effects.
    let longer = page.pointer("/preview/effects/rows/0/columns/body/after").unwrap().as_str().unwrap();
    assert!(longer.chars().count() >= 500 && text.starts_with(&longer[..500]), "{longer}");
    // A small proposal is whole.
    let small = server.propose("execute_sql", json!({"sql": "update ward.dose set times = 9 where id = 1"})).await;
    assert_eq!(
        (&small["left_out"], &small["preview"]["effects"]["rows"][0]["columns"]["times"]["after"]),
        (&Value::Null, &json!("9"))
    );
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_without_effects_come_in_pages_too() {
    let db = doses().await;
    db.run("select countersign.untrack('ward.dose')").await;
    let server = server(&db).await;
    db.run("update ward.dose set note = repeat(note, 60)").await;
    let proposal = server.propose("set_doses", json!({"times": 5, "last": 80})).await;
    assert!(bytes(&proposal) <= MOST, "{}", bytes(&proposal));
    let (before, count) = pages(&server, &proposal, "/preview/before").await;
    assert!(before.len() == 80 && count > 1, "{} rows on {count} pages", before.len());
    let (after, _) = pages(&server, &proposal, "/preview/after").await;
    assert!(after.iter().all(|row| row["times"] == 5), "{after:?}");
    server.close().await;
}
