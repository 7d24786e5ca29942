//! People sign in at an OpenID Connect provider, in a browser.

use serde_json::json;
use testkit::now_s;

use super::looks::findings;
use super::{APPROVE, browser, until_executed};
use crate::console::{path, proposed};
use crate::console_oidc::World;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_person_signs_in_at_the_provider_approves_and_logs_out() {
    let Some(browser) = browser().await else { return };
    let world = World::start("").await;
    let (_server, proposal) = proposed(&world.db, "Sunset").await;
    let page = format!("{}{}", world.url, path(&proposal));
    let tab = browser.tab(json!({})).await;
    assert_eq!(tab.open(&page).await, 200);
    assert!(tab.url().await.contains("/login?next="), "{}", tab.url().await);
    let mut found = findings(&tab, "login with a provider").await;
    assert_eq!(tab.follow("Sign in with Example").await, 200);
    assert_eq!(tab.url().await, page, "the person is where they wanted to be");
    assert_eq!(tab.count("Log out").await, 1);

    // The sign-in becomes too old to approve with.
    world.db.run("update countersign.console_session set signed_in_at = signed_in_at - interval '2 hours'").await;
    world.provider.set(|provider| provider.auth_time = now_s() - 7200);
    assert_eq!(tab.open(&page).await, 200);
    assert_eq!(tab.count(APPROVE).await, 0);
    found.extend(findings(&tab, "proposal: sign in again").await);
    assert_eq!(tab.follow("Sign in again with Example").await, 200);
    assert_eq!((tab.url().await, tab.count(APPROVE).await), (page, 1));
    assert_eq!(tab.follow(APPROVE).await, 200);
    until_executed(&world.db, &proposal).await;
    let by = world.db.value("select concat(decided_by, ' ', decided_via) from countersign.proposal").await;
    assert_eq!(by, "anna@example.com console");
    assert_eq!(tab.follow("Log out").await, 200);
    assert_eq!(tab.count("Log out").await, 0);

    world.provider.set(|provider| provider.response = json!({"error": "access_denied", "code": null}));
    assert_eq!(tab.follow("Sign in with Example").await, 403);
    found.extend(findings(&tab, "sign-in: declined").await);
    assert!(found.is_empty(), "{found:#?}");
}
