//! Invalid calls to every tool: each refusal has one form and a code of docs/reference/errors.md.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use testkit::{database, repository};

use super::{keys, with_every_tool};

/// What no argument or only some may be.
fn odd_values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(1.5),
        json!(i64::MAX),
        json!(""),
        json!("a\u{0}b"),
        json!("\u{1f4a5}".repeat(300)),
        json!("00000000-0000-4000-8000-000000000000"),
        json!([[null]]),
        json!({"a": {}}),
    ]
}

/// Something of the right type.
fn plain_value(schema: &Value) -> Value {
    let schema = schema.get("anyOf").map_or(schema, |either| &either[0]);
    match (schema["enum"][0].clone(), schema["type"].as_str()) {
        (Value::Null, Some("integer" | "number")) => json!(1),
        (Value::Null, Some("boolean")) => json!(false),
        (Value::Null, Some("array")) => json!([]),
        (Value::Null, Some("object")) => json!({}),
        (Value::Null, _) if schema["pattern"].as_str().is_some_and(|pattern| pattern.contains("[0-9]")) => json!("1"),
        (Value::Null, _) => json!("x"),
        (first, _) => first,
    }
}

/// What is required of a tool, each with a plain value.
fn plain_arguments(tool: &Value) -> Map<String, Value> {
    let schema = &tool["inputSchema"];
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    required.map(|name| (name.to_owned(), plain_value(&schema["properties"][name]))).collect()
}

/// Calls of this tool: as it is meant, with each argument odd or missing, and with one that it does not know.
fn calls(tool: &Value) -> Vec<Map<String, Value>> {
    let plain = plain_arguments(tool);
    let mut calls = vec![plain.clone()];
    for name in tool["inputSchema"]["properties"].as_object().unwrap().keys() {
        for value in odd_values() {
            let mut call = plain.clone();
            call.insert(name.clone(), value);
            calls.push(call);
        }
        let mut call = plain.clone();
        call.shift_remove(name);
        calls.push(call);
    }
    let mut unknown = plain;
    unknown.insert("unheard_of".to_owned(), json!(1));
    calls.push(unknown);
    calls
}

/// The codes of docs/reference/errors.md.
fn published() -> BTreeSet<String> {
    let page = std::fs::read_to_string(repository().join("docs/reference/errors.md")).unwrap();
    page.lines().filter_map(|line| Some(line.strip_prefix("## `")?.strip_suffix('`')?.to_owned())).collect()
}

/// Its code, if it is a failure as a failure has to be.
fn code_of(envelope: &Value, published: &BTreeSet<String>) -> String {
    assert_eq!(keys(envelope), ["success", "error", "meta"], "{envelope}");
    assert_eq!(envelope["success"], false);
    let error = &envelope["error"];
    let code = error["code"].as_str().unwrap();
    assert!(published.contains(code), "{code} is not in docs/reference/errors.md: {envelope}");
    assert!(!error["message"].as_str().unwrap().trim().is_empty(), "{envelope}");
    assert!(error["retryable"].is_boolean(), "{envelope}");
    assert!(envelope["meta"]["elapsed_ms"].is_u64() && envelope["meta"]["tool_version"].is_string(), "{envelope}");
    code.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tool_refuses_in_one_form_with_a_published_code_and_a_receipt_where_there_is_a_record() {
    let db = database().await;
    let server = with_every_tool(&db).await;
    let published = published();
    let password = db.value("select password from countersign.reader_login").await;
    let mut reached = BTreeSet::new();
    let mut receipts = BTreeSet::new();
    let mut failed = BTreeSet::new();
    for tool in server.client().list_tools().await.unwrap() {
        let name = tool["name"].as_str().unwrap();
        let mut refused = 0;
        for arguments in calls(&tool) {
            let envelope = server.call(name, Value::Object(arguments.clone())).await;
            assert!(!envelope.to_string().contains(&password), "{name} {arguments:?}");
            let receipt = envelope["meta"]["correlation_id"].as_str().map(str::to_owned);
            receipts.extend(receipt.clone());
            if envelope["success"] == false {
                let code = code_of(&envelope, &published);
                failed.extend(receipt.map(|id| format!("{id} {code}")));
                assert!(envelope["error"]["retryable"] == false, "nothing here may go well later: {name} {envelope}");
                reached.insert(code);
                refused += 1;
            }
        }
        assert!(refused > 0, "{name} takes everything");
    }
    for code in ["invalid_params", "not_found", "not_read_only", "row_count_mismatch", "sql_error"] {
        assert!(reached.contains(code), "{code} is not among {reached:?}");
    }
    let recorded: BTreeSet<String> =
        db.rows("select correlation_id from countersign.mutation").await.concat().into_iter().collect();
    assert_eq!(recorded, receipts, "a record has a receipt, and a receipt a record");
    let failures = "select correlation_id || ' ' || error_code from countersign.mutation where status = 'failure'";
    let failures: BTreeSet<String> = db.rows(failures).await.concat().into_iter().collect();
    assert_eq!(failures, failed, "with the same code");
    assert!(failed.len() > 10, "{failed:?}");
}
