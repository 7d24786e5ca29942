//! The tables of the databases: layers, mistakes, profiles and tokens that reach some of them, and reloads.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{HttpServer, RawStdioServer, run, send_signal, startup_error};

use super::{Shop, at, tool};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_the_table_of_a_database_goes_before_the_general_one() {
    let shop = Shop::new().await;
    let own = "execute_sql = \"rows\"\n[database.shop_staging.limits]\nmax_row_limit = 7\nrow_limit = 7\n\
               [database.shop_staging.mask]\n\"social.tweet.text\" = \"refuse\"\n\"social.tweet.created_at\" = \"none\"";
    let general = "[limits]\nmax_row_limit = 20\nrow_limit = 20\n[mask]\n\"social.tweet.created_at\" = \"null\"\n\
                   \"social.tweet.id\" = \"refuse\"\n";
    let config = shop.config(general, own);
    let mut server = RawStdioServer::start(shop.serve(&config), "2025-06-18").await;
    let tools = server.request(1, "tools/list", json!({})).await["result"]["tools"].clone();
    assert_eq!(tool(&tools, "execute_sql")["inputSchema"]["properties"]["database"]["enum"], json!(["shop_staging"]));
    let mut call = async |id: u32, tool: &str, arguments: Value| {
        let answer = server.request(id, "tools/call", json!({"name": tool, "arguments": arguments})).await;
        answer["result"]["structuredContent"].clone()
    };
    let series = json!({"query": "select * from generate_series(1, 100) as n"});
    for (database, rows) in [("shop", 20), ("shop_staging", 7)] {
        let read = call(2, "query_database", at(database, series.clone())).await;
        assert_eq!(read["data"]["rows"].as_array().unwrap().len(), rows, "{database}");
    }
    let masked = json!({"query": "select text from social.tweet"});
    assert_eq!(call(3, "query_database", at("shop", masked.clone())).await["success"], true);
    assert_eq!(call(4, "query_database", at("shop_staging", masked)).await["success"], false);
    // The general masks of other columns stay, and `none` ends one.
    for (database, is_masked) in [("shop", true), ("shop_staging", false)] {
        let query = json!({"query": "select created_at from social.tweet limit 1"});
        let read = call(5, "query_database", at(database, query)).await;
        assert_eq!(read["data"]["rows"][0]["created_at"].is_null(), is_masked, "{database}: {read}");
        let refused = call(6, "query_database", at(database, json!({"query": "select id from social.tweet"}))).await;
        assert_eq!(refused["error"]["code"], "not_permitted", "{database}: {refused}");
    }
    let sql = json!({"sql": "select 1", "database": "shop"});
    let refused = call(5, "execute_sql", sql).await;
    assert_eq!(refused["error"]["message"], "execute_sql: the database shop does not have this tool");
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_named_with_their_place_before_anything_is_served() {
    let shop = Shop::new().await;
    let wrong = "[profiles.a]\naccess = [\"read\"]\ndatabases = [\"shop\", \"other\"]\n[database.Shop]\n[database.empty]\n\
                 [database.shop]\ndatabase_url = \"postgresql:///x\"\nenvironment = \"\"\nprofile = \"admin\"\n\
                 [database.shop.limits]\nrow_limit = 0\n";
    let mut command = shop.folder.command(&format!("database_url = \"postgresql:///x\"\n{wrong}"));
    let said = startup_error(command.arg("serve")).await;
    for part in [
        "toml:1:1: there are several databases: database_url belongs in the table of one",
        "toml:4:22: profiles.a.databases: there is no database \"other\": it is one of empty, shop",
        "toml:5:11: \"Shop\" is no name for a database: a lower-case letter, then at most 31 of a-z, 0-9 and _",
        "toml:6:11: database.empty: database_url is missing, or database_url_file",
        "toml:9:15: environment: it takes 1 to 255 bytes",
        "toml:10:1: there is no key database.shop.profile",
        "toml:12:13: row_limit: 0 is out of bounds",
    ] {
        assert!(said.contains(part), "{part} is missing in: {said}");
    }
    for (flag, why) in [
        (vec!["--database-url", "postgresql:///x"], "a flag or variable names another one"),
        (vec!["--database", "other"], "--database other: there is no such database; it is one of shop, shop_staging"),
    ] {
        let mut command = shop.folder.command(&shop.config("", ""));
        let said = startup_error(command.arg("serve").args(flag)).await;
        assert!(said.contains(why), "{said}");
    }
    let mut command = shop.folder.command(&shop.config("", ""));
    let output = run(command.args(["freeze", "--account", "a", "--reason", "b"])).await;
    let why = "the configuration has several databases: choose one with --database (shop, shop_staging)";
    assert!(output.err.contains(why), "{}", output.err);
}

/// Two tools of one name are a mistake. A prefix, or one manifest, makes them two tools or one.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_stands_for_one_tool() {
    let shop = Shop::new().await;
    let social = testkit::repository().join("manifests/social.toml");
    let copy = shop.folder.write("copy.toml", &std::fs::read_to_string(&social).unwrap());
    let with_copy = |rest: &str| {
        let config = shop.config("", rest);
        let (before, after) = config.rsplit_once(&format!("{social:?}")).unwrap();
        format!("{before}{copy:?}{after}")
    };
    let mut command = shop.folder.command(&with_copy(""));
    let said = startup_error(command.arg("serve")).await;
    assert!(said.contains("the manifests cannot be used side by side"), "{said}");
    let why = format!("tool like_tweet: the database shop has another tool of this name ({}", social.display());
    assert!(said.contains(&why) && said.contains("prefix = \"shop_staging_\" in [database.shop_staging]"), "{said}");

    let mut server = RawStdioServer::start(shop.serve(&with_copy("prefix = \"test_\"")), "2025-06-18").await;
    let like = json!({"name": "test_like_tweet", "arguments": {"tweet_id": 2}});
    let like = server.request(1, "tools/call", like).await["result"]["structuredContent"].clone();
    assert_eq!(like["meta"]["database"], "shop_staging", "{like}");
    let rollback = &like["meta"]["rollback"];
    let undo = json!({"name": rollback["undo_tool"], "arguments": rollback["undo_params"]});
    let undone = server.request(2, "tools/call", undo).await;
    assert_eq!(undone["result"]["structuredContent"]["success"], true, "{rollback} {undone}");
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_and_a_token_reach_the_databases_that_they_name() {
    let shop = Shop::new().await;
    let (everywhere, its_table) = HttpServer::token("ana", &[]).await;
    let (staging, only) = HttpServer::token("bob", &["--databases", "shop_staging"]).await;
    let (of_profile, own_table) = HttpServer::token("eva", &["--profile", "tester"]).await;
    let profile = "[profiles.tester]\naccess = [\"read\"]\ndatabases = [\"shop_staging\"]\n";
    let config = shop.config(&format!("{its_table}\n{only}\n{own_table}\n{profile}"), "");
    let mut command = shop.folder.command(&config);
    command.args(["serve", "--http", "127.0.0.1:0"]);
    let server = HttpServer::start(command).await;
    for (token, names) in [
        (everywhere, json!(["shop", "shop_staging"])),
        (staging, json!(["shop_staging"])),
        (of_profile, json!(["shop_staging"])),
    ] {
        let client = server.http_client().with_token(&token).open("2025-06-18", json!({})).await;
        let list = client.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).await.message();
        let query = tool(&list["result"]["tools"], "query_database").clone();
        assert_eq!(query["inputSchema"]["properties"]["database"]["enum"], names);
        let read = client.call("query_database", json!({"query": "select 1", "database": "shop"})).await;
        assert_eq!(read["success"], names.as_array().unwrap().len() == 2, "{read}");
        let said = client.call("query_database", json!({"query": "select 1"})).await["error"]["hint"].clone();
        assert_eq!(said.as_str().unwrap().contains("production"), names.as_array().unwrap().len() == 2, "{said}");
    }
}

