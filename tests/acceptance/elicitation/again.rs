//! Protocol 2026-07-28: the response contains the question. The client repeats the call with the user's decision and the state
//! that the server gave it. Both are controlled by the attacker.

use serde_json::{Value, json};
use testkit::{Database, RawStdioServer, Server, database};
use tokio::process::Command;

use super::{assert_pending, change, envelope, price, proposals, propose, successes};

/// A server that has been asked nothing yet, and the ids of the requests to it.
pub(super) struct Session {
    server: RawStdioServer,
    next: u32,
}

impl Session {
    pub(super) fn new(command: Command) -> Self {
        Self { server: RawStdioServer::without_session(command), next: 0 }
    }

    /// Calls a tool with what else belongs into the parameters; the whole answer.
    async fn call_with(&mut self, tool: &str, arguments: &Value, elicitation: bool, more: Value) -> Value {
        let capabilities = if elicitation { json!({"elicitation": {}}) } else { json!({}) };
        let mut params = json!({"name": tool, "arguments": arguments, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }});
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        self.next += 1;
        self.server.request(self.next, "tools/call", params).await
    }

    /// The first call: it must be answered by the one question. Gives the question, and what is to be carried.
    pub(super) async fn asked(&mut self, tool: &str, arguments: &Value) -> (Value, Value) {
        let answer = self.call_with(tool, arguments, true, json!({})).await;
        let result = &answer["result"];
        assert_eq!(result["resultType"], "input_required", "{answer}");
        let questions = result["inputRequests"].as_object().unwrap();
        assert_eq!((questions.len(), result.get("structuredContent")), (1, None), "{answer}");
        assert_eq!(questions["agreement"]["method"], "elicitation/create", "{answer}");
        (questions["agreement"]["params"].clone(), result["requestState"].clone())
    }

    /// Repeats the call.
    pub(super) async fn again(&mut self, tool: &str, arguments: &Value, state: &Value, action: &str) -> Value {
        if action == "decline" {
            tokio::time::sleep(testkit::READING_TIME).await;
        }
        let more = json!({"requestState": state, "inputResponses": {"agreement": {"action": action}}});
        self.call_with(tool, arguments, true, more).await
    }
}

fn session(db: &Database) -> Session {
    Session::new(Server::studio_command(db))
}

