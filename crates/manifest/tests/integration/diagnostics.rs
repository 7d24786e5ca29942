//! Manifests with mistakes: each is named, with its place, and none hides another.

mod statements;

use crate::support::{check_each, compile, database, diagnostics_of};
use countersign_manifest::UndoSpec;
use ledger::{ConnectOptions, Ledger};

const NOTES: &str =
    "create table social.note (id bigint not null, account_id text, label text, size int, at timestamptz)";

/// A read, a write, and a write with a `before` query, all without mistakes.
const HEALTHY: &str = r#"name = "n"
version = "1"

[[tool]]
name = "show"
access = "read"
description = "Show it."
sql = "select id from social.note where id = $1"
param = [{ name = "id", description = "Which.", default = 3 }]

[[tool]]
name = "put"
access = "write"
description = "Put it."
sql = "insert into social.note (account_id, id, label) values ($1, $2, $3) returning id, size, at"
rows = "one"
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
tool = "drop"
params = { id = "result.id", label = "param.label" }

[[tool]]
name = "drop"
access = "write"
description = "Drop it."
sql = "delete from social.note where account_id = $1 and id = $2 and label is not distinct from $3 returning id"
before = "select id, label::varchar from social.note where account_id = $1 and id = $2 for update"
rows = "one"
[[tool.param]]
name = "who"
from = "principal.account_id"
[[tool.param]]
name = "id"
description = "Which one."
[[tool.param]]
name = "label"
description = "What it was called."
optional = true
[tool.undo]
tool = "put"
params = { id = "before.id", label = "before.label" }
"#;

/// The mistakes of the healthy manifest with its first `from` replaced by `to`, one a line.
async fn diagnostics(database: &Ledger, from: &str, to: &str) -> String {
    diagnostics_of(HEALTHY, database, from, to).await
}

#[tokio::test]
async fn the_manifest_that_the_other_tests_break_has_no_mistake() {
    assert_eq!(diagnostics(&*database(NOTES).await, "", "").await, "");
}

/// The statement of `show`, whole.
const SHOW_SQL: &str = "sql = \"select id from social.note where id = $1\"\n";

