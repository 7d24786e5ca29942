//! Writes that wait for an approval: exactly the approved effects happen, once. Questions to a client's user are in
//! `elicitation`, the command line in `proposals_cli`.

mod agreed_rows;
mod altered;
mod bounded;
mod crashes;
mod definitions;
mod faces;
mod facts;
mod further_rows;
mod logged;
mod net;
mod people;
mod races;
mod registry;
mod rows;
mod servers;
mod stale;
mod states;
mod stored;
mod waits;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Database, Server, UserAnswer, database};

/// A server with `execute_sql` whose user closes each question, and the newest of them.
async fn server_with_questions(db: &Database) -> (Server, Arc<Mutex<String>>) {
    let asked = Arc::new(Mutex::new(String::new()));
    let mut command = Server::bare_command(db);
    command.args(["--profile", "admin", "--execute-sql", "--execute-sql-max-rows", "1000"]);
    (Server::with_user(command, question_to(&asked)).await, asked)
}

/// A user who closes each question, and leaves the newest of them here.
fn question_to(asked: &Arc<Mutex<String>>) -> impl Fn(&str) -> Option<UserAnswer> + Send + Sync + 'static {
    let asked = Arc::clone(asked);
    move |question| {
        question.clone_into(&mut asked.lock().unwrap());
        Some(UserAnswer::Cancel)
    }
}

/// The arguments that give package 1 another price.
pub(crate) fn price(price: &str) -> Value {
    let package = json!({"package_id": 1, "title": "Portrait, one hour", "duration_minutes": 60,
        "description": "One person, one backdrop, ten edited pictures."});
    let mut package = package.as_object().unwrap().clone();
    package.insert("price".to_owned(), serde_json::from_str(price).unwrap());
    Value::Object(package)
}

pub(crate) const PRICE: &str = "select price from studio.package where package_id = 1";

