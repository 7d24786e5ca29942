//! A database that is away, slow, or not fit: the others answer as if it were not there.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::json;
use testkit::{Database, HttpServer, Proxy, RawStdioServer, Server, database, poll};

use super::{Shop, at};

/// The configuration with staging behind a proxy.
fn behind(shop: &Shop, proxy: &Proxy, top: &str) -> String {
    shop.config(top, "").replace(&format!("{:?}", shop.staging.url()), &format!("{:?}", proxy.url()))
}

const ONE: &str = "select 1 as one";

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_at_the_start_is_named_and_comes_later() {
    let shop = Shop::new().await;
    let proxy = Proxy::before(&shop.staging);
    proxy.refuse();
    let server = Server::start(shop.serve(&behind(&shop, &proxy, ""))).await;
    let read = |database: &str| at(database, json!({"query": ONE}));
    let answer = server.succeed("query_database", read("shop")).await;
    assert_eq!(answer["data"]["rows"][0]["one"], 1, "{answer}");
    let away = server.call("query_database", read("shop_staging")).await;
    assert_eq!(
        (&away["error"]["code"], &away["meta"]["database"]),
        (&json!("database_unavailable"), &json!("shop_staging"))
    );
    let like = at("shop_staging", json!({"tweet_id": 1}));
    server.fail("like_tweet", like, "database_unavailable").await;
    proxy.accept_connections();
    poll::until("staging answers", async || {
        server.call("query_database", read("shop_staging")).await["success"] == true
    })
    .await;
    server.close().await;
}

/// A server that accepts connections and never answers is waited for as briefly as one of several can be.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_never_answers_delays_nobody_for_long() {
    let shop = Shop::new().await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgresql://someone@{}/nothing?sslmode=disable", silent.local_addr().unwrap());
    let config = shop.config("", "").replace(&format!("{:?}", shop.staging.url()), &format!("{url:?}"));
    let begun = Instant::now();
    let server = Server::start(shop.serve(&config)).await;
    let read = server.succeed("query_database", at("shop", json!({"query": ONE}))).await;
    assert_eq!(read["data"]["rows"][0]["one"], 1);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    server.fail("query_database", at("shop_staging", json!({"query": ONE})), "database_unavailable").await;
    server.close().await;
}

/// What is listed of one database does not depend on another.
#[tokio::test(flavor = "multi_thread")]
async fn resources_of_the_others_are_listed_while_one_is_away() {
    let shop = Shop::new().await;
    let proxy = Proxy::before(&shop.production);
    let production = format!("{:?}", shop.production.url());
    let config = shop.config("", "").replace(&production, &format!("{:?}", proxy.url()));
    let mut server = RawStdioServer::start(shop.serve(&config), "2025-06-18").await;
    let mut list = async |id: u32| {
        let listed = server.request(id, "resources/list", json!({})).await["result"]["resources"].clone();
        let uris = listed.as_array().unwrap().iter().map(|one| one["uri"].as_str().unwrap().to_owned());
        // The skills are of no database.
        uris.filter(|uri| !uri.starts_with("skill://")).collect::<Vec<_>>()
    };
    let all = list(1).await;
    proxy.refuse();
    let staging: Vec<_> = all.iter().filter(|uri| uri.contains("shop_staging")).cloned().collect();
    assert!(!staging.is_empty() && staging.len() < all.len(), "{all:?}");
    assert_eq!(list(2).await, staging);
    assert!(server.close().await);
}

/// Over HTTP the server opens with the databases that it reaches, and says which it does not.
#[tokio::test(flavor = "multi_thread")]
async fn readyz_is_degraded_while_one_is_away_and_unavailable_without_any() {
    let shop = Shop::new().await;
    let proxies = [Proxy::before(&shop.production), Proxy::before(&shop.staging)];
    proxies[1].refuse();
    let production = format!("{:?}", shop.production.url());
    let config = behind(&shop, &proxies[1], "").replace(&production, &format!("{:?}", proxies[0].url()));
    let mut command = shop.folder.command(&config);
    command.args(["serve", "--http", "127.0.0.1:0"]);
    let server = HttpServer::start(command).await;
    let body = server.until_status("/readyz", StatusCode::OK).await;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&body["status"], &body["unavailable"][0]["database"]), (&json!("degraded"), &json!("shop_staging")));
    assert!(body["unavailable"][0]["reason"].as_str().unwrap().contains("annot connect"), "{body}");
    proxies[1].accept_connections();
    poll::until("the server is ready", async || {
        server.until_status("/readyz", StatusCode::OK).await.contains("\"ready\"")
    })
    .await;
    proxies.iter().for_each(Proxy::refuse);
    server.until_status("/readyz", StatusCode::SERVICE_UNAVAILABLE).await;
}

