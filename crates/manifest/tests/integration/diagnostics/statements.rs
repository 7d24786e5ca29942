//! Errors of PostgreSQL in a statement: each is shown at its place in the file.

use super::{NOTES, SHOW_SQL, diagnostics};
use crate::support::database;

/// Each: the statement of `show` as it is written in the file, and what PostgreSQL 15 says of it.
const REFUSED: &[(&str, &str)] = &[
    (
        "\"\"\"\nselect 'ä',\n  oops\n\"\"\"",
        "m0.toml:10:3: tool show: sql: column \"oops\" does not exist (SQLSTATE 42703)",
    ),
    (
        "\"\"\"\r\nselect 'ä',\r\n\r\n  oops\r\n\"\"\"",
        "m0.toml:11:3: tool show: sql: column \"oops\" does not exist (SQLSTATE 42703)",
    ),
    (
        "\"\"\"\\\n    select '\\u00e4', \\\n    oops\"\"\"",
        "m0.toml:10:5: tool show: sql: column \"oops\" does not exist (SQLSTATE 42703)",
    ),
    (
        "'select id frm social.note'",
        "m0.toml:8:22: tool show: sql: syntax error at or near \"social\" (SQLSTATE 42601)",
    ),
    ("'select id from'", "m0.toml:8:22: tool show: sql: syntax error at end of input (SQLSTATE 42601)"),
    ("'select id from note'", "m0.toml:8:23: tool show: sql: relation \"note\" does not exist (SQLSTATE 42P01)"),
    (
        "'select id from social.note where label = id'",
        "m0.toml:8:47: tool show: sql: operator does not exist: text = bigint (SQLSTATE 42883); \
         hint: No operator matches the given name and argument types. You might need to add explicit type casts.",
    ),
    (
        "'select 1; select 2'",
        "m0.toml:8:7: tool show: sql: cannot insert multiple commands into a prepared statement (SQLSTATE 42601)",
    ),
    (
        "'select coalesce($1, size, at) from social.note'",
        "m0.toml:8:34: tool show: sql: COALESCE types integer and timestamp with time zone cannot be matched \
         (SQLSTATE 42804)",
    ),
    (
        "\"select 'a\\u0000b', oops\"",
        "m0.toml:8:17: tool show: sql: invalid byte sequence for encoding \"UTF8\": 0x00 (SQLSTATE 22021)",
    ),
];

#[tokio::test]
async fn an_error_of_postgresql_is_shown_at_its_place_in_the_file() {
    let database = database(NOTES).await;
    for (sql, message) in REFUSED {
        assert_eq!(diagnostics(&database, SHOW_SQL, &format!("sql = {sql}\n")).await, *message, "{sql}");
    }
}
