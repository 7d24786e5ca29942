//! Protocols before 2026-07-28: the server asks during the call and continues the call with the answer.

use serde_json::{Value, json};
use testkit::{RawStdioServer, Server, UserAnswer, database};

use super::{assert_pending, change, envelope, price, proposals, propose, server_with_user, successes};

/// Sends the call with this id, and gives the question that the server asks.
pub(super) async fn asked(server: &mut RawStdioServer, id: u32, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    server.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()).await;
    let question = server.receive().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    question
}

/// Answers a question.
pub(super) async fn say(server: &mut RawStdioServer, question: &Value, result: Value) {
    if result["action"] == "decline" {
        tokio::time::sleep(testkit::READING_TIME).await;
    }
    server.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}).to_string()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_accepts_has_the_write_done_within_the_call() {
    for (protocol, capability) in [("2025-06-18", json!({})), ("2025-11-25", json!({"form": {}}))] {
        let db = database().await;
        let capabilities = json!({"elicitation": capability});
        let mut server = RawStdioServer::capable(Server::studio_command(&db), protocol, capabilities).await;
        let question = asked(&mut server, 7, "upsert_package", change()).await;
        assert_pending(&db).await;
        assert_eq!(question["params"]["requestedSchema"], json!({"type": "object", "properties": {}}), "{question}");
        say(&mut server, &question, json!({"action": "accept", "content": {}})).await;
        let answer = server.receive().await;
        assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!(7), &json!(false)), "{answer}");
        // The answer of the tool, as without a question.
        let envelope = envelope(&answer);
        assert_eq!((&envelope["data"]["package_id"], &envelope["data"]["added"]), (&json!(1), &json!(false)));
        assert_eq!(envelope["data"]["price"], "99.00");
        assert_eq!((&envelope["meta"]["rows_affected"], price(&db).await), (&json!(1), "99.00".to_owned()));
        let rollback = &envelope["meta"]["rollback"];
        assert_eq!(rollback["undo_tool"], "undo_mutation", "{envelope}");
        assert_eq!(proposals(&db).await, [["executed", "elicitation", "at once"]]);
        let approval = "select p.status, a.status, a.approval->>'decided_via', a.approval->>'decided_by', a.approval->>'tier' \
                        from countersign.proposal p join countersign.mutation a on a.correlation_id = p.correlation_id \
                        where a.approval->>'digest' = p.digest and a.approval->>'proposal_id' = p.proposal_id::text";
        assert_eq!(db.rows(approval).await, [["executed", "success", "elicitation", "default", "confirm"]]);
        let receipt = db.value("select correlation_id from countersign.proposal").await;
        assert_eq!(envelope["meta"]["correlation_id"], receipt);
        // And the undo asks again, since it is a write like any other.
        let question = asked(&mut server, 8, "undo_mutation", rollback["undo_params"].clone()).await;
        say(&mut server, &question, json!({"action": "accept"})).await;
        assert_eq!(server.receive().await["id"], 8);
        assert_eq!(price(&db).await, "120.00");
        assert!(server.close().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_question_leaves_the_proposal_pending_and_claims_no_user() {
    // I-4: headless clients cancel by themselves.
    let db = database().await;
    let before = db.contents("studio").await;
    let (server, questions) = server_with_user(&db, Some(UserAnswer::Cancel)).await;
    let proposal = server.propose("upsert_package", change()).await;
    assert_pending(&db).await;
    let confirm = json!({"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]});
    let envelope = server.succeed("confirm_proposal", confirm).await;
    assert_eq!(envelope["data"]["status"], "pending", "{envelope}");
    assert_pending(&db).await;
    assert_eq!((db.contents("studio").await, questions.lock().unwrap().len()), (before, 2));
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declined_question_is_a_refusal_and_nothing_is_written() {
    for (says, reason) in [(UserAnswer::Decline, "declined by the user")] {
        let db = database().await;
        let before = db.contents("studio").await;
        let (server, questions) = server_with_user(&db, Some(says)).await;
        let error = server.fail("upsert_package", change(), "proposal_rejected").await;
        assert_eq!(error["message"], format!("not written: {reason}"));
        assert_eq!(error["retryable"], false);
        assert_eq!(proposals(&db).await, [["rejected", "elicitation", reason]]);
        assert_eq!(db.contents("studio").await, before);
        assert_eq!(db.value("select count(*) from countersign.mutation").await, "0");
        assert_eq!(questions.lock().unwrap().len(), 1);
        // A no is final: the agent cannot confirm it by itself.
        let one = db.rows("select proposal_id, digest from countersign.proposal").await.remove(0);
        let rejected = json!({"proposal_id": one[0], "digest": one[1]});
        server.fail("confirm_proposal", rejected, "proposal_rejected").await;
        assert_eq!((price(&db).await.as_str(), questions.lock().unwrap().len()), ("120.00", 1));
        server.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_is_asked_even_when_the_agent_confirms() {
    // The agent calls confirm_proposal, but the user of this client can be asked.
    for (says, status, via) in
        [(UserAnswer::Accept, "executed", "elicitation"), (UserAnswer::Decline, "rejected", "elicitation")]
    {
        let db = database().await;
        let confirm = propose(&db).await;
        let (server, questions) = server_with_user(&db, Some(says)).await;
        // What the agent shows is not what is stored: no reason to bother anybody.
        let wrong = json!({"proposal_id": confirm["proposal_id"], "digest": "0".repeat(64)});
        server.fail("confirm_proposal", wrong, "digest_mismatch").await;
        assert_pending(&db).await;
        assert_eq!(questions.lock().unwrap().len(), 0);
        let answer = server.call("confirm_proposal", confirm).await;
        let asked = questions.lock().unwrap().concat();
        assert!(
            asked.contains("price: 120.00 → 99.00"),
            "the write is shown, and not the call that confirms it: {asked}"
        );
        let decided = db.rows("select status, decided_via from countersign.proposal").await;
        assert_eq!(decided, [[status, via]], "{answer}");
        if says == UserAnswer::Accept {
            assert_eq!(answer["data"]["result"]["price"].to_string(), "99.00", "{answer}");
            assert_eq!(
                answer["meta"]["correlation_id"],
                db.value("select correlation_id from countersign.proposal").await
            );
        } else {
            assert_eq!(answer["error"]["code"], "proposal_rejected", "{answer}");
            assert_eq!(price(&db).await, "120.00");
        }
        server.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_a_reviewer_has_to_approve_is_not_put_to_the_user() {
    let db = database().await;
    let before = db.contents("studio").await;
    let (server, questions) = server_with_user(&db, Some(UserAnswer::Accept)).await;
    let envelope = server.succeed("delete_package", json!({"package_id": 3})).await;
    let proposal = &envelope["data"]["proposal"];
    assert_eq!((&envelope["data"]["requires_approval"], &proposal["tier"]), (&json!(true), &json!("approve")));
    let confirm = json!({"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]});
    server.fail("confirm_proposal", confirm, "not_permitted").await;
    assert_eq!(*questions.lock().unwrap(), Vec::<String>::new());
    assert_eq!(
        (db.contents("studio").await, proposals(&db).await),
        (before, vec![vec!["pending".into(), "NULL".into(), "NULL".into()]])
    );
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_cannot_ask_is_not_asked() {
    let capabilities = [
        json!({}),
        json!({"sampling": {}}),
        // It opens web pages and shows no forms.
        json!({"elicitation": {"url": {}}}),
    ];
    for capabilities in capabilities {
        let db = database().await;
        let mut server = RawStdioServer::capable(Server::studio_command(&db), "2025-11-25", capabilities).await;
        // `request` takes the very next line for the answer.
        let call = json!({"name": "upsert_package", "arguments": change()});
        let answer = server.request(1, "tools/call", call).await;
        let proposal = envelope(&answer)["data"]["proposal"].clone();
        let confirm = json!({"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]});
        assert_pending(&db).await;
        let answer = server.request(2, "tools/call", json!({"name": "confirm_proposal", "arguments": confirm})).await;
        assert_eq!(envelope(&answer)["data"]["status"], "executed", "{answer}");
        assert_eq!(proposals(&db).await, [["executed", "confirm_proposal", "NULL"]]);
        assert_eq!(server.close_and_read().await, (Vec::new(), true));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_action_decides_regardless_of_the_content() {
    // The form has no fields: MCP's action says yes or no, and a second answer in the content would be one that the server
    // never asked for and the client need not have shown.
    for (result, expected) in [
        (json!({"action": "accept", "content": {"confirm": false}}), "executed"),
        (json!({"action": "decline", "content": {"confirm": true}}), "rejected"),
        (json!({"action": "cancel", "content": {"confirm": true}}), "pending"),
        // None of the three is no answer.
        (json!({"action": "approve"}), "pending"),
        (json!({"action": true}), "pending"),
        (json!({"content": {"action": "accept"}}), "pending"),
        (json!({}), "pending"),
        (json!({"tools": []}), "pending"),
    ] {
        let db = database().await;
        let capabilities = json!({"elicitation": {}});
        let mut server = RawStdioServer::capable(Server::studio_command(&db), "2025-11-25", capabilities).await;
        let question = asked(&mut server, 1, "upsert_package", change()).await;
        say(&mut server, &question, result.clone()).await;
        let answer = server.receive().await;
        assert_eq!(answer["id"], 1, "{result}: {answer}");
        assert_eq!(proposals(&db).await[0][0], expected, "{result}: {answer}");
        if expected == "pending" {
            assert_pending(&db).await;
            assert_eq!(envelope(&answer)["data"]["requires_approval"], true, "{result}: {answer}");
        }
        assert!(server.close().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_questions_about_one_write_the_first_answer_applies() {
    for (second, reason) in [("accept", "proposal_closed"), ("decline", "proposal_closed")] {
        let db = database().await;
        let capabilities = json!({"elicitation": {}});
        let mut server = RawStdioServer::capable(Server::studio_command(&db), "2025-11-25", capabilities).await;
        let first = asked(&mut server, 1, "upsert_package", change()).await;
        let again = asked(&mut server, 2, "upsert_package", change()).await;
        assert_pending(&db).await;
        say(&mut server, &first, json!({"action": "accept"})).await;
        let answer = server.receive().await;
        assert_eq!((&answer["id"], &envelope(&answer)["success"]), (&json!(1), &json!(true)), "{answer}");
        say(&mut server, &again, json!({"action": second})).await;
        let answer = server.receive().await;
        assert_eq!((&answer["id"], &envelope(&answer)["error"]["code"]), (&json!(2), &json!(reason)), "{answer}");
        assert_eq!((successes(&db).await, price(&db).await), ("1".into(), "99.00".into()));
        assert_eq!(proposals(&db).await, [["executed", "elicitation", "at once"]]);
        assert!(server.close().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_changed_while_the_user_thought_are_not_written_over() {
    let db = database().await;
    let capabilities = json!({"elicitation": {}});
    let mut server = RawStdioServer::capable(Server::studio_command(&db), "2025-11-25", capabilities).await;
    let question = asked(&mut server, 1, "upsert_package", change()).await;
    db.run("update studio.package set price = 130 where package_id = 1").await;
    say(&mut server, &question, json!({"action": "accept"})).await;
    let answer = server.receive().await;
    assert_eq!(envelope(&answer)["error"]["code"], "proposal_stale", "{answer}");
    assert_eq!((price(&db).await, proposals(&db).await[0][0].as_str()), ("130.00".into(), "stale"));
    assert!(server.close().await);
}