/// Each: what is replaced by what, and the only mistake that there is then.
const SINGLE: &[(&str, &str, &str)] = &[
    // Names
    ("name = \"show\"", "name = \"show it\"", "m0.toml:5:8: tool show it: clients reject this name"),
    ("name = \"show\"", "name = \"query_database\"", "tool query_database: this is the name of a built-in tool"),
    (
        "name = \"show\"",
        "name = \"put\"",
        "m0.toml:12:8: tool put: two tools have this name; the other is declared at m0.toml:5:8",
    ),
    ("name = \"show\"\n", "", "m0.toml:4:1: a tool needs a name"),
    ("version = \"1\"\n", "", "a manifest needs a version"),
    // Keys
    ("access = \"read\"", "access = \"read\"\ncolour = 1", "m0.toml:7:1: tool show: unknown field `colour`"),
    ("access = \"read\"", "access = \"look\"", "m0.toml:6:10: tool show: access: unknown variant `look`"),
    ("access = \"read\"\n", "", "a tool says what it may do"),
    ("description = \"Show it.\"", "description = \" \"", "tool show: a description is needed"),
    // Statements
    (SHOW_SQL, "", "tool show: sql is needed"),
    (SHOW_SQL, "sql = ''\n", "m0.toml:8:7: tool show: a statement is empty"),
    (
        SHOW_SQL,
        "sql = ['select id from social.note where id = $1', 'select 1 as one']\n",
        "m0.toml:8:7: tool show: a read has one statement",
    ),
    ("select id from", "delete from", "m0.toml:8:7: tool show: a read returns rows"),
    (SHOW_SQL, "sql = 5\n", "m0.toml:8:7: tool show: sql: invalid type: integer `5`, expected a string or an array"),
    (
        "returning id, size",
        "returning id, $4::bool, size",
        "tool put: sql takes 4 parameters ($4 is the last), but the tool declares 3",
    ),
    (
        "(account_id, id, label) values ($1, $2, $3)",
        "(account_id, id) values ($1, $2)",
        "m0.toml:24:8: tool put: parameter label ($3) has no type",
    ),
    (
        "select id, label::varchar from social.note where account_id = $1 and id = $2 for update",
        "delete from social.note where account_id = $1 and id = $2",
        "m0.toml:35:10: tool drop: before captures rows",
    ),
    // Reads and writes
    ("access = \"read\"", "access = \"read\"\ntier = 'confirm'", "tool show: a read needs no agreement"),
    ("access = \"read\"", "access = \"read\"\nbefore = 'select 1 as one'\n", "tool show: a read overwrites nothing"),
    ("access = \"read\"", "access = \"read\"\nundo = { irreversible = 'x' }", "tool show: a read changes nothing"),
    ("rows = \"one\"\n", "", "m0.toml:12:8: tool put: a write says how many rows are right"),
    // Parameters
    ("name = \"id\", description", "name = \"i d\", description", "tool show: parameter i d: clients reject this name"),
    ("name = \"id\", description", "name = \"idempotency_key\", description", "every write has this argument already"),
    ("description = \"Which.\", ", "", "m0.toml:9:19: tool show: parameter id: a description is needed"),
    ("name = \"label\"\n", "name = \"who\"\n", "parameter who: two parameters have this name"),
    (
        "from = \"principal.account_id\"",
        "from = \"principal.shoe_size\"",
        "there is no \"principal.shoe_size\": from takes principal.account_id",
    ),
    (
        "from = \"principal.account_id\"",
        "from = \"principal.account_id\"\ndefault = 'x'",
        "the server fills it, so default means nothing",
    ),
    (
        "values ($1, $2, $3)",
        "values ($1::int4::text, $2, $3)",
        "parameter who: the principal's fields are text, but the statement takes int4",
    ),
    (
        "default = 3",
        "default = 'three'",
        "m0.toml:9:59: tool show: parameter id: default: \"three\" is not of type \"integer\"",
    ),
    (
        "default = 3",
        "default = 3, maximum = 2",
        "m0.toml:9:59: tool show: parameter id: default: 3 is greater than the maximum of 2",
    ),
    ("default = 3", "minimum = 3, maximum = 2", "no number is within minimum and maximum"),
    ("default = 3", "minimum = 'low'", "minimum is a number"),
    ("default = 3", "max_length = 2", "max_length is for text, and this is int8"),
    ("default = 3", "pattern = 'x'", "pattern is for text, and this is int8"),
    (
        "default = 3",
        "enum = [1, 'two']",
        "m0.toml:9:56: tool show: parameter id: enum: \"two\" is not of type \"integer\"",
    ),
    (
        "default = 3",
        "default = 3, enum = [1, 2]",
        "m0.toml:9:59: tool show: parameter id: default: 3 is not one of 1 or 2",
    ),
    ("default = 3", "enum = []", "an empty enum allows nothing"),
    (
        "description = \"What to call it.\"",
        "description = 'x'\nminimum = 1",
        "minimum is for numbers, and this is text",
    ),
    (
        "description = \"What to call it.\"",
        "description = 'x'\npattern = '[a-z'",
        "m0.toml:26:11: tool put: parameter label: pattern: \"[a-z\" is not a regular expression (ECMA 262)",
    ),
    (
        "optional = true",
        "optional = true\npattern = '[a-z'\ndefault = 'Y'",
        "m0.toml:47:11: tool drop: parameter label: pattern: \"[a-z\" is not a regular expression (ECMA 262)",
    ),
    (
        "optional = true",
        "optional = true\npattern = '^[a-z]+$'\ndefault = 'Y'",
        "m0.toml:48:11: tool drop: parameter label: default: \"Y\" does not match \"^[a-z]+$\"",
    ),
    // UndoSpec
    ("tool = \"drop\"", "tool = \"vanish\"", "m0.toml:27:8: tool put: undo: there is no tool vanish"),
    ("tool = \"drop\"", "", "undo names a tool, or says why it is irreversible"),
    ("tool = \"drop\"", "tool = 'drop'\nirreversible = 'x'", "not both"),
    ("tool = \"drop\"", "tool = 'drop'\nfor_each = 'row'", "for_each takes \"result\" only"),
    ("tool = \"drop\"", "tool = 'drop'\nnote = ''", "note is empty"),
    ("id = \"result.id\", ", "", "undo: drop needs id, which params does not give"),
    ("id = \"result.id\", ", "id = 'result.id', colour = 'result.id', ", "undo: drop has no parameter colour"),
    ("id = \"result.id\", ", "id = 'result.id', who = 'param.who', ", "undo: the server fills who of drop itself"),
    ("id = \"result.id\"", "id = \"the id\"", "undo: \"the id\" is not param.x, result.x or before.x"),
    ("id = \"result.id\"", "id = \"result.ident\"", "undo: result.ident is not returned; there are id, size, at"),
    ("id = \"result.id\"", "id = \"result.at\"", "undo: result.at is timestamptz, but id of drop takes int8"),
    ("id = \"result.id\"", "id = \"param.label\"", "undo: param.label is text, but id of drop takes int8"),
    ("id = \"result.id\"", "id = \"param.nobody\"", "undo: the tool has no parameter nobody"),
    ("id = \"result.id\"", "id = \"before.id\"", "undo: before.x needs a before query"),
    ("id = \"before.id\"", "id = \"before.size\"", "undo: before.size is not returned; there are id, label"),
    (
        "description = \"What to call it.\"",
        "description = 'x'\nsensitive = true",
        "undo: label is sensitive, and the answer would show it",
    ),
    (
        "description = \"What to call it.\"",
        "description = 'x'\ndefault = 'y'",
        "undo: where before.label is NULL, label of put would become its default",
    ),
    (
        "rows = \"one\"\n[[tool.param]]",
        "rows = \"any\"\nmax_rows = 5\n[[tool.param]]",
        "undo: the result may have several rows",
    ),
    // Bounds of a write
    (
        "rows = \"one\"\n[[tool.param]]\nname = \"who\"\nfrom = \"principal.account_id\"\n[[tool.param]]\nname = \"id\"\ndescription = \"Which one.\"",
        "rows = 'some'\n[[tool.param]]\nname = 'who'\nfrom = 'principal.account_id'\n[[tool.param]]\nname = 'id'\ndescription = 'It.'",
        "m0.toml:36:8: tool drop: a write of rows = \"some\" needs max_rows (1 to 10000)",
    ),
    ("rows = \"one\"\n", "rows = 'one'\nmax_rows = 1\n", "rows = \"one\" is a bound already"),
    (
        "access = \"read\"",
        "access = \"read\"\nmax_rows = 5",
        "m0.toml:7:12: tool show: the server bounds what a read returns",
    ),
    // What statements touch
    (
        "select id from social.note where id = $1",
        "select id from countersign.mutation where id = $1",
        "m0.toml:8:7: tool show: sql touches schema countersign, which is the ledger",
    ),
    (
        "select id from social.note where id = $1",
        "select $1::bigint as id from countersign.sweep(interval '0', 1)",
        "tool show: sql touches schema countersign",
    ),
    (
        "values ($1, $2, $3) returning id, size, at",
        "values ($1, $2, $3) returning id, size, at, countersign.superseded_by(gen_random_uuid()) is null as claimed",
        "m0.toml:15:7: tool put: sql touches schema countersign",
    ),
    (
        "select id, label::varchar from social.note",
        "select (countersign.superseded_by(gen_random_uuid()) is null)::int::bigint as id, label::varchar from social.note",
        "m0.toml:35:10: tool drop: before touches schema countersign",
    ),
    (
        "select id, label::varchar from social.note where account_id = $1 and id = $2 for update",
        "delete from social.note where account_id = $1 and id = $2 returning id, label::varchar",
        "m0.toml:35:10: tool drop: before only looks, and this statement changes rows",
    ),
    (
        "select id from social.note where id = $1",
        "delete from social.note where id = $1 returning id",
        "m0.toml:8:7: tool show: a read changes nothing, and this statement changes rows",
    ),
    ("rows = \"one\"\n", "rows = 'one'\nafter = 'delete from social.note'\n", "tool put: after captures rows"),
    ("access = \"read\"", "access = \"read\"\nafter = 'select 1 as one'\n", "tool show: a read leaves everything"),
    // Sensitive parameters
    (
        "name = \"id\", description = \"Which.\", default = 3",
        "name = 'id', description = 'Which.', default = 3, sensitive = true",
        "m0.toml:9:59: tool show: parameter id: a sensitive parameter has no default",
    ),
    (
        "from = \"principal.account_id\"",
        "from = \"principal.account_id\"\nsensitive = true",
        "parameter who: a sensitive parameter has no from: what the server fills in is no secret",
    ),
    (
        "default = 3",
        "enum = [1], sensitive = true",
        "parameter id: a sensitive parameter has no enum: what the file says is no secret",
    ),
    ("tool = \"put\"\n", "tool = 'put'\nfor_each = 'result'\n", "undo: for_each goes over result rows"),
    ("tool = \"put\"\nparams", "tool = 'show'\nparams", "undo: show is not a write tool"),
];

