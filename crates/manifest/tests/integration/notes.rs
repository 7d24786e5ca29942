//! Notes on what exists, and on what does not.

use crate::support::{compile, database};

const HEAD: &str = "name = \"n\"\nversion = \"1\"\n";

fn note(on: &str, text: &str) -> String {
    format!("[[note]]\non = '{on}'\ntext = '{text}'\n")
}

#[tokio::test]
async fn a_note_names_a_schema_table_view_or_column_in_sql_notation() {
    let database = database(
        "create schema \"My Shop\"; create table \"My Shop\".\"a.b\" (\"row_to_json\" int, a int, \"Größe\"\"x\" text); \
         create view social.handles as select handle from social.account",
    )
    .await;
    let all = [
        ("social", ("social", None, None)),
        ("Social.Tweet", ("social", Some("tweet"), None)),
        ("social.handles", ("social", Some("handles"), None)),
        ("social.handles.handle", ("social", Some("handles"), Some("handle"))),
        ("\"My Shop\"", ("My Shop", None, None)),
        ("\"My Shop\".\"a.b\".row_to_json", ("My Shop", Some("a.b"), Some("row_to_json"))),
        ("\"My Shop\".\"a.b\".a", ("My Shop", Some("a.b"), Some("a"))),
        ("\"My Shop\".\"a.b\".\"Größe\"\"x\"", ("My Shop", Some("a.b"), Some("Größe\"x"))),
    ];
    let notes: String = all.iter().map(|(on, _)| note(on, " Know this. ")).collect();
    // A manifest of nothing but notes is one.
    let catalog = compile(&[&format!("{HEAD}{notes}")], &database).await.unwrap();
    assert!(catalog.tools.is_empty());
    for (note, (on, (schema, table, column))) in catalog.notes.iter().zip(all) {
        assert_eq!(
            (note.schema.as_str(), note.table.as_deref(), note.column.as_deref()),
            (schema, table, column),
            "{on}"
        );
        assert_eq!(note.text, "Know this.");
    }
    assert_eq!(catalog.notes.len(), 8);
}

#[tokio::test]
async fn a_missing_object_is_a_mistake_at_its_place() {
    let database = database("").await;
    let long = "x".repeat(1001);
    for (note, diagnostic) in [
        (note("socal", "x"), "m0.toml:4:6: on: schema \"socal\" does not exist (SQLSTATE 3F000)"),
        (note("social.twet", "x"), "m0.toml:4:6: on: relation \"social.twet\" does not exist (SQLSTATE 42P01)"),
        (note("socal.tweet", "x"), "m0.toml:4:6: on: relation \"socal.tweet\" does not exist (SQLSTATE 42P01)"),
        (note("social.tweet.txt", "x"), "m0.toml:4:6: on: column \"txt\" does not exist (SQLSTATE 42703); hint: "),
        // What would be a call of a function, or the row itself.
        (note("social.tweet.row_to_json", "x"), "m0.toml:4:6: on: column \"row_to_json\" does not exist"),
        (note("social.tweet.tweet", "x"), "m0.toml:4:6: on: column \"tweet\" does not exist"),
        (note("social.tweet.a", "x"), "m0.toml:4:6: on: column \"a\" does not exist"),
        (note("Social.\"Tweet\"", "x"), "m0.toml:4:6: on: relation \"social.Tweet\" does not exist"),
        (note("a.b.c.d", "x"), "m0.toml:4:6: on names a schema, a table or a column as SQL does: social, social.tweet"),
        (note("social.tweet; drop table social.tweet", "x"), "m0.toml:4:6: on names a schema"),
        (note("", "x"), "m0.toml:4:6: on names a schema"),
        (note("countersign.mutation", "x"), "m0.toml:4:6: the system's schemas and the ledger are never described"),
        (note("pg_catalog.pg_class", "x"), "m0.toml:4:6: the system's schemas"),
        (note("social", " "), "m0.toml:5:8: a note needs a text"),
        (note("social", &long), "m0.toml:5:8: a note has at most 1000 characters"),
        ("[[note]]\ntext = 'x'\n".to_owned(), "m0.toml:3:1: on names a schema"),
        ("[[note]]\non = 'social'\n".to_owned(), "m0.toml:3:1: a note needs a text"),
        ("[[note]]\non = 5\ntext = 'x'\n".to_owned(), "m0.toml:4:6: on: invalid type: integer `5`, expected a string"),
        ("[[note]]\non = 'social'\ntext = 'x'\ntable = 'y'\n".to_owned(), "m0.toml:6:1: unknown field `table`"),
        ("[note]\non = 'social'\ntext = 'x'\n".to_owned(), "note is written as [[note]], with two brackets"),
        (String::new(), "a manifest declares at least one [[tool]] or [[note]]"),
    ] {
        let diagnostics = compile(&[&format!("{HEAD}{note}")], &database).await.unwrap_err().to_string();
        assert!(diagnostics.contains(diagnostic) && diagnostics.lines().count() == 1, "{note}: {diagnostics}");
    }
}

#[tokio::test]
async fn every_mistake_of_notes_and_tools_is_reported_at_once() {
    let tool = "[[tool]]\nname = 't'\naccess = 'read'\ndescription = 'x'\nsql = 'select nope from social.tweet'\n";
    let text = format!("{HEAD}{}{tool}{}", note("social.twet", "x"), note("social.tweet.nope", ""));
    let diagnostics = compile(&[&text], &*database("").await).await.unwrap_err().to_string();
    let places: Vec<&str> = diagnostics.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(places, ["m0.toml:4:6", "m0.toml:10:15", "m0.toml:12:6", "m0.toml:13:8"], "{diagnostics}");
}
