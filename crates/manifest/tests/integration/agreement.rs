//! What a manifest says of a write beside its SQL: who carries it out (`executor`), what it answers when it found nothing
//! (`not_found`), and what a tier above `auto` asks of it.

use crate::support::{check_each, compile, database, diagnostics_of};
use countersign_manifest::{RowExpectation, ToolSpec};
use ledger::Ledger;
use serde_json::json;
use types::Tier;

const NOTES: &str = "create table social.note (id bigint primary key, account_id text not null, label text)";

/// A write of SQL that needs agreement, and one of an executor, both without mistakes.
const HEALTHY: &str = r#"name = "n"
version = "1"

[[tool]]
name = "rename"
access = "write"
tier = "confirm"
description = "Rename it."
before = "select id, label from social.note where account_id = $1 and id = $2 for update"
sql = "update social.note set label = $3 where account_id = $1 and id = $2 returning id"
rows = "one"
not_found = " Note not found or access denied "
[[tool.param]]
name = "who"
from = "principal.account_id"
[[tool.param]]
name = "id"
description = "Which."
[[tool.param]]
name = "label"
description = "What to call it."
[tool.undo]
tool = "rename"
params = { id = "param.id", label = "before.label" }

[[tool]]
name = "shred"
access = "write"
tier = "approve"
description = "Shred it."
before = "select id, label from social.note where account_id = $1 and id = $2 for update"
executor = "shred_note"
not_found = "Note not found or access denied"
[[tool.param]]
name = "who"
from = "principal.account_id"
[[tool.param]]
name = "id"
description = "Which one."
[tool.undo]
irreversible = "It is in shreds."
"#;

const BEFORE: &str =
    "before = \"select id, label from social.note where account_id = $1 and id = $2 for update\"\nexecutor";
const IRREVERSIBLE: &str = "irreversible = \"It is in shreds.\"";

/// The mistakes of the healthy manifest with its first `from` replaced by `to`, one a line.
async fn diagnostics(database: &Ledger, from: &str, to: &str) -> String {
    diagnostics_of(HEALTHY, database, from, to).await
}

#[tokio::test]
async fn a_write_may_name_its_executor_and_its_parameters_have_the_types_of_its_before_query() {
    let database = database(NOTES).await;
    let catalog = compile(&[HEALTHY], &database).await.unwrap();
    let shred: &ToolSpec = catalog.get("shred").unwrap();
    assert_eq!(shred.executor.as_deref(), Some("shred_note"));
    assert_eq!(shred.executor_at.as_ref().unwrap().to_string(), "m0.toml:32:12");
    assert!(shred.statements.is_empty() && shred.after.is_some());
    assert_eq!((shred.rows, shred.max_rows), (RowExpectation::One, None));
    let types: Vec<u32> = shred.params.iter().map(|param| param.ty.oid).collect();
    assert_eq!(types, [25, 20]);
    // Nothing is known of the columns, and the answer is the object itself, or a proposal.
    assert_eq!(shred.output_schema["properties"]["data"], json!({"type": "object", "properties": {}}));
    let rename = catalog.get("rename").unwrap();
    assert_eq!((&rename.executor, &rename.executor_at), (&None, &None));
}

#[tokio::test]
async fn an_undo_needs_the_strictest_agreement_of_the_rules_unless_it_is_declared() {
    let database = database(NOTES).await;
    let rules = ["deny", "approve"].map(|then| format!("[[tool.rule]]\nwhen = \"param.id > 5\"\nthen = \"{then}\"\n"));
    for (declared, expected) in [("", Tier::Approve), ("undo_tier = \"auto\"\n", Tier::Auto)] {
        let text = HEALTHY.replacen("not_found =", &format!("{declared}not_found ="), 1);
        let text = text.replacen(
            "\n[[tool]]\nname = \"shred\"",
            &format!("\n{}\n[[tool]]\nname = \"shred\"", rules.concat()),
            1,
        );
        let catalog = compile(&[&text], &database).await.unwrap();
        let rename = catalog.get("rename").unwrap();
        assert_eq!((rename.tier, rename.undo_tier, rename.strictest_tier()), (Tier::Confirm, expected, Tier::Approve));
        assert_eq!(rename.rules.len(), 2);
    }
}