/// At SIGHUP the tools of every database are compiled again.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_changes_the_tools_of_each_database() {
    let shop = Shop::new().await;
    let read = |name: &str| {
        format!(
            "name = \"m\"\nversion = \"1.0\"\n[[tool]]\nname = \"{name}\"\naccess = \"read\"\ndescription = \"Count.\"\n\
             sql = \"select count(*) from social.tweet\"\n"
        )
    };
    shop.folder.write("m.toml", &read("count_tweets"));
    let social = testkit::repository().join("manifests/social.toml");
    let config = shop.config("", "").replace(&format!("[{social:?}]"), "[\"m.toml\"]");
    let mut command = shop.folder.command(&config);
    command.args(["serve", "--http", "127.0.0.1:0"]);
    let server = HttpServer::start(command).await;
    let client = server.session("2025-06-18").await;
    for database in ["shop", "shop_staging"] {
        assert_eq!(client.call("count_tweets", json!({"database": database})).await["success"], true);
    }
    shop.folder.write("m.toml", &read("tally_tweets"));
    send_signal(server.pid(), Signal::SIGHUP);
    server.logged("were read again").await;
    for database in ["shop", "shop_staging"] {
        assert_eq!(client.call("tally_tweets", json!({"database": database})).await["success"], true);
    }
    shop.folder.write("m.toml", "name = \"m\"");
    send_signal(server.pid(), Signal::SIGHUP);
    server.logged("the old ones stay").await;
    assert_eq!(client.call("tally_tweets", json!({"database": "shop"})).await["success"], true);
}