#[tokio::test]
async fn each_mistake_is_named_with_its_place_and_without_its_consequences() {
    // These come with a second mistake by their nature.
    let pairs = ["undo: for_each goes over", "two parameters have this name", "two tools have this name"];
    check_each(HEALTHY, &*database(NOTES).await, SINGLE, &pairs).await;
}

#[tokio::test]
async fn a_write_may_leave_its_undo_to_its_recorded_changes() {
    // Whether they are recorded is not known here: tests/acceptance/tracking/checked.rs.
    let undo = HEALTHY.split("[tool.undo]").nth(1).unwrap().split("[[tool]]").next().unwrap();
    let text = HEALTHY.replacen(&format!("[tool.undo]{undo}"), "", 1);
    let catalog = compile(&[&text], &*database(NOTES).await).await.unwrap();
    let put = catalog.get("put").unwrap();
    assert_eq!(put.undo, UndoSpec::None);
}

#[tokio::test]
async fn a_write_without_returning_is_refused() {
    let found = diagnostics(&*database(NOTES).await, " returning id, size, at", "").await;
    assert!(found.contains("m0.toml:15:7: tool put: the last statement of a write returns what it did"), "{found}");
}

#[tokio::test]
async fn a_smaller_integer_fits_a_larger_one_and_text_of_one_name_fits_another() {
    assert_eq!(diagnostics(&*database(NOTES).await, "id = \"result.id\"", "id = \"result.size\"").await, "");
}

