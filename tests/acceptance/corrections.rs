//! Errors contain what an agent needs to correct its call: the line in question, and the nearest existing names.

use serde_json::{Value, json};
use testkit::{ConfigDir, Server, database};

async fn failure(server: &Server, query: &str) -> Value {
    server.fail("query_database", json!({"query": query}), "sql_error").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_name_is_answered_with_the_nearest_that_exist() {
    let db = database().await;
    db.run(
        "create schema shop; create table shop.\"Order\" (n int, \"customerName\" text); create table shop.tweet (n int, \"group\" text); \
         create type shop.color as enum ('red'); \
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
        (
            "select x.price from social.tweet_like x order by x.price",
            "42703",
            "social.tweet_like has: account_id, tweet_id.",
        ),
        (
            "select 1 from social.tweet_like natural join social.follow where price = 1",
            "42703",
            "social.follow has: account_id, target_user_id. social.tweet_like has: account_id, tweet_id.",
        ),
        ("select tweet from social.follow", "42703", "social.follow has: account_id, target_user_id."),
        // PostgreSQL says no place for these.
        (
            "select 1 from social.tweet join social.tweet_like using (id)",
            "42703",
            "social.tweet_like has: account_id, tweet_id.",
        ),
        (
            "select 1 from social.tweet_like a join social.tweet_like b using (tweetid)",
            "42703",
            "The nearest columns that exist: tweet_id (in social.tweet_like).",
        ),
        (
            "select id from social.tweet t, social.media m",
            "42702",
            "It is in: social.media, social.tweet. Write the table's",
        ),
        // Types, as SQL calls them
        ("select '1'::integr", "42704", "The nearest types that exist: integer."),
        ("select cast('1' as txt)", "42704", "The nearest types that exist: text."),
        ("select 'a'::colour", "42704", "The nearest types that exist: shop.color."),
        // Keywords, and names that are keywords
        ("selec 1", "42601", "\"selec\" is no keyword. The nearest are: SELECT."),
        ("select * form social.tweet", "42601", "\"form\" is no keyword. The nearest are: FROM, "),
        ("select * from social.tweet wher id = 1", "42601", "\"wher\" is no keyword. The nearest are: "),
        ("select id from social.tweet odrer by id", "42601", "\"odrer\" is no keyword. The nearest are: ORDER."),
        ("select * from order", "42601", "shop.\"Order\" is a table: a keyword is a name only in double quotes."),
        ("select n, group from shop.tweet", "42601", "shop.tweet has a column \"group\": a keyword is a name only"),
        // Names with capital letters
        (
            "select customerName from shop.\"Order\"",
            "42703",
            // N-23: as SQL needs it.
            "Perhaps you meant to reference the column \"Order.customerName\". The nearest columns that exist: \"customerName\" (in \
             shop.\"Order\").",
        ),
        ("select * from shop.Order", "42P01", "shop.\"Order\"."),
        ("select $2::int", "42P18", "as in $1::text"),
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
async fn clear_postgresql_errors_are_unchanged_and_no_name_is_invented() {
    let db = database().await;
    let server = Server::on(&db).await;
    for (query, sqlstate, position, hint) in [
        ("select id + text from social.tweet", "42883", 11, Some("No operator matches")),
        ("select * from social.tweet where id like 'a%'", "42883", 37, Some("No operator matches")),
        ("select account_id, count(*) from social.tweet", "42803", 8, None),
        ("select 1 from social.tweet where count(*) > 1", "42803", 34, None),
        ("select 1 union select 1, 2", "42601", 23, None),
        ("select id, from social.tweet", "42601", 12, None),
        ("select count(* from social.tweet", "42601", 16, None),
        ("select 'unfinished", "42601", 8, None),
        ("select x.y from social.tweet t", "42P01", 8, None),
        ("select 'x'::nothing_like_it", "42704", 13, None),
        ("select 'é' || $$日本$$,\n  1::int / 'x'::int", "22P02", 34, None),
    ] {
        let error = failure(&server, query).await;
        assert_eq!((&error["sqlstate"], &error["position"]), (&json!(sqlstate), &json!(position)), "{query}: {error}");
        match hint {
            Some(hint) => assert!(error["hint"].as_str().unwrap().starts_with(hint), "{query}: {error}"),
            None => assert_eq!(error.get("hint"), None, "{query}: {error}"),
        }
        assert!(error["detail"].as_str().unwrap().starts_with("LINE "), "{query}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_privilege_error_has_postgresqls_message_and_a_hint() {
    let db = database().await;
    db.run("revoke all on social.bookmark from countersign_reader").await;
    let server = Server::on(&db).await;
    for tool in ["query_database", "explain_query"] {
        let error = server.fail(tool, json!({"query": "select * from social.bookmark"}), "not_permitted").await;
        assert_eq!(error["message"], "Database query failed: permission denied for table bookmark");
        assert_eq!(error["sqlstate"], "42501");
        assert!(error["hint"].as_str().unwrap().contains("describe_database lists what may be read"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_which_some_columns_may_be_read_is_answered_with_those() {
    let db = database().await;
    db.run(
        "revoke all on social.bookmark from countersign_reader;
         grant select (tweet_id) on social.bookmark to countersign_reader",
    )
    .await;
    let server = Server::on(&db).await;
    for query in ["select * from social.bookmark", "select b.account_id from social.bookmark b, social.tweet t"] {
        let error = server.fail("query_database", json!({"query": query}), "not_permitted").await;
        let hint = error["hint"].as_str().unwrap();
        assert!(hint.ends_with("Of social.bookmark only these columns may be read: tweet_id."), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_an_enum_does_not_take_is_answered_with_those_that_it_takes() {
    let db = database().await;
    db.run(
        "create schema shop; create type shop.size as enum ('small', 'large'); create table shop.shirt (size shop.size);
         grant usage on schema shop to countersign_reader; grant select on shop.shirt to countersign_reader",
    )
    .await;
    let server = Server::on(&db).await;
    let expected = "shop.size takes: 'small', 'large'.";
    let error = failure(&server, "select * from shop.shirt where size = 'huge'").await;
    assert_eq!((&error["sqlstate"], &error["hint"]), (&json!("22P02"), &json!(expected)), "{error}");
    let call = json!({"query": "select * from shop.shirt where size = $1", "params": ["huge"]});
    let error = server.fail("query_database", call, "invalid_params").await;
    assert_eq!(error["hint"], expected, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_of_the_wrong_form_is_answered_with_what_to_send_instead() {
    let db = database().await;
    let server = Server::on(&db).await;
    for tool in ["query_database", "explain_query"] {
        for (query, code, hint) in [
            ("", "not_read_only", "The query is empty"),
            (" ; -- nothing", "not_read_only", "The query is empty"),
            ("select 1; select 2;", "sql_error", "One call takes one statement"),
            ("\\d social.tweet", "sql_error", "describe_database"),
        ] {
            let error = server.fail(tool, json!({"query": query}), code).await;
            assert!(error["hint"].as_str().is_some_and(|said| said.contains(hint)), "{tool} {query}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_tool_never_points_into_a_text_that_the_agent_does_not_see() {
    let db = database().await;
    let folder = ConfigDir::new();
    let tool = "name = 'm'\nversion = '1'\n[[tool]]\nname = 'read_bookmarks'\naccess = 'read'\ndescription = 'x'\n\
                sql = 'select b.tweet_id, (select 1 / count(*) from vault.gold) from social.bookmark b'\n";
    db.run("create schema vault; create table vault.gold (n int); grant usage on schema vault to countersign_writer")
        .await;
    folder.write("m.toml", tool);
    let config = format!("database_url = {:?}\nmanifests = [\"m.toml\"]\nlog = \"warn\"\n", db.writer_url());
    let mut command = folder.command(&config);
    command.arg("serve");
    let server = Server::start(command).await;
    let error = server.fail("read_bookmarks", json!({}), "not_permitted").await;
    assert_eq!(error["message"], "Database query failed: permission denied for schema vault");
    assert_eq!((error.get("position"), error.get("detail")), (None, None), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_may_not_be_read_are_never_suggested() {
    let db = database().await;
    db.run("revoke all on social.bookmark from countersign_reader").await;
    let server = Server::on(&db).await;
    for query in [
        "select * from social.bookmarks",
        "select * from mutations",
        "select * from countersign.mutations",
        "select zzz from social.tweet, (select 1) bookmark",
        "select admitt(1)",
        "select 1 from social.tweet join social.bookmark using (idd)",
        "select bokmark, 'x'::mutation_adit from social.tweet",
        "select 'x'::bookmarks",
        "select 1 from bookmark fro",
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
async fn when_the_lookup_of_names_fails_the_original_error_is_returned() {
    let db = database().await;
    // One keeps the names that it has found.
    let (server, other) = tokio::join!(Server::on(&db), Server::on(&db));
    let with_hint = failure(&other, "select * from social.tweets").await;
    db.run("revoke select on pg_catalog.pg_class from public").await;
    let without = failure(&server, "select * from social.tweets").await;
    assert_eq!(without.get("hint"), None, "{without}");
    for field in ["code", "message", "sqlstate", "position", "detail", "retryable"] {
        assert_eq!(without[field], with_hint[field], "{field}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_lookup_costs_two_seconds_and_the_original_error_is_returned() {
    let db = database().await;
    let server = Server::on(&db).await;
    server.query("select 1").await;
    let changing = db.lock("pg_catalog.pg_attribute").await;
    let started = std::time::Instant::now();
    let answered = server.call("query_database", json!({"query": "select * from social.tweets"})).await;
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    changing.release().await;
    assert_eq!(answered["error"]["sqlstate"], "42P01", "{answered}");
    assert_eq!(answered["error"].get("hint"), None, "the lookup did hang: {answered}");
}
