//! `{set}`: a statement for each set of columns that a call gives (N-10).

use ledger::Ledger;
use serde_json::{Map, Value, json};

use crate::support::{compile, database, diagnostics_of};

const NOTES: &str = "create table social.note (id bigint primary key, account_id text not null, label text, size int)";

const HEALTHY: &str = r#"name = "n"
version = "1"

[[tool]]
name = "change"
access = "write"
description = "Change it."
sql = "update social.note set {set} where id = $1 returning id"
rows = "one"
[tool.undo]
irreversible = "Tested elsewhere."
[[tool.param]]
name = "id"
description = "Which."
[[tool.param]]
name = "who"
from = "principal.account_id"
sets = "account_id = $2"
[[tool.param]]
name = "label"
description = "What to call it."
optional = true
sets = "label = $3 -- a comment"
[[tool.param]]
name = "size"
description = "How large."
optional = true
sets = "size = $4"
[[tool.param]]
name = "empty"
description = "Columns to set to NULL."
optional = true
sets_null = true
enum = ["label", "size"]
"#;

async fn mistakes(database: &Ledger, from: &str, to: &str) -> String {
    diagnostics_of(HEALTHY, database, from, to).await
}

fn params(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_statement_has_the_assignments_that_a_call_gives() {
    let catalog = compile(&[HEALTHY], &*database(NOTES).await).await.unwrap();
    let change = catalog.get("change").unwrap();
    let set = change.set.as_ref().unwrap();
    let types: Vec<u32> = change.params.iter().map(|param| param.ty.oid).collect();
    assert_eq!(types, [20, 25, 25, 23, 1009]);
    assert_eq!(change.statements.len(), 1);
    assert_eq!(
        change.statements[0].sql,
        "update social.note set account_id = $2\n, label = $3 -- a comment\n, size = $4\n where id = $1 returning id"
    );
    for (given, assignments) in [
        (json!({"who": "a", "size": 1}), Some("account_id = $2\n, size = $4\n")),
        (json!({"who": "a", "label": "x", "size": null}), Some("account_id = $2\n, label = $3 -- a comment\n")),
        (json!({"who": "a", "empty": ["size"]}), Some("account_id = $2\n, size = $4\n")),
        // What the server fills in accompanies other columns.
        (json!({"who": "a", "label": null, "empty": []}), None),
    ] {
        let sql = assignments.map(|sets| format!("update social.note set {sets} where id = $1 returning id"));
        assert_eq!(set.sql(&params(given.clone())), sql, "{given}");
    }
    assert!(set.sets_null(&params(json!({"empty": ["size"]})), "size"));
    assert!(!set.sets_null(&params(json!({"empty": ["size"]})), "label"));
    assert_eq!(set.arguments().collect::<Vec<_>>(), ["label", "size", "empty"]);
}

#[tokio::test]
async fn mistakes_of_assignments_are_named() {
    let database = database(NOTES).await;
    for (from, to, expected) in [
        ("{set}", "size = $4", "no statement has {set}"),
        ("{set} where", "{set}, {set} where", "the statements of a tool have {set} once"),
        ("sets = \"size = $4\"", "sets = \" \"", "sets is an assignment, such as sets = \"note = $3\""),
        ("sets = \"size = $4\"", "sets = \"sise = $4\"", "sql: column \"sise\" of relation \"note\" does not exist"),
        ("optional = true\nsets = \"size", "default = 3\nsets = \"size", "a parameter has sets or a default"),
        ("enum = [\"label\", \"size\"]\n", "", "a parameter with sets_null has an enum"),
        ("enum = [\"label\", \"size\"]", "enum = [\"id\"]", "enum: \"id\" is no optional parameter with sets"),
        ("optional = true\nsets_null", "sets_null", "a parameter with sets_null is optional"),
        ("access = \"write\"", "access = \"read\"", "a read changes nothing: sets is for writes"),
    ] {
        let said = mistakes(&database, from, to).await;
        assert!(said.contains(expected), "{from} -> {to}: {said}");
    }
}