/// What confirms it.
pub(crate) fn agreement(proposal: &Value) -> Value {
    json!({"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]})
}

pub(crate) fn id(proposal: &Value) -> &str {
    proposal["proposal_id"].as_str().unwrap()
}

/// Its state in the ledger.
pub(crate) async fn state(db: &Database, proposal: &Value) -> String {
    db.value(&format!("select status from countersign.proposal where proposal_id = '{}'", id(proposal))).await
}

/// A person with a login that may, approves it.
pub(crate) async fn approve(db: &Database, proposal: &Value) -> String {
    decide_as_person(db, proposal, "confirmed", "reviewer").await
}

/// A person with a login that may, decides on it in the name of `who`; what the ledger says.
pub(crate) async fn decide_as_person(db: &Database, proposal: &Value, outcome: &str, who: &str) -> String {
    let (id, digest) = (id(proposal), proposal["digest"].as_str().unwrap());
    let nonce = db.value(&format!("select countersign.begin_decision('{id}')")).await;
    let decide =
        format!("select countersign.decide_as_reviewer('{id}', '{outcome}', '{who}', '{digest}', null, '{nonce}')");
    db.value(&decide).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_proposed_shown_confirmed_and_only_then_made_with_its_record() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let shown = async || server.query(PRICE).await[0]["price"].to_string();
    assert_eq!(shown().await, "120.00");
    let asked = Instant::now();
    let proposal = server.propose("upsert_package", price("150.00")).await;
    assert!(asked.elapsed() < Duration::from_secs(20), "it waits for nobody");
    assert_eq!((&proposal["action"], &proposal["tier"]), (&json!("upsert_package"), &json!("confirm")));
    assert_eq!(proposal["preview"]["rows_affected"], 1);
    assert_eq!(proposal["preview"]["before"][0]["price"].to_string(), "120.00");
    assert_eq!(proposal["preview"]["after"][0]["price"].to_string(), "150.00", "every digit");
    assert_eq!(proposal["preview"]["rollback"]["undo_tool"], "undo_mutation");
    assert_eq!(proposal["digest"].as_str().unwrap().len(), 64);
    assert!(proposal["description"].as_str().unwrap().contains("1 row"), "{proposal}");
    assert_eq!(db.value(PRICE).await, "120.00", "nothing was written");
    assert_eq!(db.value("select count(*) from countersign.mutation").await, "0", "and nothing recorded");
    assert_eq!(shown().await, "120.00");

    let done = server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!((db.value(PRICE).await, shown().await), ("150.00".to_owned(), "150.00".to_owned()), "nothing is stale");
    assert_eq!((&done["data"]["status"], &done["data"]["action"]), (&json!("executed"), &json!("upsert_package")));
    assert_eq!(done["data"]["result"]["price"].to_string(), "150.00");
    assert_eq!(done["meta"]["rollback"]["undo_params"]["correlation_id"], done["meta"]["correlation_id"]);
    let receipt = done["meta"]["correlation_id"].as_str().unwrap();
    let stored = server.succeed("get_proposal", json!({"proposal_id": proposal["proposal_id"]})).await["data"].clone();
    assert_eq!((&stored["status"], &stored["correlation_id"]), (&json!("executed"), &json!(receipt)));
    assert_eq!((&stored["decided_by"], &stored["decided_via"]), (&json!("default"), &json!("confirm_proposal")));
    let record = db
        .rows(&format!(
            "select status, rows_affected, approval->>'proposal_id', approval->>'digest', approval->>'decided_via', \
             approval->>'decided_login' from countersign.mutation where correlation_id = '{receipt}'"
        ))
        .await;
    let digest = proposal["digest"].as_str().unwrap();
    assert_eq!(record, [["success", "1", id(&proposal), digest, "confirm_proposal", "countersign_writer"]]);

    // A second confirmation answers the same and changes nothing.
    let again = server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!((&again["data"], &again["meta"]["correlation_id"]), (&done["data"], &json!(receipt)));
    assert_eq!(db.value("select count(*) from countersign.mutation").await, "1");
    // And the call itself is a duplicate of what was executed, not a new proposal.
    let duplicate = server.succeed("upsert_package", price("150.00")).await;
    assert_eq!(duplicate["data"]["original_correlation_id"], receipt, "{duplicate}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeating_a_waiting_call_gives_the_same_proposal_and_repeating_a_reversed_call_a_new_proposal() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let first = server.propose("upsert_package", price("150")).await;
    assert_eq!(server.propose("upsert_package", price("150")).await, first);
    let other = server.propose("upsert_package", price("160")).await;
    assert_ne!(other["proposal_id"], first["proposal_id"]);
    let keyed = |key: &str| {
        let mut arguments = price("150");
        arguments["idempotency_key"] = json!(key);
        arguments
    };
    let third = server.propose("upsert_package", keyed("a")).await;
    assert_ne!(third["proposal_id"], first["proposal_id"], "a key names one intent");
    server.succeed("confirm_proposal", agreement(&third)).await;
    server
        .fail(
            "upsert_package",
            {
                let mut reused = keyed("a");
                reused["title"] = json!("Another");
                reused
            },
            "idempotency_key_reused",
        )
        .await;
    // The undo call is a proposal as well; once it is made, the first call counts no more.
    let undo = server.propose("upsert_package", price("120.00")).await;
    server.succeed("confirm_proposal", agreement(&undo)).await;
    let again = server.propose("upsert_package", price("150")).await;
    server.succeed("confirm_proposal", agreement(&again)).await;
    assert_eq!(db.value(PRICE).await, "150.00");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_reviewer_with_the_role_approves_and_a_server_executes() {
    // No tool, no argument and no login of a server approves.
    let db = database().await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("delete_package", json!({"package_id": 3})).await;
    assert_eq!(proposal["tier"], "approve");
    let error = server.fail("confirm_proposal", agreement(&proposal), "not_permitted").await;
    assert!(error["message"].as_str().unwrap().contains("person"), "{error}");
    for extra in [json!({"approved": true}), json!({"params": {"package_id": 2}}), json!({"decided_by": "reviewer"})] {
        let mut arguments = agreement(&proposal);
        arguments.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        server.fail("confirm_proposal", arguments, "invalid_params").await;
    }
    // The server's login cannot approve either, not even by calling the function.
    let client = testkit::connect(&db.writer_url()).await;
    let (id, digest) = (id(&proposal), proposal["digest"].as_str().unwrap());
    for attempt in [
        format!("select countersign.begin_decision('{id}')"),
        format!("select countersign.decide_as_reviewer('{id}', 'confirmed', 'reviewer', '{digest}', null, '')"),
        format!(
            "select countersign.decide_pending('{id}', 'confirmed', 'reviewer', 'reviewer', 'command_line', '{digest}', null, null, null)"
        ),
        format!("update countersign.proposal set status = 'confirmed' where proposal_id = '{id}'"),
    ] {
        let refused = client.simple_query(&attempt).await.unwrap_err();
        assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("42501"), "{attempt}");
    }
    let decided = format!(
        "select countersign.decide_proposal('{id}', 'default', 'confirmed', 'elicitation', '{digest}', null, null, null)"
    );
    let answer = client.query_one(&decided, &[]).await.unwrap();
    assert_eq!(answer.get::<_, String>(0), "not_yours");
    // The proposer cannot be the reviewer.
    assert_eq!(decide_as_person(&db, &proposal, "confirmed", "default").await, "proposer");
    assert_eq!(state(&db, &proposal).await, "pending");

    assert_eq!(approve(&db, &proposal).await, "done");
    db.first_value(&format!("select 1 from countersign.proposal where proposal_id = '{id}' and status = 'executed'"))
        .await;
    assert_eq!(db.value("select count(*) from studio.package where package_id = 3").await, "0");
    let decision = db
        .rows(&format!(
            "select p.decided_by, p.decided_via, a.approval->>'decided_by', a.status, a.tool_name, a.account_id \
        from countersign.proposal p join countersign.mutation a using (correlation_id) where p.proposal_id = '{id}'"
        ))
        .await;
    assert_eq!(decision, [["reviewer", "command_line", "reviewer", "success", "delete_package", "default"]]);
    assert_eq!(approve(&db, &proposal).await, "executed");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admins_free_statement_does_not_run_before_a_reviewer_approves_it() {
    let db = database().await;
    let mut command = Server::studio_command(&db);
    command.args(["--profile", "admin", "--execute-sql=any"]);
    let server = Server::start(command).await;
    let next = "select nextval(pg_get_serial_sequence('social.tweet', 'id'))";
    let before: i64 = db.value(next).await.parse().unwrap();
    // Effects beyond a rollback, and data that an agent should not read.
    let taking = server.propose("execute_sql", json!({"sql": next})).await;
    assert_eq!(db.value(next).await, (before + 1).to_string(), "the statement did not run");
    assert_eq!(taking["preview"].get("rows_affected"), None);
    assert!(taking["preview"]["warnings"][0].as_str().unwrap().contains("not tried"), "{taking}");
    let broad =
        server.propose("execute_sql", json!({"sql": "delete from social.tweet_like where $1", "params": [true]})).await;
    assert_eq!(broad["preview"]["result"]["tables"], json!([{"table": "social.tweet_like", "written": true}]));
    assert!(broad["preview"]["result"]["estimated_rows"].as_u64().unwrap() > 1, "{broad}");
    let secret = server.propose("execute_sql", json!({"sql": "select handle from social.account"})).await;
    assert!(!secret.to_string().contains("anaferreira"), "no row is shown before somebody agrees: {secret}");
    // An error of the statement's own values is not shown either: it did not run.
    let quoting = "select cast(handle as integer) from social.account";
    assert!(!server.propose("execute_sql", json!({"sql": quoting})).await.to_string().contains("anaferreira"));
    server.fail("execute_sql", json!({"sql": "selec 1"}), "sql_error").await;
    server.fail("execute_sql", json!({"sql": ""}), "invalid_params").await;
    server.fail("execute_sql", json!({"sql": "select $1::int", "params": ["x"]}), "invalid_params").await;

    assert_eq!(approve(&db, &broad).await, "done");
    let executed = format!(
        "select correlation_id from countersign.proposal where proposal_id = '{}' and status = 'executed'",
        id(&broad)
    );
    db.first_value(&executed).await;
    assert_eq!(db.value("select count(*) from social.tweet_like").await, "0");
    server.close().await;
}
