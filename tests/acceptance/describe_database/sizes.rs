//! Sizes of answers in databases of thousands of schemas, tables and references.

use serde_json::{Value, json};

use super::{describe, named, names, shop};

/// 2,000 tables in one schema and 40 in another, each with a comment.
const MANY: &str = "
    create schema many; create schema few;
    do $$ begin
        for i in 1..2000 loop
            execute format('create table many.customer_%s (id int, since date)', i);
            execute format('comment on table many.customer_%s is %L', i, 'What customer ' || i || ' has ordered.');
        end loop;
        for i in 1..40 loop execute format('create table few.t%s ()', i); end loop;
    end $$;
    grant usage on schema many, few to countersign_reader;
    grant select on all tables in schema many, few to countersign_reader";

fn bytes(data: &Value) -> usize {
    data.to_string().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overview_of_thousands_of_tables_is_small_and_lists_its_omissions() {
    let (db, server) = shop().await;
    assert!(bytes(&describe(&server, json!({})).await) < 4 << 10, "small databases have small answers");
    db.run(MANY).await;
    let data = describe(&server, json!({})).await;
    assert!(bytes(&data) < 17 << 10, "{}", bytes(&data));
    assert_eq!(names(&data["schemas"]), ["few", "many", "public", "shop", "social", "studio"]);
    assert_eq!(data["truncated"], true);
    // The largest schema loses its tables, and no other one does.
    assert_eq!(data["schemas"][1], json!({"name": "many", "table_count": 2000}));
    for (schema, count) in [("shop", 7), ("social", 7), ("studio", 5), ("few", 40)] {
        assert_eq!(named(&data["schemas"], schema)["tables"].as_array().unwrap().len(), count, "{schema}");
    }

    // Asked for alone it has as many names as fit, and a table is found among all of them.
    let data = describe(&server, json!({"schema": "many"})).await;
    assert!(bytes(&data) < 17 << 10, "{}", bytes(&data));
    let schema = &data["schemas"][0];
    assert_eq!((schema.get("tables"), &schema["table_count"], &data["truncated"]), (None, &json!(2000), &json!(true)));
    assert!(schema["table_names"].as_array().unwrap().len() > 500, "{}", schema["table_names"]);
    let found = describe(&server, json!({"search": "customer_1999", "schema": "many"})).await;
    assert_eq!((names(&found["found"]["tables"]), &found["truncated"]), (vec!["customer_1999"], &json!(false)));
    let found = describe(&server, json!({"search": "customer"})).await;
    assert_eq!((found["found"]["tables"].as_array().unwrap().len(), &found["truncated"]), (50, &json!(true)));
    assert!(found["hint"].as_str().unwrap().contains("a longer part") && data["hint"].is_string(), "{found}");
    assert!(bytes(&found) < 17 << 10, "{}", bytes(&found));
    assert_eq!(describe(&server, json!({"schema": "shop"})).await["truncated"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_schemas_do_not_make_an_overview_large() {
    let (db, server) = shop().await;
    db.run(
        "do $$ begin for i in 1..1500 loop
            execute format('create schema tenant_%s', i);
            execute format('grant usage on schema tenant_%s to countersign_reader', i);
        end loop; end $$",
    )
    .await;
    let data = describe(&server, json!({})).await;
    assert!(bytes(&data) < 17 << 10, "{}", bytes(&data));
    assert_eq!(data["truncated"], true);
    assert!(names(&data["schemas"]).contains(&"shop"), "{data}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_everything_refers_to_shows_a_hundred_references() {
    let (db, server) = shop().await;
    db.run(
        "do $$ begin for i in 1..130 loop
            execute format('create table shop.r%s (product bigint references shop.product)', i);
        end loop; end $$;
        grant select on all tables in schema shop to countersign_reader;
        create type shop.many as enum ('l0'); create table shop.labelled (l shop.many);
        grant select on shop.labelled to countersign_reader",
    )
    .await;
    let data = describe(&server, json!({"table": "product"})).await;
    assert_eq!((data["table"]["referenced_by"].as_array().unwrap().len(), &data["truncated"]), (100, &json!(true)));
    assert_eq!(describe(&server, json!({"table": "labelled"})).await["truncated"], false);
    for label in 1..130 {
        db.run(&format!("alter type shop.many add value 'l{label}'")).await;
    }
    let data = describe(&server, json!({"table": "labelled"})).await;
    let labels = data["table"]["columns"][0]["enum_labels"].as_array().unwrap();
    assert_eq!((labels.len(), &labels[99], &data["truncated"]), (100, &json!("l99"), &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_tables_are_described_in_one_call_as_far_as_they_fit() {
    let (db, server) = shop().await;
    let data = describe(&server, json!({"schema": "shop", "tables": ["product", "visit", "bargain"]})).await;
    assert_eq!((names(&data["tables"]), &data["truncated"]), (vec!["product", "visit", "bargain"], &json!(false)));
    assert_eq!(data["tables"][0], describe(&server, json!({"table": "shop.product"})).await["table"]);
    let sql = data["tables"][2]["view_sql"].as_str().unwrap();
    // From PostgreSQL 16 on, the columns of the only table have no prefix.
    assert!(sql.contains("FROM shop.product") && sql.contains("WHERE ") && sql.contains("price::numeric <"), "{sql}");
    assert_eq!(data["tables"][0].get("view_sql"), None);

    let columns: Vec<String> = (0..300).map(|n| format!("a_column_with_a_long_name_{n} text")).collect();
    let columns = columns.join(", ");
    db.run(&format!(
        "create table shop.wide_1 ({columns}); create table shop.wide_2 ({columns}); \
                     grant select on shop.wide_1, shop.wide_2 to countersign_reader"
    ))
    .await;
    let data = describe(&server, json!({"tables": ["shop.product", "shop.wide_1", "shop.wide_2"]})).await;
    assert_eq!(names(&data["tables"]), ["product", "wide_1"]);
    assert_eq!((&data["left_out"], &data["truncated"]), (&json!(["shop.wide_2"]), &json!(true)));
    for (arguments, code) in [
        (json!({"tables": ["shop.product", "shop.nothing"]}), "not_found"),
        (json!({"tables": ["shop.product"], "table": "shop.product"}), "invalid_params"),
        (json!({"tables": ["shop.product"], "search": "x"}), "invalid_params"),
    ] {
        server.fail("describe_database", arguments, code).await;
    }
}
