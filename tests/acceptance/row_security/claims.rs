//! Claims of a token as settings of its transactions.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{Crm, NOTES, ids, numbers};

const TENANT: &str = "claims = [\"tenant\", \"region\"]";

#[tokio::test(flavor = "multi_thread")]
async fn each_tenant_reads_its_own_rows_in_every_way() {
    let crm = Crm::new("", TENANT).await;
    let [acme, bolt] = ["acme", "bolt"].map(|tenant| crm.client(json!({"tenant": tenant})));
    // The same text, from the same sessions, in turns.
    for _ in 0..3 {
        assert_eq!(ids(&acme, NOTES).await, [1, 2]);
        assert_eq!(ids(&bolt, NOTES).await, [3]);
    }
    let listed = bolt.call("list_notes", json!({})).await;
    assert_eq!(listed["data"]["rows"], json!([{"id": 3, "tenant": "bolt"}]));
    // A key of another tenant's answer continues the query over the rows of the caller.
    let first = acme.call("query_database", json!({"query": NOTES, "row_limit": 1})).await;
    let after = &first["data"]["next"]["after"];
    assert_eq!(after, &json!([1]), "{first}");
    let next = |after: &Value| json!({"query": NOTES, "row_limit": 1, "after": after});
    assert_eq!(numbers(&acme.call("query_database", next(after)).await["data"]["rows"]), [2]);
    assert_eq!(numbers(&bolt.call("query_database", next(after)).await["data"]["rows"]), [3]);
    let explained = acme.call("explain_query", json!({"query": NOTES})).await;
    assert!(explained.to_string().contains("countersign.claim_tenant"), "{explained}");
}

