//! The user of a client is asked before a write of tier `confirm` (MCP elicitation).

mod again;
mod agents;
mod changed_tools;
mod page;
mod question;
mod unanswered;
mod within;

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::{Database, Server, UserAnswer};

/// The price of the first package becomes 99.
fn change() -> Value {
    json!({
        "package_id": 1, "title": "Portrait, one hour", "description": "One person, one backdrop, ten edited pictures.",
        "price": 99, "duration_minutes": 60,
    })
}

/// The price of the first package, which is 120.00 until an approval.
async fn price(db: &Database) -> String {
    db.value("select price from studio.package where package_id = 1").await
}

/// State, way and reason of every proposal, the oldest first.
async fn proposals(db: &Database) -> Vec<Vec<String>> {
    let told = "regexp_replace(decision_reason, '^The client accepted [0-9]{1,3} ms after it was asked.$', 'at once')";
    db.rows(&format!("select status, decided_via, {told} from countersign.proposal order by id")).await
}

/// One proposal that waits, and nothing was written.
async fn assert_pending(db: &Database) {
    assert_eq!(proposals(db).await, [["pending", "NULL", "NULL"]]);
    assert_eq!(price(db).await, "120.00");
    assert_eq!(db.value("select count(*) from countersign.mutation").await, "0");
}

/// How often something was written.
async fn successes(db: &Database) -> String {
    db.value("select count(*) from countersign.mutation where status = 'success'").await
}

/// A client whose user always says this, and the questions that they were asked.
pub(crate) async fn server_with_user(db: &Database, says: Option<UserAnswer>) -> (Server, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let user = move |question: &str| {
        heard.lock().unwrap().push(question.to_owned());
        says
    };
    (Server::with_user(Server::studio_command(db), user).await, asked)
}

/// Proposes the change with a client that cannot ask; the arguments of `confirm_proposal`.
async fn propose(db: &Database) -> Value {
    let proposal = Server::studio(db).await.propose("upsert_package", change()).await;
    json!({"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]})
}

/// The answer of a tool, without MCP around it.
fn envelope(answer: &Value) -> &Value {
    &answer["result"]["structuredContent"]
}
