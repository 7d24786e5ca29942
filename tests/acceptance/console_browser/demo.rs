//! The first minute of a newcomer: `countersign demo --console`, the link that it prints, and a decision.

use serde_json::json;

use super::looks::findings;
use super::{APPROVE, TRY_UNDO, browser};
use crate::demo::ConsoleDemo;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_newcomer_sees_a_change_approves_it_and_takes_it_back() {
    let Some(browser) = browser().await else { return };
    let demo = ConsoleDemo::start().await;
    let tab = browser.tab(json!({})).await;
    assert_eq!(tab.open(demo.link()).await, 200);
    assert_eq!(tab.follow("Log in").await, 200);
    let mut found = findings(&tab, "demo: inbox").await;
    assert_eq!(tab.run("document.title").await, "(1) Inbox · countersign");
    assert_eq!(tab.follow("Delete a package").await, 200);
    let text = tab.text().await;
    for part in [
        "pending",
        "mia (default)",
        "It would delete 1 row of studio.package and update 1 row of studio.booking.",
        "package_id = 3",
        "Passport pictures",
        "studio.booking",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    found.extend(findings(&tab, "demo: proposal").await);
    // The next page has a line about the outcome.
    assert_eq!(tab.follow(APPROVE).await, 200);
    assert!(tab.text().await.contains("executed"), "{}", tab.text().await);
    assert_eq!(tab.follow("What was decided").await, 200);
    let text = tab.text().await;
    assert!(text.contains("executed") && text.contains("anna, via console"), "{text}");
    found.extend(findings(&tab, "demo: executed").await);
    let record = tab.run("document.querySelector('dd a[href^=\"/records/\"]').textContent").await;
    assert_eq!(tab.follow(record.as_str().unwrap()).await, 200);
    assert_eq!(tab.follow(TRY_UNDO).await, 200);
    assert!(tab.text().await.contains("It puts back 2 rows"), "{}", tab.text().await);
    assert_eq!(tab.follow("Undo this write").await, 200);
    assert!(tab.text().await.contains("Undoes"), "{}", tab.text().await);
    found.extend(findings(&tab, "demo: undo").await);
    assert!(found.is_empty(), "{found:#?}");
    demo.end().await;
}
