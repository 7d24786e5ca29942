//! Errors that let a model correct itself: the line that is meant, and the nearest names that exist.

use serde_json::{Value, json};
use testkit::{Server, database};

async fn failure(server: &Server, query: &str) -> Value {
    server.fail("query_database", json!({"query": query}), "sql_error").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_name_is_answered_with_the_nearest_that_exist() {
    let db = database().await;
    db.run(
        "create schema shop; create table shop.\"Order\" (n int, \"customerName\" text); create table shop.tweet (n int); \
         create function shop.discount(int, text) returns int language sql as 'select 1'; \
         create table shop.hidden_table (n int); grant usage on schema shop to countersign_reader; \
         grant select on shop.\"Order\", shop.tweet to countersign_reader",
    )
    .await;
    let server = Server::on(&db).await;
    for (query, sqlstate, hint) in [
        // Tables
        ("select * from social.tweets", "42P01", "The nearest tables that exist: social.tweet, shop.tweet."),
        ("select * from tweet", "42P01", "shop.tweet, social.tweet, "),
        ("select * from shop.twet", "42P01", "shop.tweet, social.tweet."),
        ("select * from shop.order_", "42P01", "shop.\"Order\"."),
        ("select * from orders", "42P01", "shop.\"Order\"."),
        ("table social . \"acount\"", "42P01", "social.account."),
        ("select acount.handle from social.account", "42P01", "social.account."),
        ("select social.acount.handle from social.account", "42P01", "social.account."),
        // Columns, of the tables that the query names
        ("select type from social.media", "42703", "The nearest columns that exist: media_type (in social.media)."),
        ("select t.reply from social.tweet t", "42703", "in_reply_to_id (in social.tweet)."),
        ("select customer from shop.\"Order\"", "42703", "\"customerName\" (in shop.\"Order\")."),
        ("select price from social.tweet_like", "42703", "social.tweet_like has: account_id, tweet_id."),
        // Functions
        ("select arry_length('{1}'::int[], 1)", "42883", "The nearest functions that exist: array_length"),
        ("select discount(1)", "42883", "It exists as: shop.discount(integer, text)."),
        ("select round(1.5::float8, 2)", "42883", "It exists as: "),
    ] {
        let error = failure(&server, query).await;
        assert_eq!(error["sqlstate"], sqlstate, "{query}: {error}");
        assert!(error["hint"].as_str().unwrap_or_default().contains(hint), "{query}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_may_not_be_read_are_never_suggested() {
    let db = database().await;
    db.run("revoke all on social.bookmark from countersign_reader").await;
    let server = Server::on(&db).await;
    for query in [
        "select * from social.bookmarks",
        "select * from mutation_audits",
        "select * from countersign.mutation_audits",
        "select zzz from social.tweet, (select 1) bookmark",
        "select admitt(1)",
    ] {
        let hint = server.call("query_database", json!({"query": query})).await["error"]["hint"].to_string();
        for hidden in ["bookmark", "countersign", "mutation", "admit"] {
            assert!(!hint.contains(hidden), "{query}: {hint}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_line_that_the_position_points_into_is_shown() {
    let db = database().await;
    let server = Server::on(&db).await;
    let error = failure(&server, "select id,\n\ttext\nfrom social.tweet\nwhere handel = 'é'").await;
    assert_eq!(error["position"], 42, "{error}");
    assert_eq!(error["detail"], "LINE 4: where handel = 'é'\n              ^");
    let error = failure(&server, "select 1 +").await;
    assert_eq!(error["detail"], "LINE 1: select 1 +\n                  ^", "just behind the end");
    // PostgreSQL's own words come first.
    let error = failure(&server, "select 1/0").await;
    assert_eq!((error.get("position"), error.get("detail")), (None, None), "there is no place to show: {error}");
    let error = failure(&server, "select handel from social.account").await;
    assert!(error["hint"].as_str().unwrap().starts_with("Perhaps you meant to reference the column"), "{error}");
    assert!(!error["hint"].as_str().unwrap().contains("nearest"), "PostgreSQL's hint is enough: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_names_cannot_be_looked_up_the_error_is_what_it_was() {
    let db = database().await;
    let server = Server::on(&db).await;
    let with_hint = failure(&server, "select * from social.tweets").await;
    db.run("revoke select on pg_catalog.pg_class from public").await;
    let without = failure(&server, "select * from social.tweets").await;
    assert_eq!(without.get("hint"), None, "{without}");
    for field in ["code", "message", "sqlstate", "position", "detail", "retryable"] {
        assert_eq!(without[field], with_hint[field], "{field}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_that_hangs_costs_two_seconds_and_hides_nothing() {
    let db = database().await;
    let server = Server::on(&db).await;
    server.query("select 1").await;
    let changing = db.connect().await;
    changing.batch_execute("begin; lock table pg_catalog.pg_attribute in access exclusive mode").await.unwrap();
    let started = std::time::Instant::now();
    let answered = server.call("query_database", json!({"query": "select * from social.tweets"})).await;
    assert!(started.elapsed().as_secs() < 6, "{:?}", started.elapsed());
    changing.batch_execute("rollback").await.unwrap();
    assert_eq!(answered["error"]["sqlstate"], "42P01", "{answered}");
    assert_eq!(answered["error"].get("hint"), None, "the lookup did hang: {answered}");
}
