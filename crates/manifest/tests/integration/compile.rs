//! Manifests without mistakes: what becomes of them.

use std::time::Duration;

use crate::support::{compile, database};
use countersign_manifest::{Access, ParamSource, RowExpectation, UndoSpec, ValueSource};
use ledger::Ledger;
use serde_json::{Value, json};
use types::Tier;

const PAIR: &str = r#"
name = "social"
version = "1.2"

[[tool]]
name = "like"
access = "write"
description = "Like it."
sql = "insert into social.tweet_like (account_id, tweet_id) values ($1, $2) returning tweet_id as id"
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
before = "select tweet_id from social.tweet_like where account_id = $1 and tweet_id = $2 for update"
sql = "delete from social.tweet_like where account_id = $1 and tweet_id = $2 returning tweet_id as id"
rows = "at_most_one"
dedup_window_s = 5
undo = { tool = "like", params = { id = "param.id" }, note = "Like again." }
param = [
    { name = "account_id", from = "principal.account_id" },
    { name = "id", description = "Which." },
]
"#;

#[tokio::test]
async fn a_manifest_becomes_tools_in_the_order_of_the_file() {
    let catalog = compile(&[PAIR], &*database("").await).await.unwrap();
    let [like, unlike] = catalog.tools.as_slice() else { panic!("two tools") };

    assert_eq!((like.name.as_str(), like.version.as_str(), like.access), ("like", "1.2", Access::Write));
    assert_eq!((like.tier, like.rows, like.dedup_window), (Tier::Auto, RowExpectation::One, Duration::from_secs(300)));
    assert_eq!(like.declared_at.to_string(), "m0.toml:6:8");
    assert_eq!(like.statements[0].param_types, [25, 20]);
    assert_eq!(like.params[0].source, ParamSource::Principal("account_id".into()));
    assert_eq!(like.meta.keys().collect::<Vec<_>>(), ["example.com/b", "example.com/a"]);
    let result = vec![("id".to_owned(), ValueSource::Result("id".into()))];
    assert_eq!(like.undo, UndoSpec::Calls { tool: "unlike".into(), params: result, for_each: false, note: None });

    assert_eq!((unlike.access, unlike.tier, unlike.rows), (Access::Admin, Tier::Confirm, RowExpectation::AtMostOne));
    assert_eq!(unlike.dedup_window, Duration::from_secs(5));
    assert_eq!(unlike.input_schema["required"], json!(["id"]));
}

#[tokio::test]
async fn an_undo_tool_may_be_declared_in_another_file() {
    let (first, second) = PAIR.split_at(PAIR.find("[[tool]]\nname = \"unlike\"").unwrap());
    let second = format!("name = \"more\"\nversion = \"1\"\n{second}");
    assert_eq!(compile(&[first, &second], &*database("").await).await.unwrap().tools.len(), 2);
}

const ENTRIES: &str = "create table social.entry (a text, b bigint, c int)";

/// A write of three statements that share the parameters `a` ($1), `b` ($2) and `c` ($3).
fn three(before: &str, first: &str, second: &str) -> String {
    format!(
        r#"
name = "n"
version = "1"
[[tool]]
name = "change"
access = "write"
description = "Change it."
before = "{before}"
sql = ["{first}", "{second}"]
rows = "any"
max_rows = 50
undo = {{ irreversible = "It is." }}
param = [
    {{ name = "a", description = "A." }},
    {{ name = "b", description = "B.", optional = true }},
    {{ name = "c", description = "C.", default = 5, minimum = 1 }},
]
"#
    )
}