#[tokio::test]
async fn the_message_for_no_row_is_trimmed() {
    let catalog = compile(&[HEALTHY], &*database(NOTES).await).await.unwrap();
    for tool in ["rename", "shred"] {
        assert_eq!(catalog.get(tool).unwrap().not_found.as_deref(), Some("Note not found or access denied"));
    }
}

/// The parts of `rename` that are replaced below.
const SQL: &str = "sql = \"update social.note set label = $3 where account_id = $1 and id = $2 returning id\"";
const RENAME_BEFORE: &str =
    "before = \"select id, label from social.note where account_id = $1 and id = $2 for update\"\nsql";
const UNDO: &str = "tool = \"rename\"\nparams = { id = \"param.id\", label = \"before.label\" }";

/// Each: what is replaced by what, and the only mistake that there is then.
const SINGLE: &[(&str, &str, &str)] = &[
    // not_found
    ("\" Note not found or access denied \"", "\"  \"", "m0.toml:12:13: tool rename: not_found is empty"),
    (
        "rows = \"one\"",
        "rows = \"at_most_one\"",
        "tool rename: rows = \"at_most_one\" is content with no row: not_found is for \"one\" and \"some\"",
    ),
    (
        "rows = \"one\"",
        "max_rows = 5\nrows = \"any\"",
        "tool rename: rows = \"any\" is content with no row: not_found is for \"one\" and \"some\"",
    ),
    // executor
    ("[tool.undo]\nirreversible = \"It is in shreds.\"\n", "", "a write of an executor says how it is undone"),
    ("executor = \"shred_note\"", "executor = \"shred note\"", "executor is the name of a registered one"),
    ("executor = \"shred_note\"", "executor = 5", "m0.toml:32:12: tool shred: executor: invalid type"),
    (
        "executor = \"shred_note\"",
        "executor = \"shred_note\"\nrows = \"one\"",
        "m0.toml:33:8: tool shred: an executor counts its rows itself: rows is for sql",
    ),
    (
        "executor = \"shred_note\"",
        "executor = \"shred_note\"\nmax_rows = 5",
        "m0.toml:33:12: tool shred: an executor counts its rows itself: max_rows is for sql",
    ),
    (
        "executor = \"shred_note\"",
        "executor = \"shred_note\"\nsql = \"delete from social.note where account_id = $1 and id = $2 returning id\"",
        "m0.toml:33:7: tool shred: a write has sql or an executor, not both",
    ),
    (BEFORE, "executor", "m0.toml:31:12: tool shred: an executor needs before"),
    (BEFORE, "after = \"select id from social.note where id = $2\"\nexecutor", "tool shred: an executor needs before"),
    (
        IRREVERSIBLE,
        "tool = \"rename\"\nparams = { id = \"result.id\", label = \"before.label\" }",
        "undo: what an executor answers is not known here, so there is no result.id: use param.x or before.x",
    ),
    (
        IRREVERSIBLE,
        "tool = \"rename\"\nparams = { id = \"before.ident\", label = \"before.label\" }",
        "before.ident is not",
    ),
    // Tiers
    (
        "description = \"What to call it.\"",
        "description = \"What to call it.\"\nsensitive = true",
        "m0.toml:20:8: tool rename: parameter label: a proposal keeps its parameters until somebody agrees",
    ),
    (
        "from social.note where account_id = $1 and id = $2 for update",
        "from social.note where account_id = $1 and id = $2",
        "m0.toml:9:10: tool rename: before does not lock the rows that it shows",
    ),
    (
        BEFORE,
        "before = \"select id, label from social.note where account_id = $1 and id = $2\"\nexecutor",
        "m0.toml:31:10: tool shred: before does not lock the rows that it shows",
    ),
];

#[tokio::test]
async fn each_mistake_is_named_with_its_place_and_without_its_consequences() {
    check_each(HEALTHY, &*database(NOTES).await, SINGLE, &[]).await;
}

