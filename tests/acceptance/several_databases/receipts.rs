//! Calls over standard input and output: the tools that a client sees, the database of each call, and receipts.

use serde_json::json;
use testkit::RawStdioServer;

use super::{Shop, at, started, tool};

#[tokio::test(flavor = "multi_thread")]
async fn every_tool_of_several_databases_takes_the_name_of_one_and_every_answer_names_it() {
    let shop = Shop::new().await;
    let mut server = RawStdioServer::start(shop.serve(&shop.config("profile = \"admin\"", "")), "2025-06-18").await;
    let tools = server.request(1, "tools/list", json!({})).await["result"]["tools"].clone();
    for tool in tools.as_array().unwrap() {
        let schema = &tool["inputSchema"];
        let database = &schema["properties"]["database"];
        assert_eq!(database["enum"], json!(["shop", "shop_staging"]), "{tool}");
        assert_eq!(database["description"], "The database: shop (production), shop_staging (staging).");
        assert_eq!(schema["required"][0], "database", "{tool}");
    }
    let instructions = server.instructions();
    let expected = "PostgreSQL databases, each named by the argument database: shop (production): What production has; \
                    shop_staging (staging): What staging has.";
    assert!(instructions.starts_with(expected), "{instructions}");
    assert!(server.close().await);

    let command = shop.serve(&shop.config("profile = \"admin\"", ""));
    let server = started(command).await;

    shop.staging.run("update social.tweet set text = 'of staging'").await;
    let sql = json!({"query": "select text from social.tweet where id = 1"});
    let read = server.succeed("query_database", at("shop_staging", sql.clone())).await;
    assert_eq!(read["data"]["rows"][0]["text"], "of staging");
    assert_eq!((&read["meta"]["database"], &read["meta"]["environment"]), (&json!("shop_staging"), &json!("staging")));
    let read = server.succeed("query_database", at("shop", sql.clone())).await;
    assert_ne!(read["data"]["rows"][0]["text"], "of staging");
    assert_eq!(read["meta"]["database"], "shop");

    for (arguments, why) in [
        (sql.clone(), "query_database: argument \"database\" is missing"),
        (at("shop_stage", sql.clone()), "query_database: there is no database \"shop_stage\""),
        (json!({"query": "select 1", "database": 7}), "query_database: argument \"database\" must be of type string"),
    ] {
        let refused = server.fail("query_database", arguments, "invalid_params").await;
        assert_eq!(refused["message"], why);
        assert_eq!(refused["hint"], "database is one of: shop (production), shop_staging (staging).");
    }
    server.close().await;
}

/// Duplicates, records, previews and undos of one database know nothing of the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_undoes_the_write_in_its_database() {
    let shop = Shop::new().await;
    let command = shop.serve(&shop.config("profile = \"admin\"", ""));
    let server = started(command).await;
    let before = [shop.production.social().await, shop.staging.social().await];

    let likes = json!({"tweet_id": 2, "database": "shop_staging"});
    let like = server.succeed("like_tweet", likes.clone()).await;
    let rollback = &like["meta"]["rollback"];
    assert_eq!(rollback["undo_params"]["database"], "shop_staging", "{like}");
    assert_eq!(shop.production.social().await, before[0], "production is as it was");
    assert_ne!(shop.staging.social().await, before[1]);

    // The same call is no duplicate in another database.
    let repeated = server.succeed("like_tweet", likes.clone()).await;
    assert_eq!(repeated["data"]["duplicate"], true);
    let other = server.succeed("like_tweet", at("shop", likes)).await;
    assert_eq!(other["data"].get("duplicate"), None, "{other}");

    let id = &like["meta"]["correlation_id"];
    let elsewhere = json!({"correlation_id": id, "database": "shop"});
    server.fail("get_mutation_detail", elsewhere, "not_found").await;
    let detail = server.succeed("get_mutation_detail", json!({"correlation_id": id, "database": "shop_staging"})).await;
    assert_eq!(detail["data"]["rollback_action"]["undo_params"]["database"], "shop_staging", "{detail}");

    for params in [json!({"tweet_id": 3}), json!({"tweet_id": 3, "database": "shop_staging"})] {
        let preview = json!({"tool": "like_tweet", "params": params, "database": "shop_staging"});
        let preview = server.succeed("preview_mutation", preview).await;
        assert_eq!(preview["data"]["rollback"]["undo_params"]["database"], "shop_staging", "{preview}");
    }
    let crossed =
        json!({"tool": "like_tweet", "params": {"tweet_id": 3, "database": "shop"}, "database": "shop_staging"});
    let refused = server.fail("preview_mutation", crossed, "invalid_params").await;
    let why = "like_tweet: params name another database than the call, which is about shop_staging (staging)";
    assert_eq!(refused["message"], why);

    let (undo_tool, undo_params) = (rollback["undo_tool"].as_str().unwrap(), rollback["undo_params"].clone());
    server.succeed(undo_tool, undo_params).await;
    assert_eq!(shop.staging.social().await, before[1], "the receipt has undone the write");
    server.close().await;
}