#[tokio::test]
async fn a_file_that_is_not_toml_is_one_mistake_and_the_others_are_still_checked() {
    let broken = "name = \"n\"\nversion = = 1\n[[tool]]\n";
    let other = HEALTHY.replacen("rows = \"one\"\n", "", 1);
    let found = compile(&[broken, &other], &*database(NOTES).await).await.unwrap_err().to_string();
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines.len(), 2, "{found}");
    assert!(lines[0].starts_with("m0.toml:2:11: this is not TOML: "), "{found}");
    assert!(lines[1].starts_with("m1.toml:12:8: tool put: a write says how many"), "{found}");
}

#[tokio::test]
async fn all_mistakes_are_reported_at_once_in_the_order_of_the_file() {
    let found = compile(
        &["name = 'n'\ncolour = 1\n[[tool]]\nname = 'a b'\nrows = 'lots'\nsize = 1\nshape = 2\n\
           [[tool.param]]\nfrom = 1\nwhy = 2\n[[tool]]\nname = 'c'\naccess = 'write'\nsql = 'oops'\n"],
        &*database("").await,
    )
    .await
    .unwrap_err()
    .to_string();
    let expected = [
        "m0.toml:1:1: a manifest needs a version",
        "m0.toml:2:1: unknown field `colour`",
        "m0.toml:3:1: tool a b: sql is needed",
        "m0.toml:4:8: tool a b: a description is needed",
        "m0.toml:4:8: tool a b: a tool says what it may do",
        "m0.toml:4:8: tool a b: clients reject this name",
        "m0.toml:5:8: tool a b: rows: unknown variant `lots`",
        "m0.toml:6:1: tool a b: unknown field `size`",
        "m0.toml:7:1: tool a b: unknown field `shape`",
        "m0.toml:8:1: tool a b: a parameter needs a name",
        "m0.toml:9:8: tool a b: from: invalid type: integer `1`, expected a string",
        "m0.toml:10:1: tool a b: unknown field `why`",
        "m0.toml:12:8: tool c: a description is needed",
        "m0.toml:12:8: tool c: a write says how many rows are right",
        "m0.toml:14:8: tool c: sql: syntax error at or near \"oops\"",
    ];
    for message in expected {
        assert!(found.contains(&message[message.find(": ").unwrap()..]), "{message}\nis not in\n{found}");
    }
    assert_eq!(found.lines().count(), expected.len(), "{found}");
}

#[tokio::test]
async fn an_unreachable_database_is_one_mistake_beside_those_of_the_file() {
    let nobody = Ledger::new(
        ConnectOptions::parse("host=/nonexistent dbname=none user=nobody").unwrap(),
        ledger::LedgerOptions::default(),
    );
    let found = compile(&[&HEALTHY.replacen("rows = \"one\"\n", "", 1)], &nobody).await.unwrap_err().to_string();
    assert_eq!(found.lines().count(), 2, "{found}");
    assert!(found.contains("m0.toml:8:7: tool show: the database could not be asked whether this fits: "), "{found}");
    assert!(found.contains("Cannot connect to database at [/nonexistent (unix socket, port 5432)]"), "{found}");
    assert!(found.contains("a write says how many rows are right"), "{found}");
}