#[tokio::test]
async fn the_message_for_no_row_has_at_most_200_characters() {
    let database = database(NOTES).await;
    let said = |length: usize| format!("\"{}\"", "ä".repeat(length));
    let words = "\" Note not found or access denied \"";
    assert_eq!(diagnostics(&database, words, &said(200)).await, "");
    assert!(diagnostics(&database, words, &said(201)).await.contains("not_found has at most 200 characters"));
}

/// A read with these further lines.
async fn read(database: &Ledger, more: &str) -> String {
    let tool = format!("[[tool]]\nname = 'show'\naccess = 'read'\ndescription = 'It.'\n{more}\n");
    let found = compile(&[&format!("name = 'n'\nversion = '1'\n{tool}")], database).await;
    found.map(|_| String::new()).unwrap_or_else(|diagnostics| diagnostics.to_string())
}

#[tokio::test]
async fn a_read_tool_has_no_executor_and_no_message_for_no_row() {
    let database = database(NOTES).await;
    let executor = read(&database, "executor = 'shred_note'").await;
    assert_eq!(executor, "m0.toml:7:12: tool show: a read is a query, in sql: executor is for writes");
    let not_found = read(&database, "sql = 'select id from social.note'\nnot_found = 'No.'").await;
    assert_eq!(not_found, "m0.toml:8:13: tool show: a read answers with no rows: not_found is for writes");
}

/// The mistakes of `rename` with this statement and without `before`.
async fn unseen(database: &Ledger, tier: &str, sql: &str) -> String {
    let text = HEALTHY
        .replacen(RENAME_BEFORE, "sql", 1)
        .replacen(UNDO, "irreversible = \"It is.\"", 1)
        .replacen(SQL, &format!("sql = {sql}"), 1)
        .replacen("tier = \"confirm\"", &format!("tier = \"{tier}\""), 1);
    compile(&[&text], database).await.map(|_| String::new()).unwrap_or_else(|diagnostics| diagnostics.to_string())
}

#[tokio::test]
async fn a_write_that_overwrites_rows_needs_a_before_query_to_be_proposed() {
    let database = database(NOTES).await;
    let update = "'update social.note set label = $3 where account_id = $1 and id = $2 returning id'";
    let conflict = "'insert into social.note (account_id, id, label) values ($1, $2, $3) on conflict (id) do";
    for (sql, overwrites) in [
        (update.to_owned(), true),
        ("'delete from social.note where account_id = $1 and id = $2 and label = $3 returning id'".to_owned(), true),
        (
            "'with gone as (delete from social.note where account_id = $1 and id = $2 and label = $3 returning id) select id from gone'"
                .to_owned(),
            true,
        ),
        (format!("{conflict} update set label = excluded.label returning id'"), true),
        (format!("{conflict} nothing returning id'"), false),
        ("'insert into social.note (account_id, id, label) values ($1, $2, $3) returning id'".to_owned(), false),
        (format!("[{update}, 'select $2 as id']"), true),
    ] {
        let found = unseen(&database, "confirm", &sql).await;
        let said = "m0.toml:7:8: tool rename: a write that needs agreement and updates or deletes rows needs before";
        assert_eq!(found.contains(said), overwrites, "{sql}: {found}");
        assert_eq!(found.lines().count(), usize::from(overwrites), "{sql}: {found}");
        assert_eq!(unseen(&database, "auto", &sql).await, "", "{sql}");
    }
}

#[tokio::test]
async fn rows_may_be_locked_anywhere_within_before() {
    let database = database(NOTES).await;
    let plain = "select id, label from social.note where account_id = $1 and id = $2 for update";
    for before in [
        "select id, label from social.note where account_id = $1 and id = $2 for no key update",
        "with locked as materialized (select id, label from social.note where account_id = $1 and id = $2 for update) \
         select id, max(label) as label from locked group by id",
    ] {
        assert_eq!(diagnostics(&database, plain, before).await, "", "{before}");
    }
}