#[tokio::test]
async fn every_statement_accepts_all_parameters_also_unused_ones() {
    let manifest = three(
        "select c from social.entry where c = $3 for update",
        "update social.entry set a = $1",
        "update social.entry set b = $2 where a = $1 returning a",
    );
    let catalog = compile(&[&manifest], &*database(ENTRIES).await).await.unwrap();
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

#[tokio::test]
async fn statements_are_described_with_the_parameter_types_of_the_others() {
    // Each update leaves a gap before its last parameter, and in the query any type would do for $1.
    let database = database(ENTRIES).await;
    for before in ["select c from social.entry", "select c from social.entry where $1 is null or c = $3"] {
        let manifest = three(
            before,
            "update social.entry set a = $1 where c = $3",
            "update social.entry set b = $2 where c = $3 returning a",
        );
        let catalog = compile(&[&manifest], &database).await.unwrap();
        assert_eq!(catalog.tools[0].statements[1].param_types, [25, 20, 23], "{before}");
    }
}

#[tokio::test]
async fn a_column_is_promised_never_to_be_null_only_if_nothing_makes_a_null_of_it() {
    // Where it may be NULL there is no type: clients check answers against this.
    let database = database("").await;
    for (sql, types) in [
        ("select id, in_reply_to_id from social.tweet", json!(["bigint", null])),
        ("with posted as (select * from social.tweet) select id from posted", json!(["bigint"])),
        (
            "select t.id, a.handle from social.tweet t join social.account a using (account_id)",
            json!(["bigint", "string"]),
        ),
        ("select id from social.tweet where account_id in (select account_id from social.follow)", json!(["bigint"])),
        ("select tweet_id, count(*) from social.tweet_like group by 1", json!(["bigint", null])),
        ("select (select id from social.tweet limit 1)", json!([null])),
        (
            "select t.id, l.tweet_id from social.tweet t left join social.tweet_like l on l.tweet_id = t.id",
            json!([null, null]),
        ),
        ("select t.id from social.account a natural full join social.tweet t", json!([null])),
        (
            "select t.id from social.account a left join social.tweet t using (account_id) where t.id is null",
            json!([null]),
        ),
        ("select tweet_id, count(*) from social.tweet_like group by rollup (1)", json!([null, null])),
    ] {
        let tool = "[[tool]]\nname = 'show'\naccess = 'read'\ndescription = 'It.'";
        let manifest = format!("name = 'n'\nversion = '1'\n{tool}\nsql = \"{sql}\"\n");
        let catalog = compile(&[&manifest], &database).await.unwrap();
        let data = &catalog.tools[0].output_schema["properties"]["data"];
        let row = data["properties"]["rows"]["items"]["properties"].as_object().unwrap();
        // An int8 has no type either: it is text where JavaScript would change it. Then the description says what it is.
        let promised: Vec<Value> = row
            .values()
            .map(|column| match (&column["type"], column["description"].as_str()) {
                (Value::Null, Some(what)) if !what.ends_with(" or null") => what.into(),
                (kind, _) => kind.clone(),
            })
            .collect();
        assert_eq!(json!(promised), types, "{sql}");
    }
}

#[tokio::test]
async fn an_outer_join_is_detected_with_any_comparison_of_parameters() {
    // With NULL for $1 the planner would find that there is nothing to join.
    let manifest = PAIR.replace(
        "delete from social.tweet_like where account_id = $1 and tweet_id = $2 returning tweet_id as id",
        "select l.tweet_id as id from social.tweet t left join social.tweet_like l on l.tweet_id = t.id \
         where t.account_id = $1 and t.id = $2",
    );
    let catalog = compile(&[&manifest], &*database("").await).await.unwrap();
    let not_null = |tool: &str| catalog.get(tool).unwrap().statements[0].shape.columns.as_ref().unwrap()[0].not_null;
    assert!(not_null("like"));
    assert!(!not_null("unlike"));
}

#[tokio::test]
async fn a_type_that_has_changed_since_is_seen_by_the_next_compile() {
    let database = testkit::database().await;
    let ledger = Ledger::new(database.target(), ledger::LedgerOptions::default());
    database.run("create type social.mood as enum ('sad')").await;
    let manifest = "name = 'n'\nversion = '1'\n[[tool]]\nname = 'show'\naccess = 'read'\ndescription = 'It.'\n\
                    sql = 'select $1::social.mood as mood'\nparam = [{ name = 'mood', description = 'It.' }]\n";
    for labels in [json!(["sad"]), json!(["sad", "glad"])] {
        let catalog = compile(&[manifest], &ledger).await.unwrap();
        assert_eq!(catalog.tools[0].input_schema["properties"]["mood"]["enum"], labels);
        database.run("alter type social.mood add value if not exists 'glad'").await;
    }
}

#[tokio::test]
async fn a_connection_that_died_since_does_not_stop_the_next_compile() {
    let database = testkit::database().await;
    let ledger = Ledger::new(database.target(), ledger::LedgerOptions::default());
    compile(&[PAIR], &ledger).await.unwrap();
    database
        .run(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity \
             where datname = current_database() and pid <> pg_backend_pid()",
        )
        .await;
    compile(&[PAIR], &ledger).await.unwrap();
}