/// An undo by a declared tool, whose calls name the database only if that tool takes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_one_database_has_no_such_argument() {
    let shop = Shop::new().await;
    let manifest = "name = \"own\"\nversion = \"1.0\"\n[[tool]]\nname = \"rename\"\naccess = \"write\"\ndescription = \"Rename.\"\n\
                    sql = \"update social.tweet set text = $1 where id = 1 returning text\"\nrows = \"one\"\n\
                    before = \"select text as old from social.tweet where id = 1\"\n\
                    undo = { tool = \"rename\", params = { database = \"before.old\" } }\n\
                    [[tool.param]]\nname = \"database\"\ndescription = \"The text.\"\n";
    shop.folder.write("own.toml", manifest);
    let social = testkit::repository().join("manifests/social.toml");
    let config = shop.config("", "").replacen(&format!("[{social:?}]"), &format!("[{social:?}, \"own.toml\"]"), 1);
    let mut server = RawStdioServer::start(shop.serve(&config), "2025-06-18").await;
    let tools = server.request(1, "tools/list", json!({})).await["result"]["tools"].clone();
    assert_eq!(tool(&tools, "rename")["inputSchema"]["properties"]["database"]["description"], "The text.");
    assert!(server.close().await);

    let command = shop.serve(&config);
    let server = started(command).await;
    let before = shop.production.social().await;
    let renamed = server.succeed("rename", json!({"database": "shop_staging"})).await;
    assert_eq!(renamed["meta"]["database"], "shop");
    assert_eq!(shop.production.value("select text from social.tweet where id = 1").await, "shop_staging");
    let rollback = &renamed["meta"]["rollback"];
    assert_eq!(rollback["undo_tool"], "rename", "{rollback}");
    server.succeed("rename", rollback["undo_params"].clone()).await;
    assert_eq!(shop.production.social().await, before);
    server.close().await;
}

/// A proposal of one database is decided on in that database, by the same conversation.
#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_is_confirmed_in_its_database() {
    let shop = Shop::new().await;
    let mut command = shop.serve(&shop.config("execute_sql = \"rows\"", ""));
    command.env("COUNTERSIGN_AGENT_CONFIRMS", "true");
    for database in [&shop.production, &shop.staging] {
        testkit::run_countersign(&database.url(), &["track", "social.tweet"]).await.succeeded();
    }
    let server = started(command).await;
    let sql = json!({"sql": "update social.tweet set text = 'new' where id = 1", "database": "shop_staging"});
    let proposed = server.succeed("execute_sql", sql).await;
    let proposal = &proposed["data"]["proposal"];
    let agreement = json!({"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]});
    server.fail("confirm_proposal", at("shop", agreement.clone()), "not_found").await;
    let confirmed = server.succeed("confirm_proposal", at("shop_staging", agreement)).await;
    assert_eq!(confirmed["meta"]["rollback"]["undo_params"]["database"], "shop_staging", "{confirmed}");
    assert_eq!(shop.staging.value("select text from social.tweet where id = 1").await, "new");
    server.close().await;
}

/// Resources of several databases have its name in their addresses.
#[tokio::test(flavor = "multi_thread")]
async fn resources_are_addressed_by_database() {
    let shop = Shop::new().await;
    let mut server = RawStdioServer::start(shop.serve(&shop.config("", "")), "2025-06-18").await;
    let listed = server.request(1, "resources/list", json!({})).await["result"]["resources"].clone();
    let uris: Vec<&str> = listed.as_array().unwrap().iter().map(|one| one["uri"].as_str().unwrap()).collect();
    for uri in ["countersign://database/shop", "countersign://database/shop_staging/social/tweet"] {
        assert!(uris.contains(&uri), "{uris:?}");
    }
    let templates =
        server.request(2, "resources/templates/list", json!({})).await["result"]["resourceTemplates"].clone();
    assert_eq!(templates[2]["uriTemplate"], "countersign://database/shop_staging/{schema}");
    shop.staging.run("comment on table social.tweet is 'of staging'").await;
    let uri = json!({"uri": "countersign://database/shop_staging/social/tweet"});
    let read = server.request(3, "resources/read", uri).await;
    assert!(read["result"]["contents"][0]["text"].as_str().unwrap().contains("of staging"), "{read}");
    let other = server.request(4, "resources/read", json!({"uri": "countersign://database/other/social"})).await;
    let said = other["error"]["message"].as_str().unwrap();
    assert!(said.ends_with("begin with countersign://database/shop, countersign://database/shop_staging."), "{said}");
    assert!(server.close().await);
}
