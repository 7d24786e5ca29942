//! Approving takes a sign-in that is not long ago: the page, the ledger, and the provider each hold it.

use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::{now_s, poll};

use super::{SECRET, World, query};
use crate::console::{path, proposed, status};

const AGE: &str = "update countersign.console_session set signed_in_at = signed_in_at - interval '2 hours'";

/// The address that signs a person in again and leads back to the proposal.
fn again(proposal: &Value) -> String {
    format!("/login/oidc?again=1&next={}", path(proposal).replace('/', "%2F"))
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_signed_in_long_ago_signs_in_again_and_comes_back_to_the_same_proposal() {
    let world = World::start("").await;
    let (_server, proposal) = proposed(&world.db, "Sunset").await;
    let mut browser = world.browser();
    world.sign_in(&mut browser, &again(&proposal)).await;
    assert!(browser.get(&path(&proposal)).await.body.contains("Approve exactly this"));
    world.db.run(AGE).await;
    let page = browser.get(&path(&proposal)).await;
    let link = again(&proposal).replace('&', "&#38;");
    let offer = format!("<a class=\"button\" href=\"{link}\">Sign in again with Example</a>");
    assert!(page.body.contains(&offer) && page.body.contains("within the last hour"), "{}", page.body);
    assert!(!page.body.contains("Approve exactly this") && page.body.contains("Reject"), "{}", page.body);
    let refused = browser.approve(&proposal).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.body);
    assert!(refused.body.contains("Nothing was approved.") && refused.body.contains(&offer), "{}", refused.body);
    assert_eq!(status(&world.db, &proposal).await, "pending");

    world.provider.set(|provider| provider.auth_time = now_s() - 7200);
    let begun = browser.get(&again(&proposal)).await;
    let sent = query(begun.location());
    assert_eq!((sent["prompt"].as_str(), sent["max_age"].as_str()), ("login", "3600"));
    let landed = world.sign_in(&mut browser, &again(&proposal)).await;
    assert_eq!(landed.location(), format!("{}{}", world.url, path(&proposal)), "{}", landed.body);
    assert!(browser.get(&path(&proposal)).await.body.contains("Approve exactly this"));
    assert_eq!(browser.approve(&proposal).await.status, StatusCode::SEE_OTHER);
    poll::until("the write is executed", async || status(&world.db, &proposal).await == "executed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_asks_nobody_to_sign_in_again_makes_no_sign_in_fresh() {
    let world = World::start("").await;
    let (_server, proposal) = proposed(&world.db, "Sunset").await;
    let says = "You were not asked to sign in again";
    world.provider.set(|provider| {
        provider.asks_again = false;
        provider.auth_time = now_s() - 3700;
    });
    let page = world.sign_in(&mut world.browser(), &again(&proposal)).await;
    world.assert_nobody(&page, StatusCode::FORBIDDEN, says).await;
    world.provider.set(|provider| provider.id_token = json!({"auth_time": null}));
    let page = world.sign_in(&mut world.browser(), &again(&proposal)).await;
    world.assert_nobody(&page, StatusCode::FORBIDDEN, says).await;
    world.provider.set(|provider| provider.id_token = json!({"auth_time": now_s() + 3600}));
    let page = world.sign_in(&mut world.browser(), &again(&proposal)).await;
    world.assert_nobody(&page, StatusCode::UNAUTHORIZED, "is not for this sign-in").await;

    // The first sign-in of a person who has been at the provider for long, or for nobody knows how long.
    for auth_time in [json!(now_s() - 7200), Value::Null] {
        world.provider.set(|provider| provider.id_token = json!({"auth_time": auth_time}));
        let mut browser = world.signed_in().await;
        assert!(browser.get(&path(&proposal)).await.body.contains("Sign in again with Example"), "{auth_time}");
        assert_eq!(browser.approve(&proposal).await.status, StatusCode::FORBIDDEN, "{auth_time}");
    }
    world.provider.set(|provider| provider.id_token = json!({"auth_time": now_s() - 60}));
    let mut browser = world.signed_in().await;
    assert_eq!(browser.approve(&proposal).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_itself_refuses_an_approval_after_an_old_sign_in() {
    let world = World::start("").await;
    let (_server, proposal) = proposed(&world.db, "Sunset").await;
    world.sign_in(&mut world.browser(), &again(&proposal)).await;
    let url = world.db.url().replace("user=postgres", &format!("user=console_{}", world.db.name()));
    let client = testkit::connect(&url).await;
    let (id, digest) = (proposal["proposal_id"].as_str().unwrap(), proposal["digest"].as_str().unwrap());
    let decide = async |outcome: &str, within: &str| -> String {
        let begin = format!("select countersign.begin_decision('{id}')");
        let nonce: String = client.query_one(&begin, &[]).await.unwrap().get(0);
        let session = world.db.value("select encode(token_hash, 'hex') from countersign.console_session").await;
        let call = format!(
            "select countersign.decide_as_console('{id}', '{outcome}', decode('{session}', 'hex'), {within}, '{digest}', null, '{nonce}')"
        );
        client.query_one(&call, &[]).await.unwrap().get(0)
    };
    world.db.run(AGE).await;
    assert_eq!(decide("confirmed", "'1 hour'").await, "sign_in_again");
    world.db.run("update countersign.console_session set signed_in_at = null").await;
    assert_eq!(decide("confirmed", "'12 hours'").await, "sign_in_again");
    world.db.run("update countersign.console_session set role = 'auditor'").await;
    assert_eq!(decide("confirmed", "null").await, "not_reviewer");
    assert_eq!(decide("rejected", "null").await, "not_reviewer");
    world
        .db
        .run("update countersign.console_session set role = 'reviewer', seen_at = seen_at - interval '16 minutes'")
        .await;
    assert_eq!(decide("confirmed", "null").await, "session_ended");
    world
        .db
        .run("update countersign.console_session set seen_at = now(), logged_in_at = now() - interval '13 hours'")
        .await;
    assert_eq!(decide("rejected", "null").await, "session_ended");
    world.db.run("update countersign.console_session set logged_in_at = now()").await;
    assert_eq!(status(&world.db, &proposal).await, "pending");
    // Rejecting takes no fresh sign-in, and without a limit approving does not either.
    assert_eq!(decide("rejected", "'1 hour'").await, "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_is_configured_and_can_be_the_whole_session() {
    let provider = testkit::OidcProvider::start(super::CLIENT, Some(SECRET)).await;
    let config = format!("[console]\napprove_within = \"session\"\n{}", super::usual(&provider));
    let world = World::with(provider, &config).await;
    let (_server, proposal) = proposed(&world.db, "Sunset").await;
    let begun = world.browser().get(&again(&proposal)).await;
    let sent = query(begun.location());
    assert!(!sent.contains_key("prompt") && !sent.contains_key("max_age"), "{sent:?}");
    let mut browser = world.signed_in().await;
    assert_eq!(world.db.value("select signed_in_at is null from countersign.console_session").await, "t");
    assert!(browser.get(&path(&proposal)).await.body.contains("Approve exactly this"));
    assert_eq!(browser.approve(&proposal).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_of_a_link_gets_another_link() {
    let provider = testkit::OidcProvider::start(super::CLIENT, Some(SECRET)).await;
    let world = World::with(provider, "[console]\napprove_within = \"15m\"\n").await;
    let (_server, proposal) = proposed(&world.db, "Sunset").await;
    let log_in = async |browser: &mut super::Browser| {
        let arguments = ["console", "login", "--as", "anna", "--url", &world.url];
        let made = testkit::run_countersign(&world.db.url(), &arguments).await;
        let token = made.out.trim().rsplit('/').next().unwrap().to_owned();
        assert_eq!(browser.post("/login", &[("link", &token)]).await.status, StatusCode::SEE_OTHER, "{}", made.err);
    };
    let mut browser = world.browser();
    log_in(&mut browser).await;
    world.db.run(&AGE.replace("2 hours", "16 minutes")).await;
    let page = browser.get(&path(&proposal)).await;
    assert!(page.body.contains("within the last 15 minutes") && page.body.contains("another link"), "{}", page.body);
    assert!(!page.body.contains("Approve exactly this"), "{}", page.body);
    assert_eq!(browser.approve(&proposal).await.status, StatusCode::FORBIDDEN);
    log_in(&mut browser).await;
    assert_eq!(browser.approve(&proposal).await.status, StatusCode::SEE_OTHER);
    // There is no provider, and no page for one.
    for page in ["/login/oidc", "/login/oidc/callback?state=x&code=y"] {
        assert_eq!(browser.get(page).await.status, StatusCode::NOT_FOUND, "{page}");
    }
    assert!(!browser.get("/login").await.body.contains("Sign in with"));
}
