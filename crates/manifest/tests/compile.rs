//! Manifests without mistakes: what becomes of them.

mod support;

use std::time::Duration;

use countersign_manifest::{Access, ParamSource, RowsRule, Tier, Undo, ValueSource};
use serde_json::json;
use support::{Database, compile};

const PAIR: &str = r#"
name = "social"
version = "1.2"

[[tool]]
name = "like"
access = "write"
description = "Like it."
sql = "insert like"
rows = "one"
_meta = { "example.com/b" = 1, "example.com/a" = 2 }
[[tool.param]]
name = "account_id"
from = "principal.account_id"
[[tool.param]]
name = "id"
description = "Which."
[tool.undo]
tool = "unlike"
params = { id = "result.id" }

[[tool]]
name = "unlike"
access = "admin"
tier = "confirm"
description = "Unlike it."
sql = "delete like"
rows = "at_most_one"
dedup_window_s = 5
undo = { tool = "like", params = { id = "param.id" }, note = "Like again." }
param = [
    { name = "account_id", from = "principal.account_id" },
    { name = "id", description = "Which." },
]
"#;

fn likes() -> Database {
    Database::default().knows("insert like", &[Some("text"), Some("int8")], &[("id", "int8!")]).knows(
        "delete like",
        &[Some("text"), Some("int8")],
        &[("id", "int8!")],
    )
}

#[test]
fn a_manifest_becomes_tools_in_the_order_of_the_file() {
    let catalog = compile(&[PAIR], &likes()).unwrap();
    let [like, unlike] = catalog.tools.as_slice() else { panic!("two tools") };

    assert_eq!((like.name.as_str(), like.version.as_str(), like.access), ("like", "1.2", Access::Write));
    assert_eq!((like.tier, like.rows, like.dedup_window), (Tier::Auto, RowsRule::One, Duration::from_secs(300)));
    assert_eq!(like.declared_at.to_string(), "m0.toml:6:8");
    assert_eq!(like.statements[0].param_types, [25, 20]);
    assert_eq!(like.params[0].source, ParamSource::Principal("account_id".into()));
    assert_eq!(like.meta.keys().collect::<Vec<_>>(), ["example.com/b", "example.com/a"]);
    let result = vec![("id".to_owned(), ValueSource::Result("id".into()))];
    assert_eq!(like.undo, Undo::Calls { tool: "unlike".into(), params: result, for_each: false, note: None });

    assert_eq!((unlike.access, unlike.tier, unlike.rows), (Access::Admin, Tier::Confirm, RowsRule::AtMostOne));
    assert_eq!(unlike.dedup_window, Duration::from_secs(5));
    assert_eq!(unlike.input_schema["required"], json!(["id"]));
}

#[test]
fn an_undo_tool_may_be_declared_in_another_file() {
    let (first, second) = PAIR.split_at(PAIR.find("[[tool]]\nname = \"unlike\"").unwrap());
    let second = format!("name = \"more\"\nversion = \"1\"\n{second}");
    assert_eq!(compile(&[first, &second], &likes()).unwrap().tools.len(), 2);
}

const THREE: &str = r#"
name = "n"
version = "1"
[[tool]]
name = "change"
access = "write"
description = "Change it."
sql = ["first", "second"]
before = "image"
rows = "any"
undo = { irreversible = "It is." }
param = [
    { name = "a", description = "A." },
    { name = "b", description = "B.", optional = true },
    { name = "c", description = "C.", default = 5, minimum = 1 },
]
"#;

#[test]
fn every_statement_takes_every_parameter_whichever_it_uses() {
    let database = Database::default()
        .knows("image", &[None, None, Some("int4")], &[("c", "int4")])
        .knows("first", &[Some("text")], &[])
        .knows("second", &[Some("text"), Some("int8")], &[("a", "text")]);
    let catalog = compile(&[THREE], &database).unwrap();
    let change = &catalog.tools[0];
    let before = change.before.as_ref().unwrap();
    for statement in std::iter::once(before).chain(&change.statements) {
        assert_eq!(statement.param_types, [25, 20, 23]);
        assert_eq!(statement.shape.params.len(), 3, "{}", statement.sql);
    }
    let required: Vec<bool> = change.params.iter().map(|param| param.required).collect();
    assert_eq!(required, [true, false, false]);
    assert_eq!(change.params[2].default, Some(json!(5)));
}

#[test]
fn statements_that_cannot_be_described_without_one_another_are() {
    // Of first($1, $3) and second($2, $3) each leaves a gap before its last parameter.
    let database = Database::default()
        .knows("image", &[], &[("c", "int4")])
        .knows("first", &[Some("text"), None, Some("int4")], &[])
        .knows("second", &[None, Some("int8"), Some("int4")], &[("a", "text")]);
    let catalog = compile(&[THREE], &database).unwrap();
    assert_eq!(catalog.tools[0].statements[1].param_types, [25, 20, 23]);
}
