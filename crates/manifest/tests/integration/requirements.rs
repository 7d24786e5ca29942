//! `requires`: a tool is left out, without a mistake, where the database lacks something.

use crate::support::{compile, database};

/// A manifest with a tool that requires this, and one that requires nothing.
fn manifest(access: &str, requires: &str, sql: &str) -> String {
    format!(
        r#"name = "n"
version = "1"

[[tool]]
name = "asks"
access = "{access}"
description = "It asks."
requires = {requires}
sql = "{sql}"

[[tool]]
name = "plain"
access = "read"
description = "It asks for nothing."
sql = "select 1 as one"
"#
    )
}

#[tokio::test]
async fn a_tool_without_its_extension_or_role_is_left_out_and_says_what_is_missing() {
    let db = database("create role requirements_monitor").await;
    for (requires, missing) in [
        ("{ extension = \"no such\" }", "the database lacks the extension no such (create extension \"no such\")"),
        ("{ role = \"no such\" }", "the login postgres lacks the role no such (grant \"no such\" to postgres)"),
    ] {
        let catalog = compile(&[&manifest("read", requires, "select no mistake is found in this")], &db).await.unwrap();
        let served: Vec<&str> = catalog.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(served, ["plain"]);
        let left_out: Vec<String> = catalog.left_out.iter().map(ToString::to_string).collect();
        assert_eq!(left_out, [format!("m0.toml:8:12: tool asks: {missing}")]);
        assert!(catalog.outdated.is_empty() && catalog.declared.len() == 2);
    }
    // A superuser has the privileges of every role.
    let catalog =
        compile(&[&manifest("read", "{ role = \"requirements_monitor\" }", "select 1 as a")], &db).await.unwrap();
    assert_eq!((catalog.tools.len(), catalog.left_out.len()), (2, 0));
}

#[tokio::test]
async fn the_statement_names_the_schema_of_the_extension_whatever_it_is() {
    let db = database("create schema \"Odd one\"; create extension hstore schema \"Odd one\"").await;
    let asks = async |sql: &str| compile(&[&manifest("read", "{ extension = \"hstore\" }", sql)], &db).await;
    let catalog =
        asks("select {extension}.hstore('a', 'b') as one, {extension}.hstore('c', 'd') as two").await.unwrap();
    let sql = &catalog.get("asks").unwrap().statements[0].sql;
    assert_eq!(sql, "select \"Odd one\".hstore('a', 'b') as one, \"Odd one\".hstore('c', 'd') as two");
    let mistakes = asks("select {extension}.nothing()").await.unwrap_err().to_string();
    assert!(
        mistakes.contains("m0.toml:9:") && mistakes.contains("function Odd one.nothing() does not exist"),
        "{mistakes}"
    );
}

#[tokio::test]
async fn a_write_requires_nothing_and_a_requirement_has_a_name() {
    let db = database("select 1").await;
    for (access, requires, said) in [
        ("write", "{ role = \"r\" }", "requires is for reads"),
        ("read", "{}", "requires names an extension, a role, or both"),
        ("read", "{ extension = \"\" }", "the extension or role that it requires has no name"),
        ("read", "{ extensions = \"x\" }", "unknown field `extensions`"),
    ] {
        let mistakes = compile(&[&manifest(access, requires, "select 1 as a")], &db).await.unwrap_err().to_string();
        assert!(mistakes.contains("m0.toml:8:") && mistakes.contains(said), "{requires}: {mistakes}");
    }
}
