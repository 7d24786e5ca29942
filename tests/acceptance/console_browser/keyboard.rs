//! People without a mouse, and browsers without JavaScript, do the same.

use serde_json::json;
use testkit::{Tab, database};

use super::site::Site;
use super::{APPROVE, browser, logged_in, until_executed, without_javascript};
use crate::console::{Console, path, proposed, status};

/// Presses Tab until the element of this name has the focus.
async fn tab_to(tab: &Tab, name: &str) {
    let mut passed = Vec::new();
    while passed.len() < 60 {
        tab.press("Tab").await;
        let focused = tab.focused().await.unwrap_or_else(|| panic!("no element has the focus after {passed:?}"));
        assert!(focused.problems.is_empty(), "{}: {:?}", focused.name, focused.problems);
        if focused.name == name {
            return;
        }
        passed.push(focused.name);
    }
    panic!("{name} is not among {passed:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_proposal_is_found_approved_or_rejected_with_the_keyboard_only() {
    let Some(browser) = browser().await else { return };
    let db = database().await;
    let console = Console::on(&db).await;
    let (_one, approved) = proposed(&db, "Sunset").await;
    let tab = browser.tab(json!({})).await;
    tab.open(&console.link(&db, "anna", &[]).await).await;
    tab_to(&tab, "Log in").await;
    tab.press("Enter").await;
    tab.arrive("/").await;
    tab_to(&tab, "Delete a package").await;
    tab.press("Enter").await;
    tab.arrive(&path(&approved)).await;
    tab_to(&tab, APPROVE).await;
    tab.press("Space").await;
    until_executed(&db, &approved).await;

    let (_other, rejected) = proposed(&db, "Newborn").await;
    tab.open(&format!("{}{}", console.url, path(&rejected))).await;
    tab_to(&tab, "Question to the agent, or reason for a rejection").await;
    tab.type_text("It is still sold.").await;
    tab_to(&tab, "Reject").await;
    tab.press("Enter").await;
    tab.wait_for_text("What was decided").await;
    assert_eq!(status(&db, &rejected).await, "rejected");
    tab_to(&tab, "Log out").await;
    tab.press("Enter").await;
    tab.arrive("/login").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn the_tab_key_reaches_everything_in_its_order_and_shows_where_it_is() {
    let Some(browser) = browser().await else { return };
    let site = Site::new().await;
    let tab = site.operator(&browser).await;
    let mut found = Vec::new();
    for (name, path) in &site.pages {
        tab.open(&site.url(path)).await;
        let (stops, problems) = tab.walk().await;
        assert_eq!(stops[..2], ["Skip to the content", "countersign"], "{name}");
        found.extend(problems.into_iter().map(|problem| format!("{name}: {problem}")));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_browser_without_javascript_does_all_of_it() {
    let Some(browser) = browser().await else { return };
    let db = database().await;
    let console = Console::on(&db).await;
    let tab = logged_in(&browser, &console, &db, "anna", without_javascript()).await;
    let (_one, approved) = proposed(&db, "Sunset").await;
    tab.open(&format!("{}/", console.url)).await;
    assert_eq!(tab.follow("Delete a package").await, 200);
    assert!(tab.text().await.contains(" UTC"), "{}", tab.text().await);
    assert_eq!(tab.follow(APPROVE).await, 200);
    until_executed(&db, &approved).await;
    tab.open(&format!("{}{}", console.url, path(&approved))).await;
    assert!(tab.text().await.contains("anna, via console"), "{}", tab.text().await);

    let (_other, rejected) = proposed(&db, "Newborn").await;
    tab.open(&format!("{}{}", console.url, path(&rejected))).await;
    tab.fill("Question to the agent, or reason for a rejection", "It is still sold.").await;
    assert_eq!(tab.follow("Reject").await, 200);
    assert_eq!(status(&db, &rejected).await, "rejected");
    assert_eq!(tab.follow("Log out").await, 200);
    assert_eq!(tab.url().await, format!("{}/login", console.url));
    assert_eq!(tab.problems().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn times_are_those_of_the_browser_with_utc_beside_them() {
    let Some(browser) = browser().await else { return };
    let db = database().await;
    let console = Console::on(&db).await;
    let (_server, proposal) = proposed(&db, "Sunset").await;
    let tab = logged_in(&browser, &console, &db, "anna", json!({})).await;
    // The tests' browsers are in Berlin, where summer time has begun on this day.
    tab.tamper(&format!("datetime=\"{}", proposal["created_at"].as_str().unwrap()), "datetime=\"2026-03-29T22:30:00Z")
        .await;
    tab.open(&format!("{}{}", console.url, path(&proposal))).await;
    assert!(tab.text().await.contains("30 Mar 2026, 00:30"), "{}", tab.text().await);
    let title = tab.run("document.querySelector('time').title").await;
    assert!(title.as_str().unwrap().ends_with(" UTC"), "{title}");
}
