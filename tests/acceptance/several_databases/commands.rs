//! Commands on several databases: on all of them, on the one that an id names, or on the one that is chosen.

use serde_json::{Value, json};
use testkit::{CommandOutput, Proxy, run, run_countersign};

use super::{Shop, at, started};

impl Shop {
    async fn run(&self, config: &str, arguments: &[&str]) -> CommandOutput {
        run(self.folder.command(config).args(arguments)).await
    }
}

/// A write in each database: the correlation ids.
async fn writes(shop: &Shop) -> [String; 2] {
    for database in [&shop.production, &shop.staging] {
        run_countersign(&database.url(), &["track", "--schema", "social"]).await.succeeded();
    }
    let server = started(shop.serve(&shop.config("", ""))).await;
    let mut ids = Vec::new();
    for database in ["shop", "shop_staging"] {
        let like = server.succeed("like_tweet", at(database, json!({"tweet_id": 2}))).await;
        ids.push(like["meta"]["correlation_id"].as_str().unwrap().to_owned());
    }
    server.close().await;
    ids.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_all_databases_are_listed_and_one_is_found_and_undone_where_it_is() {
    let shop = Shop::new().await;
    let before = shop.staging.social().await;
    let [production, staging] = writes(&shop).await;
    let config = shop.config("", "");
    let listed = shop.run(&config, &["audit", "list", "--json"]).await.succeeded();
    let lines: Vec<Value> = listed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found: Vec<_> =
        lines.iter().map(|line| (&line["database"], &line["environment"], &line["correlation_id"])).collect();
    let expected = [
        (&json!("shop"), &json!("production"), &json!(production)),
        (&json!("shop_staging"), &json!("staging"), &json!(staging)),
    ];
    assert_eq!(found, expected);
    let listed = shop.run(&config, &["audit", "list"]).await.succeeded();
    let headings: Vec<&str> = listed.out.lines().filter(|line| line.contains('(')).collect();
    assert_eq!(headings, ["shop (production)", "shop_staging (staging)"], "{}", listed.out);
    let chosen = shop.run(&config, &["audit", "list", "--database", "shop"]).await.succeeded();
    assert!(!chosen.out.contains("shop_staging") && chosen.out.contains("like_tweet"), "{}", chosen.out);

    let shown = shop.run(&config, &["audit", "show", &staging[..13]]).await.succeeded();
    assert!(shown.out.starts_with("shop_staging (staging)\n"), "{}", shown.out);
    let undone = shop.run(&config, &["undo", &staging]).await.succeeded();
    assert!(undone.out.starts_with("shop_staging (staging)\nUndone"), "{}", undone.out);
    assert_eq!(shop.staging.social().await, before);
    let nobody = shop.run(&config, &["undo", "00000000-0000-4000-8000-000000000000"]).await;
    let why = "no database has the id 00000000-0000-4000-8000-000000000000; asked: shop, shop_staging";
    assert!(nobody.code == 1 && nobody.err.contains(why), "{}", nobody.err);
    let mut query = testkit::bare_front_end("query");
    query.arg("--config").arg(shop.folder.path().join("countersign.toml"));
    query.args(["--database", "shop_staging", "--sql", "select current_database()"]);
    let read = run(&mut query).await;
    assert!(read.out.contains(shop.staging.name()), "{} {}", read.out, read.err);
}

/// A database that is away is named, and the others are covered.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_does_not_keep_a_command_from_the_others() {
    let shop = Shop::new().await;
    let [production, _] = writes(&shop).await;
    let proxy = Proxy::before(&shop.staging);
    proxy.refuse();
    let config = shop.config("", "").replace(&format!("{:?}", shop.staging.url()), &format!("{:?}", proxy.url()));
    for arguments in [&["audit", "list"][..], &["doctor"], &["check"], &["proposals", "list"], &["audit", "verify"]] {
        let output = shop.run(&config, arguments).await;
        assert_ne!(output.code, 0, "{arguments:?} {}", output.out);
        assert!(output.out.contains("shop (production)"), "{arguments:?} {}", output.out);
        let said = format!("{}{}", output.out, output.err);
        assert!(said.contains("annot connect to database"), "{arguments:?} {said}");
    }
    let shown = shop.run(&config, &["audit", "show", &production]).await.succeeded();
    assert!(shown.out.starts_with("shop (production)\n"), "{}", shown.out);
}

/// A client starts the server with the configuration, which has the connection strings.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_a_server_of_all_databases() {
    let shop = Shop::new().await;
    let install = ["install", "--client", "cursor", "--name", "shop", "--print"];
    let entry = shop.run(&shop.config("", ""), &install).await.succeeded().out;
    let config = shop.folder.path().join("countersign.toml");
    assert!(entry.contains(config.to_str().unwrap()) && !entry.contains("database-url"), "{entry}");
    let chosen =
        shop.run(&shop.config("", ""), &[&install[..], &["--database", "shop"]].concat()).await.succeeded().out;
    assert!(chosen.contains("\"--database\"") && chosen.contains("\"shop\""), "{chosen}");
}
