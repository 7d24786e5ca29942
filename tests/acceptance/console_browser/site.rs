//! A console with something on every page.

use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::audit::audit;
use testkit::{Server, Tab, TestManifest, WebBrowser};

use super::{log_in, until_executed};
use crate::console::{path, proposed};
use crate::console_pages::Shop;

/// Tool that changes a price, with another person's approval.
const SET_PRICE: &str = r#"
[[tool]]
name = "set_price"
title = "Change the price of a package"
access = "write"
tier = "approve"
description = "Change the price of a package. Sessions that are booked already keep their price."
before = "select package_id, title, price, duration_minutes from studio.package where package_id = $1 for update"
sql = "update studio.package set price = $2 where package_id = $1 returning package_id, price"
after = "select package_id, title, price, duration_minutes from studio.package where package_id = $1"
rows = "one"
param = [{ name = "package_id", description = "The package." }, { name = "price", description = "Its new price." }]
"#;

/// The site, and its pages as a name and a path.
pub(super) struct Site {
    pub(super) shop: Shop,
    pub(super) pages: Vec<(&'static str, String)>,
    _servers: [Server; 2],
    _key: tempfile::TempDir,
}

impl Site {
    pub(super) async fn new() -> Self {
        let shop = Shop::new().await;
        let (studio, deletion) = proposed(&shop.db, "Sunset at the lake").await;
        let manifest = TestManifest::new(SET_PRICE);
        let mut prices = manifest.command(&shop.db);
        prices.env("COUNTERSIGN_ACTOR", "mia");
        let prices = Server::start(prices).await;
        let reason = "Weekend sessions take ten times as long, says the owner.";
        let call = json!({"package_id": 1, "price": "1350.00", "reason": reason});
        let change = prices.propose("set_price", call).await;
        let confirmed = studio.propose("upsert_package", crate::proposals::price("150.00")).await;
        let (_other, rejected) = proposed(&shop.db, "Newborn at home").await;
        let (executed, record) = Self::decide(&shop, &rejected, &prices).await;
        let key = Self::sign(&shop).await;
        let mut pages = vec![
            ("inbox", "/".to_owned()),
            ("proposal: removed row", path(&deletion)),
            ("proposal: changed row", path(&change)),
            ("proposal: tier confirm", path(&confirmed)),
            ("proposal: rejected", path(&rejected)),
            ("proposal: executed", path(&executed)),
            ("record: with approval", format!("/records/{record}")),
        ];
        pages.extend(Self::shop_pages(&shop).await);
        Self { shop, pages, _servers: [studio, prices], _key: key }
    }

    /// Rejects one proposal and approves another one; that one, and its record.
    async fn decide(shop: &Shop, rejected: &Value, prices: &Server) -> (Value, String) {
        let mut anna = shop.console.browser(&shop.db, "anna", &[]).await;
        anna.post(&format!("{}/reject", path(rejected)), &[("text", "We still sell it until May.")]).await;
        let executed = prices.propose("set_price", json!({"package_id": 2, "price": "95.00"})).await;
        let digest = executed["digest"].as_str().unwrap();
        anna.post(&format!("{}/approve", path(&executed)), &[("digest", digest)]).await;
        until_executed(&shop.db, &executed).await;
        let id = executed["proposal_id"].as_str().unwrap();
        let record = format!("select correlation_id from countersign.proposal where proposal_id = '{id}'");
        (executed, shop.db.value(&record).await)
    }

    /// Signs the log.
    async fn sign(shop: &Shop) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        audit(&shop.db, &["keys", "new", "--signing-key", key.to_str().unwrap()]).await;
        audit(&shop.db, &["seal", "--signing-key", key.to_str().unwrap()]).await;
        folder
    }

    /// Writes of an agent in the shop, and the pages about them.
    async fn shop_pages(shop: &Shop) -> Vec<(&'static str, String)> {
        let write = shop.set_status(1, "shipped").await;
        shop.set_status(1, "cancelled").await;
        shop.set_status(2, "shipped").await;
        shop.server.call("set_status", json!({"id": 99, "status": "open"})).await;
        let failure = "select correlation_id from countersign.record where status = 'failure' limit 1";
        let failure = shop.db.first_value(failure).await;
        let mut olga = shop.operator().await;
        let frozen = [("kind", "account"), ("name", "default"), ("reason", "odd writes at night")];
        assert_eq!(olga.post("/freeze", &frozen).await.status, StatusCode::SEE_OTHER);
        shop.db.run("update shop.orders set status = 'lost' where id = 2").await;
        let mut pages = Vec::new();
        for (name, mode) in [("undo plan: conflicts", "strict"), ("undo plan: ready", "skip")] {
            let form = [("from", "1h"), ("table", "shop.orders"), ("mode", mode)];
            let made = olga.post("/undo", &form).await;
            pages.push((name, made.headers["location"].to_str().unwrap().to_owned()));
        }
        let change = "select stored from countersign.propose_schema_change(gen_random_uuid(), 'default', 'mia', null, null, null, null, \
            null, 'Customers want gifts wrapped.', 'alter table shop.orders add column gift boolean;\ncreate index concurrently on shop.orders (gift);', 20)";
        pages.push(("schema change", format!("/schema-changes/{}", shop.db.value(change).await)));
        let fixed = [
            ("record", format!("/records/{write}")),
            ("record: failure", format!("/records/{failure}")),
            ("records", "/records".to_owned()),
            ("records: filtered", "/records?status=success&tool=set_status&table=shop.orders&since=1h".to_owned()),
            ("records: none", "/records?tool=nothing".to_owned()),
            ("records: a filter that cannot be used", "/records?table=shop.nothing".to_owned()),
            ("history of a row", "/rows".to_owned()),
            ("history of a row: changes", "/rows?table=shop.orders&key=1".to_owned()),
            ("history of a row: none", "/rows?table=shop.orders&key=9".to_owned()),
            ("undo", "/undo".to_owned()),
            ("activity", "/activity".to_owned()),
            ("log", "/log".to_owned()),
            ("health", "/health".to_owned()),
            ("not found", "/absent".to_owned()),
            ("no such proposal", "/proposals/x".to_owned()),
            ("no such record", "/records/x".to_owned()),
        ];
        pages.extend(fixed);
        pages
    }

    /// A tab in which olga, an operator, is logged in.
    pub(super) async fn operator(&self, browser: &WebBrowser) -> Tab {
        let tab = browser.tab(json!({})).await;
        log_in(tab, &self.shop.console, &self.shop.db, "olga", &["--role", "operator"]).await
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.shop.console.url)
    }
}