/// That the state was not taken at all.
fn assert_refused(answer: &Value) {
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("requestState") && message.contains("nothing was written"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_repeated_call_with_an_acceptance_executes_and_the_acceptance_applies_once() {
    let db = database().await;
    let mut session = session(&db);
    let (question, state) = session.asked("upsert_package", &change()).await;
    assert_eq!(question["requestedSchema"], json!({"type": "object", "properties": {}}));
    assert!(question["message"].as_str().unwrap().contains("price: 120.00 → 99.00"), "{question}");
    assert_pending(&db).await;

    let answer = session.again("upsert_package", &change(), &state, "accept").await;
    assert_eq!((&answer["result"]["resultType"], &answer["result"]["isError"]), (&json!("complete"), &json!(false)));
    let data = &envelope(&answer)["data"];
    assert_eq!((&data["price"], price(&db).await), (&json!("99.00"), "99.00".into()), "I-2: {answer}");
    assert_eq!(proposals(&db).await, [["executed", "elicitation", "at once"]]);
    let approval = "select a.correlation_id, a.approval->>'decided_via' from countersign.mutation a";
    let receipt = envelope(&answer)["meta"]["correlation_id"].as_str().unwrap();
    assert_eq!(db.rows(approval).await, [[receipt, "elicitation"]]);

    // Replayed, also after the row is as it was.
    db.run("update studio.package set price = 120 where package_id = 1").await;
    for action in ["accept", "decline"] {
        let answer = session.again("upsert_package", &change(), &state, action).await;
        assert_eq!(envelope(&answer)["error"]["code"], "proposal_closed", "{answer}");
        assert_eq!((price(&db).await, successes(&db).await), ("120.00".into(), "1".into()));
    }
    assert_eq!(proposals(&db).await, [["executed", "elicitation", "at once"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_ends_the_proposal_and_a_later_acceptance_is_too_late() {
    let db = database().await;
    let mut session = session(&db);
    let (_, state) = session.asked("upsert_package", &change()).await;
    // I-4: a closed question is no refusal, and is not asked again in this call.
    let answer = session.again("upsert_package", &change(), &state, "cancel").await;
    assert_eq!(envelope(&answer)["data"]["requires_approval"], true, "{answer}");
    assert_eq!(proposals(&db).await[0][0], "pending");
    for action in ["decline", "accept"] {
        let answer = session.again("upsert_package", &change(), &state, action).await;
        assert_eq!(envelope(&answer)["error"]["code"], "proposal_rejected", "{answer}");
    }
    assert_eq!(proposals(&db).await, [["rejected", "elicitation", "declined by the user"]]);
    assert_eq!((price(&db).await, successes(&db).await), ("120.00".into(), "0".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_request_state_or_that_of_another_account_is_refused() {
    // A test of crates/mcp changes every byte of it.
    let db = database().await;
    let mut session = session(&db);
    let (_, state) = session.asked("upsert_package", &change()).await;
    let text = state.as_str().unwrap();
    let (start, end) = text.split_at(text.len() - 1);
    let forged = [
        format!("{start}{}", if end == "A" { "B" } else { "A" }),
        format!("{}{}", if text.starts_with('A') { "B" } else { "A" }, &text[1..]),
        start.to_owned(),
        format!("{text}A"),
        String::new(),
        "{\"proposal_id\":\"..\"}".to_owned(),
    ];
    for forged in forged {
        let answer = session.again("upsert_package", &change(), &json!(forged), "accept").await;
        assert_refused(&answer);
    }

    // Another tool, even with the right arguments of its own.
    let booking = json!({"package_id": 1, "customer": "Ana", "starts_at": "2099-06-03T12:00:00+01:00"});
    assert_refused(&session.again("create_booking", &booking, &state, "accept").await);
    let one = db.rows("select proposal_id, digest from countersign.proposal").await.remove(0);
    let confirm = json!({"proposal_id": one[0], "digest": one[1]});
    assert_refused(&session.again("confirm_proposal", &confirm, &state, "accept").await);

    // Another account, whose server has the same key and the same tools.
    let mut command = Server::studio_command(&db);
    command.env("COUNTERSIGN_ACCOUNT", "harbor.frames");
    let answer = Session::new(command).again("upsert_package", &change(), &state, "accept").await;
    assert_refused(&answer);

    assert_pending(&db).await;
    // It was good all the time.
    let answer = session.again("upsert_package", &change(), &state, "accept").await;
    assert_eq!(envelope(&answer)["success"], true, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acceptance_is_valid_only_for_the_arguments_that_were_shown() {
    let db = database().await;
    let mut session = session(&db);
    let (_, state) = session.asked("upsert_package", &change()).await;
    let (mut cheaper, mut other, mut keyed) = (change(), change(), change());
    cheaper["price"] = json!(1);
    other["package_id"] = json!(2);
    keyed["idempotency_key"] = json!("another-intent");
    for arguments in [cheaper, other, keyed] {
        for action in ["accept", "decline"] {
            let answer = session.again("upsert_package", &arguments, &state, action).await;
            assert_eq!(envelope(&answer)["error"]["code"], "invalid_params", "{answer}");
            let message = envelope(&answer)["error"]["message"].as_str().unwrap();
            assert!(message.contains("does not match the call"), "{message}");
            assert_pending(&db).await;
        }
    }
    // Spelling is none of them.
    let mut spelled = change();
    spelled["package_id"] = json!(1.0);
    let answer = session.again("upsert_package", &spelled, &state, "accept").await;
    assert_eq!(envelope(&answer)["success"], true, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_an_answer_is_asked_again_about_the_same_proposal() {
    let db = database().await;
    let mut session = session(&db);
    let (first, state) = session.asked("upsert_package", &change()).await;
    let yes = json!({"action": "accept"});
    for more in [
        json!({}),
        json!({"requestState": state}),
        json!({"requestState": state, "inputResponses": {}}),
        json!({"requestState": state, "inputResponses": {"another": yes}}),
        // An unsolicited answer.
        json!({"inputResponses": {"agreement": yes}}),
    ] {
        let answer = session.call_with("upsert_package", &change(), true, more).await;
        assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
        assert_eq!(answer["result"]["inputRequests"]["agreement"]["params"], first, "{answer}");
        assert_pending(&db).await;
    }
    for wrong in [json!({"action": "yes"}), json!({}), json!("accept"), json!(null)] {
        let more = json!({"requestState": state, "inputResponses": {"agreement": wrong}});
        let answer = session.call_with("upsert_package", &change(), true, more).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_pending(&db).await;
    }
    // The oldest of the states is as good as the newest.
    let answer = session.again("upsert_package", &change(), &state, "accept").await;
    assert_eq!(envelope(&answer)["success"], true, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_cannot_ask_gets_the_proposal() {
    let db = database().await;
    let mut session = session(&db);
    let answer = session.call_with("upsert_package", &change(), false, json!({})).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert_eq!(envelope(&answer)["data"]["requires_approval"], true, "{answer}");
    assert_pending(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_is_asked_even_when_the_agent_confirms() {
    for (action, status) in [("accept", "executed"), ("decline", "rejected")] {
        let db = database().await;
        let confirm = propose(&db).await;
        let mut session = session(&db);
        let (question, state) = session.asked("confirm_proposal", &confirm).await;
        assert!(question["message"].as_str().unwrap().contains("price: 120.00 → 99.00"), "{question}");
        assert_pending(&db).await;
        let mut other = confirm.clone();
        other["digest"] = json!("0".repeat(64));
        let answer = session.again("confirm_proposal", &other, &state, "accept").await;
        assert_eq!(envelope(&answer)["error"]["code"], "invalid_params", "{answer}");
        assert_pending(&db).await;
        session.again("confirm_proposal", &confirm, &state, action).await;
        assert_eq!(db.rows("select status, decided_via from countersign.proposal").await, [[status, "elicitation"]]);
        // Replayed.
        let answer = session.again("confirm_proposal", &confirm, &state, "accept").await;
        assert_eq!(envelope(&answer)["success"], false, "{answer}");
        assert_eq!(successes(&db).await, if action == "accept" { "1" } else { "0" });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_may_come_to_another_server_of_the_database() {
    let db = database().await;
    let (_, state) = session(&db).asked("upsert_package", &change()).await;
    let answer = session(&db).again("upsert_package", &change(), &state, "accept").await;
    assert_eq!((&envelope(&answer)["success"], price(&db).await), (&json!(true), "99.00".into()), "{answer}");

    // A server of another ledger refuses it, although that ledger is a copy with the same keys.
    let other = database().await;
    let answer = session(&other).again("upsert_package", &change(), &state, "accept").await;
    assert_refused(&answer);
    assert_eq!((price(&other).await, successes(&other).await), ("120.00".into(), "0".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_answers_at_once_exactly_one_is_executed() {
    let db = database().await;
    let (mut one, mut two) = (session(&db), session(&db));
    let (_, state) = one.asked("upsert_package", &change()).await;
    two.asked("upsert_package", &change()).await;
    let mut blocker = db.connect().await;
    let lock = blocker.transaction().await.unwrap();
    lock.batch_execute("select from studio.package where package_id = 1 for update").await.unwrap();
    let arguments = change();
    let release = async {
        // One of them is at the row, so the other one cannot be before it.
        db.first_value(
            "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
        )
        .await;
        lock.rollback().await.unwrap();
    };
    let (first, second, ()) = tokio::join!(
        one.again("upsert_package", &arguments, &state, "accept"),
        two.again("upsert_package", &arguments, &state, "accept"),
        release,
    );
    let answers = [envelope(&first), envelope(&second)];
    let succeeded: Vec<&Value> = answers.into_iter().filter(|answer| answer["success"] == true).collect();
    let receipt = db.value("select correlation_id from countersign.proposal where status = 'executed'").await;
    assert!(
        !succeeded.is_empty() && succeeded.iter().all(|answer| answer["meta"]["correlation_id"] == receipt),
        "{answers:?}"
    );
    for refused in answers.iter().filter(|answer| answer["success"] == false) {
        let code = refused["error"]["code"].as_str().unwrap();
        assert!(["proposal_closed", "duplicate_in_flight"].contains(&code), "{refused}");
    }
    assert_eq!((successes(&db).await, price(&db).await), ("1".into(), "99.00".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acceptance_of_an_expired_proposal_is_too_late() {
    let db = database().await;
    let mut command = Server::studio_command(&db);
    command.env("COUNTERSIGN_PROPOSAL_LIFETIME_S", "1");
    let mut session = Session::new(command);
    let (_, state) = session.asked("upsert_package", &change()).await;
    db.first_value("select 1 from countersign.proposal where expires_at <= clock_timestamp()").await;
    let answer = session.again("upsert_package", &change(), &state, "accept").await;
    assert_eq!(envelope(&answer)["error"]["code"], "proposal_expired", "{answer}");
    assert_eq!((price(&db).await, successes(&db).await), ("120.00".into(), "0".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_changed_while_the_user_thought_are_not_written_over() {
    let db = database().await;
    let mut session = session(&db);
    let (_, state) = session.asked("upsert_package", &change()).await;
    db.run("update studio.package set price = 130 where package_id = 1").await;
    let answer = session.again("upsert_package", &change(), &state, "accept").await;
    assert_eq!(envelope(&answer)["error"]["code"], "proposal_stale", "{answer}");
    assert_eq!((price(&db).await, proposals(&db).await[0][0].as_str()), ("130.00".into(), "stale"));
}
