//! Mistakes of the command line, and what has no tools.

use testkit::{Database, database, run_countersign};

use super::scaffold;

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_does_not_exist_is_answered_with_the_nearest_ones() {
    let db = database().await;
    for (schema, arguments, message) in [
        ("socail", &[][..], "there is no schema \"socail\"; the nearest names are: social"),
        ("social", &["--table", "twet"], "the schema \"social\" has no table \"twet\"; the nearest names are: tweet"),
        ("social", &["--table", "social.acount"], "has no table \"social.acount\"; the nearest names are: account"),
        ("social", &["--table", "tweet", "--table", "xyzzy"], "the schema \"social\" has no table \"xyzzy\"\n"),
        ("countersign", &[], "the schema \"countersign\" belongs to the system or to the ledger"),
        ("pg_catalog", &[], "the schema \"pg_catalog\" belongs to the system"),
        ("public", &[], "the schema \"public\" has no table"),
    ] {
        let ran = scaffold(&db, schema, arguments).await;
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{schema}");
        assert!(ran.err.contains(message), "{}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_cannot_have_tools_are_named_with_the_reason() {
    let db = database().await;
    db.run(
        "create schema s;
         create table s.orders (id int primary key, total numeric);
         create table s.log (note text);
         create view s.totals as select sum(total) from s.orders;
         create materialized view s.daily as select * from s.orders;
         create table s.reading (day date, value int, primary key (day)) partition by range (day);
         create table s.reading_1 partition of s.reading for values from ('2026-01-01') to ('2027-01-01');
         create table s.tag (name text primary key);
         create table s.base (id int primary key, name text);
         create table s.child (primary key (id)) inherits (s.base)",
    )
    .await;
    let ran = scaffold(&db, "s", &[]).await;
    let left_out: Vec<&str> = ran.err.lines().filter_map(|line| line.strip_prefix("left out  ")).collect();
    assert_eq!(
        left_out,
        [
            "s.base: other tables inherit from it, whose rows can have the same keys",
            "s.daily: a view: the ledger records the changes of tables only",
            "s.log: has no primary key, and no unique one over columns that are NOT NULL",
            "s.reading_1: a partition: the tools of its table write it",
            "update of s.tag: only its key has values of an agent",
            "s.totals: a view: the ledger records the changes of tables only",
        ]
    );
    assert!(left_out.iter().all(|line| ran.out.contains(&format!("# - {line}\n"))), "{}", ran.out);
    let nothing = scaffold(&db, "s", &["--table", "log"]).await;
    assert_eq!((nothing.code, nothing.out.as_str()), (1, ""));
    assert!(nothing.err.contains("no table can have tools:\ns.log: has no primary key"), "{}", nothing.err);
}

/// N-21
#[tokio::test(flavor = "multi_thread")]
async fn one_manifest_has_the_tools_that_are_chosen_of_several_schemas() {
    let db = database().await;
    db.run(
        "create schema s; create table s.orders (id int primary key, note text);
         create schema t; create table t.orders (id int primary key); create table t.item (id int primary key, name text)",
    )
    .await;
    let names = |text: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|line| *line != "[[tool]]");
        let mut starts = Vec::new();
        let lines: Vec<&str> = lines.collect();
        for (index, line) in lines.iter().enumerate() {
            if *line == "[[tool]]" {
                starts.push(lines[index + 1].trim_start_matches("name = ").trim_matches('"').to_owned());
            }
        }
        starts
    };
    let ran = scaffold(&db, "s", &["--schema", "t", "--only", "insert,update"]).await.succeeded();
    let tools = ["insert_orders", "update_orders", "insert_item", "update_item", "insert_orders_2"];
    assert_eq!(names(&ran.out), tools, "{}", ran.out);
    assert!(ran.out.contains("\nname = \"s, t\"\n"), "{}", ran.out);
    assert!(ran.err.contains("5 tools, about "), "{}", ran.err);
    assert!(
        ran.err.contains("countersign scaffold --schema s --schema t --only insert,update --grants | psql"),
        "{}",
        ran.err
    );
    let ran =
        scaffold(&db, "s", &["--schema", "t", "--table", "item", "--table", "s.orders", "--only", "delete"]).await;
    assert_eq!(names(&ran.out), ["delete_orders", "delete_item"], "{}", ran.out);
    let ran = scaffold(&db, "s", &["--schema", "t", "--table", "itm"]).await;
    let message = "none of the schemas \"s\", \"t\" has a table \"itm\"; the nearest names are: item";
    assert!(ran.code == 1 && ran.err.contains(message), "{}", ran.err);
    let ran = scaffold(&db, "s", &["--only", "upsert"]).await;
    assert!(ran.code == 2 && ran.err.contains("a kind of tool is insert, update or delete"), "{}", ran.err);

    // Many tools: what they cost, and what to do instead.
    assert!(!scaffold(&db, "t", &[]).await.err.contains("execute_sql"));
    let tables = |number: usize| format!("create table s.many_{number} (id int primary key, note text)");
    db.run(&(1..=10).map(tables).collect::<Vec<_>>().join(";")).await;
    let ran = scaffold(&db, "s", &[]).await;
    assert!(ran.err.contains("33 tools are more than most agents choose well from"), "{}", ran.err);
    assert!(ran.err.contains("--only insert,update") && ran.err.contains("execute_sql"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_gets_no_tools_for_tables_that_it_may_not_read() {
    let db = Database::empty("scaffold_rights").await;
    db.run(
        "create schema s; create table s.a (id int primary key, secret text); create table s.b (id int primary key);
         create role scaffold_reader login; grant usage on schema s to scaffold_reader;
         grant select (id) on s.a to scaffold_reader; grant select on s.b to scaffold_reader",
    )
    .await;
    let url = db.url_as("scaffold_reader");
    // There is no ledger either: the catalog is all that is read.
    let ran = run_countersign(&url, &["scaffold", "--schema", "s"]).await.succeeded();
    assert!(ran.err.contains("left out  s.a: this login may not read its column secret\n"), "{}", ran.err);
    assert!(ran.out.contains("\"delete_b\"") && !ran.out.contains("\"delete_a\""), "{}", ran.out);
    db.run("drop owned by scaffold_reader; drop role scaffold_reader").await;
}
