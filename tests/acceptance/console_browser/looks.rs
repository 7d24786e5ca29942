//! Every page in light, in dark, at 200 % and at 400 %: the rules of axe, nothing wider than the window, and nothing that the
//! content security policy stops.

use std::path::PathBuf;

use serde_json::json;
use testkit::{Tab, database, long_form};

use super::site::Site;
use super::{TRY_UNDO, browser, log_in};
use crate::console::{Console, proposed};
use crate::console_pages::Shop;
use crate::several_databases::console::World;

/// Width and height of the window in CSS pixels, and the colour scheme. 640 pixels are 1280 at 200 %, 320 are 1280 at 400 %.
type Look = (u32, u32, &'static str);

const BY_DEFAULT: [Look; 3] = [(1280, 800, "light"), (640, 400, "dark"), (320, 256, "light")];
const LONG: [Look; 6] = [
    (1280, 800, "light"),
    (1280, 800, "dark"),
    (640, 400, "light"),
    (640, 400, "dark"),
    (320, 256, "light"),
    (320, 256, "dark"),
];

/// What is wrong with the page that a tab shows, however it is looked at.
pub(super) async fn findings(tab: &Tab, page: &str) -> Vec<String> {
    let looks: &[Look] = if long_form::is_on() { &LONG } else { &BY_DEFAULT };
    keep_pictures(tab, page).await;
    let mut found = Vec::new();
    for (index, (width, height, scheme)) in looks.iter().enumerate() {
        tab.look(*width, *height, scheme).await;
        let is_first = index == 0 || long_form::is_on();
        let findings = if is_first { tab.findings().await } else { tab.findings_of_look().await };
        for finding in findings {
            found.push(format!("{page}, {width} wide, {scheme}: {finding}"));
        }
    }
    tab.look(1280, 800, "light").await;
    found.extend(tab.problems().await.into_iter().map(|problem| format!("{page}: {problem}")));
    found
}

/// Pictures of a page, for people who work on it: in the folder that a variable names.
async fn keep_pictures(tab: &Tab, page: &str) {
    let Some(folder) = std::env::var_os("COUNTERSIGN_TEST_SCREENSHOTS") else { return };
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")] {
        tab.look(width, 800, scheme).await;
        let name = page.replace([' ', ':'], "-");
        tab.screenshot(&PathBuf::from(&folder).join(format!("{name}-{width}-{scheme}.png"))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn every_page_keeps_the_rules_of_wcag_however_it_is_looked_at() {
    let Some(browser) = browser().await else { return };
    let site = Site::new().await;
    let tab = site.operator(&browser).await;
    let mut found = Vec::new();
    for (name, path) in &site.pages {
        tab.open(&site.url(path)).await;
        found.extend(findings(&tab, name).await);
    }
    assert!(site.pages.len() > 20);
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn so_do_the_pages_that_answer_forms_and_those_before_a_login() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::new().await;
    let tab = browser.tab(json!({})).await;
    let mut found = Vec::new();
    assert_eq!(tab.open(&format!("{}/", shop.console.url)).await, 200);
    found.extend(findings(&tab, "login").await);
    let link = shop.console.link(&shop.db, "olga", &["--role", "operator"]).await;
    tab.open(&link).await;
    found.extend(findings(&tab, "link").await);
    tab.follow("Log in").await;
    found.extend(findings(&tab, "inbox: empty").await);
    for (page, path) in [("records: empty", "/records"), ("activity: empty", "/activity"), ("log: unsigned", "/log")] {
        tab.open(&format!("{}{path}", shop.console.url)).await;
        found.extend(findings(&tab, page).await);
    }

    let write = shop.set_status(1, "shipped").await;
    let record = format!("{}/records/{write}", shop.console.url);
    tab.open(&record).await;
    assert_eq!(tab.follow(TRY_UNDO).await, 200);
    found.extend(findings(&tab, "undo of a write").await);
    tab.open(&record).await;
    shop.set_status(1, "cancelled").await;
    assert_eq!(tab.follow(TRY_UNDO).await, 409);
    found.extend(findings(&tab, "undo of a write: conflicts").await);

    tab.open(&format!("{}/undo", shop.console.url)).await;
    tab.fill("From", "teatime").await;
    assert_eq!(tab.follow("Make a plan").await, 400);
    found.extend(findings(&tab, "undo: a time that cannot be read").await);
    tab.open(&format!("{}/activity", shop.console.url)).await;
    tab.fill("Name", "nobody").await;
    assert_eq!(tab.follow("Freeze").await, 409);
    found.extend(findings(&tab, "freeze: nobody").await);

    tab.open(&link).await;
    assert_eq!(tab.follow("Log in").await, 401);
    found.extend(findings(&tab, "link: used").await);
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn so_does_a_proposal_for_somebody_who_may_not_decide() {
    let Some(browser) = browser().await else { return };
    let db = database().await;
    let console = Console::on(&db).await;
    let (_server, proposal) = proposed(&db, "Sunset").await;
    let page = format!("{}{}", console.url, crate::console::path(&proposal));
    let mut found = Vec::new();
    for (name, more, says) in [
        ("rita", &["--role", "auditor"][..], "An auditor reads, and does not decide."),
        ("Default", &[], "nobody approves their own proposals"),
    ] {
        let tab = log_in(browser.tab(json!({})).await, &console, &db, name, more).await;
        tab.open(&page).await;
        assert!(tab.text().await.contains(says) && tab.count(super::APPROVE).await == 0, "{}", tab.text().await);
        found.extend(findings(&tab, says).await);
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn so_do_the_pages_of_several_databases() {
    let Some(browser) = browser().await else { return };
    let world = World::new(|_| ()).await;
    let (_first, proposal) = proposed(&world.production, "Sunset").await;
    let (_second, _) = proposed(&world.staging, "Sunrise").await;
    let (_, _, link) = world.login("anna", "operator").await;
    let tab = browser.tab(json!({})).await;
    tab.open(&link).await;
    tab.follow("Log in").await;
    let mut found = findings(&tab, "inbox of all").await;
    let of = |database: &str, page: &str| format!("{}/databases/{database}{page}", world.console.url);
    let proposal = crate::console::path(&proposal);
    for (name, address) in [
        ("proposal in production", of("shop", &proposal)),
        ("inbox of production", of("shop", "/")),
        ("records of staging", of("shop_staging", "/records")),
    ] {
        assert_eq!(tab.open(&address).await, 200, "{name}");
        found.extend(findings(&tab, name).await);
    }
    world.proxy.refuse();
    world.staging.run("delete from countersign.console_session").await;
    tab.open(&format!("{}/", world.console.url)).await;
    found.extend(findings(&tab, "inbox with one away").await);
    assert!(found.is_empty(), "{found:#?}");
}