/// Nothing is seen by a caller of whom the claim is not known.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_claim_matches_nothing_and_values_become_text() {
    let crm = Crm::new("", TENANT).await;
    for nobody in [json!({}), json!({"tenant": null}), json!({"tenant": ""}), json!({"tenant": []})] {
        assert_eq!(ids(&crm.client(nobody), NOTES).await, Vec::<i64>::new());
    }
    let settings =
        "select current_setting('countersign.claim_tenant') as t, current_setting('countersign.claim_region') as r";
    for (given, expected) in [
        (json!({"tenant": 7, "region": true}), json!({"t": "7", "r": "true"})),
        (json!({"tenant": ["a", "b'\"$$"]}), json!({"t": "[\"a\",\"b'\\\"$$\"]", "r": ""})),
        (
            json!({"tenant": "'; reset role; --", "region": "<b>é</b>"}),
            json!({"t": "'; reset role; --", "r": "<b>é</b>"}),
        ),
    ] {
        let answer = crm.client(given).call("query_database", json!({"query": settings})).await;
        assert_eq!(answer["data"]["rows"], json!([expected]), "{answer}");
    }
    for (given, why) in [
        (json!({"tenant": {"id": 1}}), "is neither a text, a number, a boolean, nor a list of texts"),
        (json!({"tenant": [1]}), "is neither a text"),
        (json!({"tenant": "x".repeat(1025)}), "is longer than 1024 bytes"),
        (json!({"tenant": "a\u{0}b"}), "has control characters"),
    ] {
        let client = crm.client(given);
        let refused = client.send(client.calling(1, "query_database", &json!({"query": NOTES}))).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        let challenge = refused.header("www-authenticate").unwrap();
        assert!(challenge.contains(&format!("the claim tenant of the token {why}")), "{challenge}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_can_have_another_name_in_sql() {
    let crm = Crm::new("", "claims = { tenant = \"https://example.com/tenant\" }").await;
    let bolt = crm.client(json!({"https://example.com/tenant": "bolt", "tenant": "acme"}));
    assert_eq!(ids(&bolt, NOTES).await, [3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_and_undos_reach_the_rows_of_the_tenant_and_records_say_whose_they_were() {
    let crm = Crm::new("", TENANT).await;
    let [acme, bolt] = ["acme", "bolt"].map(|tenant| crm.client(json!({"tenant": tenant})));
    let set = |id: u32| json!({"id": id, "body": "changed"});
    let refused = bolt.call("set_note", set(1)).await;
    assert_eq!(refused["error"]["code"], "row_count_mismatch", "{refused}");
    let written = acme.call("set_note", set(1)).await;
    assert_eq!(written["data"], json!({"id": 1, "tenant": "acme"}), "{written}");
    assert_eq!(written["meta"]["rollback"]["reversible"], true, "{written}");
    // The same call of the same account is another call with another tenant, and a duplicate with the same one.
    let repeated = acme.call("set_note", set(1)).await;
    assert_eq!(repeated["data"]["duplicate"], true, "{repeated}");
    let other = bolt.call("set_note", set(1)).await;
    assert_eq!(other["error"]["code"], "row_count_mismatch", "{other}");

    let receipt = json!({"correlation_id": written["meta"]["correlation_id"]});
    // Records belong to the account and its tenant.
    for tool in ["undo_mutation", "get_mutation_detail"] {
        let refused = bolt.call(tool, receipt.clone()).await;
        assert_eq!(refused["error"]["code"], "not_found", "{refused}");
    }
    let recent = bolt.call("get_recent_mutations", json!({})).await.to_string();
    assert!(recent.contains("set_note") && !recent.contains("success\",\"params"), "{recent}");
    assert!(!recent.contains("acme"), "{recent}");
    let undone = acme.call("undo_mutation", receipt).await;
    assert_eq!(undone["success"], true, "{undone}");
    assert_eq!(crm.db.value("select body from crm.note where id = 1").await, "acme 1");

    let contexts = "select tool_name, status, caller_context::text from countersign.record order by id";
    let [acme, bolt] = ["acme", "bolt"].map(|t| format!("{{\"claims\":{{\"region\":\"\",\"tenant\":\"{t}\"}}}}"));
    let expected = [
        ("set_note", "failure", &bolt),
        ("set_note", "success", &acme),
        ("set_note", "failure", &bolt),
        ("undo_mutation", "success", &acme),
    ];
    let expected: Vec<Vec<String>> =
        expected.map(|(tool, status, context)| vec![tool.to_owned(), status.to_owned(), context.clone()]).into();
    assert_eq!(crm.db.rows(contexts).await, expected);
}

/// No policy decides about the recorded changes of a row.
#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_a_row_is_refused_to_callers_with_claims() {
    let crm = Crm::new("", TENANT).await;
    crm.db.run("alter table crm.note disable row level security").await;
    let acme = crm.client(json!({"tenant": "acme"}));
    acme.call("set_note", json!({"id": 3, "body": "changed"})).await;
    let refused = acme.call("row_history", json!({"table": "crm.note", "key": {"id": 3}})).await;
    assert_eq!(refused["error"]["code"], "not_permitted", "{refused}");
    let said = refused["error"]["message"].as_str().unwrap();
    assert!(said.contains("a caller with a role or claims"), "{said}");
}

/// A session keeps the claims of the token with which it was opened.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_another_tenant_does_not_continue_a_session() {
    let crm = Crm::new("", TENANT).await;
    let acme = crm.client(json!({"tenant": "acme"})).open("2025-06-18", json!({})).await;
    assert_eq!(ids(&acme, NOTES).await, [1, 2]);
    let renewed = acme.clone().with_token(&crm.token(json!({"tenant": "acme", "jti": "renewed"})));
    assert_eq!(ids(&renewed, NOTES).await, [1, 2]);
    let other = acme.with_token(&crm.token(json!({"tenant": "bolt"})));
    let refused = other.send(other.calling(2, "query_database", &json!({"query": NOTES}))).await;
    assert_eq!(refused.status, StatusCode::NOT_FOUND, "{}", refused.body);
}
