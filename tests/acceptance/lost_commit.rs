//! The connection is lost at COMMIT: the answer is the truth, whatever side of it the loss was on.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{ConnectionFault, Database, FaultPoint, Proxy, Server, database};
use tokio::sync::oneshot;

/// A server that reaches its database through a proxy.
async fn behind_a_proxy() -> (Database, Proxy, Server) {
    let db = database().await;
    let proxy = Proxy::before(&db);
    let server = Server::start(Server::command_through(&proxy, &db)).await;
    (db, proxy, server)
}

async fn records(db: &Database) -> Vec<Vec<String>> {
    db.rows("select status, coalesce(error_code, '') from countersign.mutation order by id").await
}

async fn posted(db: &Database, text: &str) -> Vec<Vec<String>> {
    db.rows(&format!("select id, text from social.tweet where text = '{text}'")).await
}

/// The proxy has done what it was armed for: otherwise a test would prove nothing.
async fn done(fired: oneshot::Receiver<()>) {
    let fired = tokio::time::timeout(Duration::from_secs(1), fired).await;
    fired.expect("there was a COMMIT").expect("the proxy met it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_before_commit_has_written_nothing_and_the_call_can_be_repeated() {
    let (db, proxy, server) = behind_a_proxy().await;
    let before = db.social().await;
    let call = json!({"text": "cut before"});

    let fired = proxy.arm(FaultPoint::BeforeCommit, ConnectionFault::Cut);
    let envelope = server.call("post_tweet", call.clone()).await;
    done(fired).await;
    let error = &envelope["error"];
    assert_eq!((&error["code"], &error["retryable"]), (&json!("in_doubt_aborted"), &json!(true)), "{envelope}");
    assert_eq!(db.social().await, before);
    assert_eq!(records(&db).await, [["failure", "in_doubt_aborted"]]);
    let receipt = json!({"correlation_id": envelope["meta"]["correlation_id"]});
    let detail = server.succeed("get_mutation_detail", receipt).await;
    assert_eq!(detail["data"]["status"], "failure");

    let again = server.succeed("post_tweet", call).await;
    assert_eq!(again["data"]["duplicate"], Value::Null);
    assert_eq!(posted(&db, "cut before").await, [[again["data"]["id"].to_string(), "cut before".to_owned()]]);
    assert_eq!(records(&db).await, [["failure", "in_doubt_aborted"], ["success", ""]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_after_commit_is_answered_as_the_success_that_it_was() {
    let (db, proxy, server) = behind_a_proxy().await;
    let call = json!({"text": "cut after"});
    // What an answer to this tool looks like when nothing is lost.
    let model = server.succeed("post_tweet", json!({"text": "not cut"})).await;

    let fired = proxy.arm(FaultPoint::AfterCommit, ConnectionFault::Cut);
    let envelope = server.succeed("post_tweet", call.clone()).await;
    done(fired).await;
    let rows = posted(&db, "cut after").await;
    assert_eq!(rows, [[envelope["data"]["id"].to_string(), "cut after".to_owned()]]);
    let (meta, model) = (&envelope["meta"], &model["meta"]);
    assert_eq!(meta["rows_affected"], 1);
    let key = format!("undo:{}", meta["correlation_id"].as_str().unwrap());
    let undo = json!({"tweet_id": envelope["data"]["id"], "idempotency_key": key});
    assert_eq!(meta["rollback"]["undo_params"], undo);
    for same in ["reversible", "undo_tool", "note"] {
        assert_eq!(meta["rollback"][same], model["rollback"][same]);
    }
    let keys = |meta: &Value| meta.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(meta), keys(model));

    let duplicate = server.succeed("post_tweet", call).await;
    assert_eq!(duplicate["data"]["original_correlation_id"], meta["correlation_id"]);
    assert_eq!(duplicate["data"]["cached_result"], envelope["data"]);
    assert_eq!(posted(&db, "cut after").await, rows);
    assert_eq!(records(&db).await, [["success", ""], ["success", ""]], "a duplicate from memory has no record");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_whose_commit_is_cut_is_still_a_failure() {
    let (db, proxy, server) = behind_a_proxy().await;
    for (when, code) in [(FaultPoint::AfterFailure, "sql_error"), (FaultPoint::BeforeFailure, "in_doubt_aborted")] {
        let fired = proxy.arm(when, ConnectionFault::Cut);
        server.fail("like_tweet", json!({"tweet_id": 999_999}), code).await;
        done(fired).await;
    }
    assert_eq!(records(&db).await, [["failure", "sql_error"], ["failure", "in_doubt_aborted"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_outcome_is_reported_as_unknown_and_correctly_once_readable() {
    // This takes the 10 s for which the server tries to read the outcome.
    let (db, proxy, server) = behind_a_proxy().await;
    let call = json!({"text": "who knows"});

    let fired = proxy.arm(FaultPoint::AfterCommit, ConnectionFault::CutAndRefuse);
    let envelope = server.call("post_tweet", call.clone()).await;
    done(fired).await;
    let error = &envelope["error"];
    assert_eq!((&error["code"], &error["retryable"]), (&json!("commit_outcome_unknown"), &json!(true)), "{envelope}");

    proxy.accept_connections();
    let id = &envelope["meta"]["correlation_id"];
    let record = server.succeed("get_mutation_detail", json!({"correlation_id": id})).await;
    assert_eq!(record["data"]["status"], "success");
    let rows = posted(&db, "who knows").await;
    assert_eq!(rows, [[record["data"]["result"]["id"].to_string(), "who knows".to_owned()]]);
    let duplicate = server.succeed("post_tweet", call).await;
    assert_eq!(&duplicate["data"]["original_correlation_id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_with_a_lost_answer_does_not_block_the_next_call() {
    // The record is there, the server does not know, and PostgreSQL cannot be asked for a moment.
    let (db, proxy, _) = behind_a_proxy().await;
    let mut command = Server::command_through(&proxy, &db);
    command.arg("--durable-admission");
    let server = Server::start(command).await;
    let fired = proxy.arm(FaultPoint::AfterAdmission, ConnectionFault::CutAndRefuse);
    let call = json!({"text": "admitted"});
    let back = async {
        proxy.until_refused().await;
        assert_eq!(records(&db).await, [["pending", ""]]);
        proxy.accept_connections();
    };
    let (envelope, ()) = tokio::join!(server.call("post_tweet", call.clone()), back);
    done(fired).await;
    assert_eq!(envelope["error"]["retryable"], true, "{envelope}");
    assert_eq!(records(&db).await, [["failure", "in_doubt_aborted"]]);
    assert_eq!(server.succeed("post_tweet", call).await["data"]["duplicate"], Value::Null);
    assert_eq!(posted(&db, "admitted").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_commit_hangs_an_identical_call_waits_and_then_is_a_duplicate() {
    let (db, proxy, server) = behind_a_proxy().await;
    let other = Server::on(&db).await;
    let call = json!({"text": "frozen"});
    let frozen = proxy.arm(FaultPoint::BeforeCommit, ConnectionFault::Freeze);
    let meanwhile = async {
        frozen.await.expect("there was a COMMIT");
        let thaw = async {
            // It has asked, and waits without a transaction.
            let asked = "select 1 from pg_stat_activity \
                         where query like '%countersign.admit(%' and state = 'idle' and pid <> pg_backend_pid()";
            db.first_value(&format!("{asked} and datname = current_database()")).await;
            assert_eq!(posted(&db, "frozen").await.len(), 0);
            proxy.thaw();
        };
        tokio::join!(other.succeed("post_tweet", call.clone()), thaw).0
    };
    let (first, second) = tokio::join!(server.succeed("post_tweet", call.clone()), meanwhile);
    assert_eq!(second["data"]["original_correlation_id"], first["meta"]["correlation_id"]);
    assert_eq!(records(&db).await, [["success", ""], ["duplicate", ""]]);
    assert_eq!(posted(&db, "frozen").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_answer_to_a_commit_hangs_an_identical_call_is_a_duplicate_at_once() {
    let (db, proxy, server) = behind_a_proxy().await;
    let other = Server::on(&db).await;
    let call = json!({"text": "frozen"});
    let frozen = proxy.arm(FaultPoint::AfterCommit, ConnectionFault::Freeze);
    let meanwhile = async {
        frozen.await.expect("there was a COMMIT");
        let second = other.succeed("post_tweet", call.clone()).await;
        proxy.thaw();
        second
    };
    let (first, second) = tokio::join!(server.succeed("post_tweet", call.clone()), meanwhile);
    assert_eq!(second["data"]["original_correlation_id"], first["meta"]["correlation_id"]);
    assert_eq!(second["data"]["cached_result"], first["data"]);
    assert_eq!(posted(&db, "frozen").await.len(), 1);
}