/// H-1: one that answers every second does not end the outage of the other.
#[tokio::test(flavor = "multi_thread")]
async fn the_outage_of_one_database_is_one_line_and_ends_with_it() {
    let shop = Shop::new().await;
    let [proxy, staging] = [Proxy::before(&shop.production), Proxy::before(&shop.staging)];
    let production = format!("{:?}", shop.production.url());
    let config = behind(&shop, &staging, "").replace(&production, &format!("{:?}", proxy.url()));
    let mut command = shop.folder.command(&config);
    command.args(["serve", "--http", "127.0.0.1:0"]);
    let server = HttpServer::start(command).await;
    poll::until("both answer", async || server.until_status("/readyz", StatusCode::OK).await.contains("\"ready\""))
        .await;
    // The worker of proposals asks the ledger of a database that is used every second.
    let client = server.session("2025-11-25").await;
    for name in ["shop", "shop_staging"] {
        assert_eq!(client.call("query_database", at(name, json!({"query": ONE}))).await["success"], true, "{name}");
    }
    let before = server.log().lines().count();
    staging.refuse();
    server.logged("outage").await;
    let asked = proxy.traffic()[0];
    poll::until("the ledger of production is asked", async || proxy.traffic()[0] > asked + 6).await;
    let log = server.log();
    let lines: Vec<&str> = log.lines().skip(before).filter(|line| line.contains("outage")).collect();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    staging.accept_connections();
    let said = server.logged("the database answers again").await;
    assert!(said.contains(shop.staging.name()), "{said}");
}

/// Calls that hang in one database take neither the connections nor the turns of the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_swallowed_network_of_one_database_costs_the_others_nothing() {
    let shop = Shop::new().await;
    let proxy = Proxy::before(&shop.staging);
    let (token, table) = HttpServer::token("ana", &[]).await;
    let (other, other_table) = HttpServer::token("bob", &[]).await;
    let top = format!("{table}\n{other_table}\n[limits]\nquery_timeout_ms = 20000\n[http]\nreads = 2\n");
    let mut command = shop.folder.command(&behind(&shop, &proxy, &top));
    command.args(["serve", "--http", "127.0.0.1:0"]);
    let server = HttpServer::start(command).await;
    let client = server.http_client().with_token(&token).open("2025-06-18", json!({})).await;
    let at_once = |sql: &str, database: &str| -> Vec<_> {
        let arguments = at(database, json!({"query": sql}));
        (100..106).map(|id| tokio::spawn(client.calling(id, "query_database", &arguments).send())).collect()
    };
    // The connections of six reads are open, and lead nowhere.
    for read in at_once("select pg_sleep(0.2)", "shop_staging") {
        assert_eq!(read.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    proxy.swallow();
    let hanging = at_once(ONE, "shop_staging");
    for token in [&token, &other] {
        let client = server.http_client().with_token(token).open("2025-06-18", json!({})).await;
        for _ in 0..10 {
            let begun = Instant::now();
            let read = client.call("query_database", at("shop", json!({"query": ONE}))).await;
            assert_eq!(read["success"], true, "{read}");
            assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        }
    }
    assert!(hanging.iter().any(|read| !read.is_finished()), "reads of staging hang");
    for read in hanging {
        let response = read.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        // Also of those that the limit of the account has kept from the database.
        let body = response.text().await.unwrap();
        assert!(body.contains("\"database\":\"shop_staging\""), "{body}");
    }
}

/// A database without a ledger has only reads; another one is as before.
#[tokio::test(flavor = "multi_thread")]
async fn one_without_a_ledger_serves_reads_beside_one_with_writes() {
    let with = database().await;
    let without = Database::empty("no_ledger").await;
    let folder = testkit::ConfigDir::new();
    let social = testkit::repository().join("manifests/social.toml");
    let config = format!(
        "[database.plain]\ndatabase_url = {:?}\nallow_privileged_reader = true\n[database.shop]\ndatabase_url = {:?}\nmanifests = [{social:?}]\n",
        without.url(),
        with.url()
    );
    let mut command = folder.command(&config);
    command.arg("serve");
    let mut server = RawStdioServer::start(command, "2025-06-18").await;
    let call = |tool: &str, database: &str| json!({"name": tool, "arguments": {"database": database, "query": ONE}});
    for database in ["plain", "shop"] {
        let read = server.request(1, "tools/call", call("query_database", database)).await;
        assert_eq!(read["result"]["structuredContent"]["success"], true, "{read}");
    }
    let records = json!({"name": "get_recent_mutations", "arguments": {"database": "plain"}});
    let refused = server.request(2, "tools/call", records).await["result"]["structuredContent"].clone();
    assert_eq!(refused["error"]["message"], "get_recent_mutations: the database plain does not have this tool");
    assert!(server.close().await);
}
