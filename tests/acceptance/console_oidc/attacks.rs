//! What does not belong to this browser, or was there before: each ends in a page and nothing else.

use reqwest::{Method, StatusCode};
use testkit::Database;

use super::{World, query};

const CANNOT: &str = "It took more than 10 minutes, it was completed already, or another browser has begun it.";

/// The same address with other parameters; `None` removes one.
fn changed(callback: &str, changes: &[(&str, Option<&str>)]) -> String {
    let mut parameters = query(&format!("http://x{callback}"));
    for (name, value) in changes {
        match value {
            Some(value) => drop(parameters.insert((*name).to_owned(), (*value).to_owned())),
            None => drop(parameters.remove(*name)),
        }
    }
    let url = reqwest::Url::parse_with_params(&format!("http://x{}", callback.split('?').next().unwrap()), parameters);
    url.unwrap().as_str().strip_prefix("http://x").unwrap().to_owned()
}

async fn sign_ins(db: &Database) -> String {
    db.value("select count(*) from countersign.console_sign_in").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_of_another_browser_signs_nobody_in() {
    // Login CSRF: the attacker's own code, in the victim's browser.
    let world = World::start("").await;
    let (mut attacker, mut victim) = (world.browser(), world.browser());
    let callback = world.callback(&mut attacker, "/login/oidc").await;
    let page = victim.get(&callback).await;
    world.assert_nobody(&page, StatusCode::UNAUTHORIZED, CANNOT).await;
    victim.get("/login/oidc").await;
    assert!(victim.cookies.contains_key("__Host-countersign-sign-in"));
    let page = victim.get(&callback).await;
    world.assert_nobody(&page, StatusCode::UNAUTHORIZED, CANNOT).await;
    assert_eq!(world.provider.token_requests(), 0, "the code is not even sent");
    // Nothing that others do ends it for the browser that it belongs to.
    assert_eq!(attacker.get(&callback).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_request_neither_begins_nor_completes_a_sign_in() {
    // S-15: programs that look behind links send it.
    let world = World::start("").await;
    let mut browser = world.browser();
    let head = browser.send(Method::HEAD, "/login/oidc", &[]).await;
    assert_eq!(head.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(sign_ins(&world.db).await, "0");
    let callback = world.callback(&mut browser, "/login/oidc").await;
    let head = browser.send(Method::HEAD, &callback, &[]).await;
    assert_eq!(head.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(world.db.value("select count(*) from countersign.console_session").await, "0");
    assert_eq!(browser.get(&callback).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_counts_once_and_for_ten_minutes() {
    let world = World::start("").await;
    let mut browser = world.browser();
    let callback = world.callback(&mut browser, "/login/oidc").await;
    let cookie = browser.cookies.clone();
    assert_eq!(browser.get(&callback).await.status, StatusCode::SEE_OTHER);
    world.db.run("delete from countersign.console_session").await;
    browser.cookies = cookie;
    let page = browser.get(&callback).await;
    world.assert_nobody(&page, StatusCode::UNAUTHORIZED, CANNOT).await;
    assert_eq!(world.provider.token_requests(), 1);

    let callback = world.callback(&mut browser, "/login/oidc").await;
    world.db.run("update countersign.console_sign_in set started_at = started_at - interval '10 minutes'").await;
    let page = browser.get(&callback).await;
    world.assert_nobody(&page, StatusCode::UNAUTHORIZED, CANNOT).await;
    assert_eq!(world.provider.token_requests(), 1);
    browser.get("/login/oidc").await;
    assert_eq!(sign_ins(&world.db).await, "1", "old ones are removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_counts_once_however_many_arrive_at_the_same_time() {
    let world = World::start("").await;
    let mut browser = world.browser();
    let callback = world.callback(&mut browser, "/login/oidc").await;
    let answers = (0..8).map(|_| {
        let mut tab = world.browser();
        tab.cookies = browser.cookies.clone();
        let callback = callback.clone();
        tokio::spawn(async move { tab.get(&callback).await.status })
    });
    let mut admitted = 0;
    for answer in answers.collect::<Vec<_>>() {
        admitted += usize::from(answer.await.unwrap() == StatusCode::SEE_OTHER);
    }
    assert_eq!((admitted, world.provider.token_requests()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_guessed_missing_or_doubled_is_none() {
    let world = World::start("").await;
    let mut browser = world.browser();
    let callback = world.callback(&mut browser, "/login/oidc").await;
    let state = query(&format!("http://x{callback}"))["state"].clone();
    for other in [
        changed(&callback, &[("state", None)]),
        changed(&callback, &[("state", Some(""))]),
        changed(&callback, &[("state", Some("cs_0000000000000000000000000000000000000000000"))]),
        changed(&callback, &[("state", Some(&state.to_lowercase()))]),
        format!("{callback}&state={state}"),
        format!("{callback}&code=other"),
        "/login/oidc/callback".to_owned(),
        format!("/login/oidc/callback?{}", "x".repeat(20_000)),
    ] {
        let page = browser.get(&other).await;
        world.assert_nobody(&page, StatusCode::UNAUTHORIZED, CANNOT).await;
    }
    assert_eq!(browser.send(Method::POST, &callback, &[]).await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!((world.provider.token_requests(), sign_ins(&world.db).await.as_str()), (0, "1"));
    // The state is not stored as it is.
    let stored = world.db.value("select s::text from countersign.console_sign_in s").await;
    assert!(!stored.contains(&state), "{stored}");
    assert_eq!(browser.get(&callback).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_of_another_sign_in_is_worth_nothing() {
    // A code that was stolen, and one that was used, each injected into a sign-in of the attacker's own browser.
    let world = World::start("").await;
    let (mut victim, mut attacker) = (world.browser(), world.browser());
    let stolen = world.callback(&mut victim, "/login/oidc").await;
    let code = query(&format!("http://x{stolen}"))["code"].clone();
    let own = world.callback(&mut attacker, "/login/oidc").await;
    let page = attacker.get(&changed(&own, &[("code", Some(&code))])).await;
    world.assert_nobody(&page, StatusCode::UNAUTHORIZED, "does not accept the code").await;

    let used = world.callback(&mut victim, "/login/oidc").await;
    let code = query(&format!("http://x{used}"))["code"].clone();
    assert_eq!(victim.get(&used).await.status, StatusCode::SEE_OTHER);
    world.db.run("delete from countersign.console_session").await;
    let own = world.callback(&mut victim, "/login/oidc").await;
    let page = victim.get(&changed(&own, &[("code", Some(&code))])).await;
    world.assert_nobody(&page, StatusCode::UNAUTHORIZED, "does not accept the code").await;
    let own = world.callback(&mut victim, "/login/oidc").await;
    let page = victim.get(&changed(&own, &[("code", None)])).await;
    world.assert_nobody(&page, StatusCode::UNAUTHORIZED, "does not accept the code").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_redirected_to_another_host() {
    let world = World::start("").await;
    for next in [
        "https://evil.example.com/",
        "//evil.example.com/",
        "/\\evil.example.com/",
        "\\\\evil.example.com/",
        "/\t/evil.example.com/",
        "\n//evil.example.com/",
        ".evil.example.com/",
        "@evil.example.com/",
        "javascript:alert(1)",
        "/login",
    ] {
        let encoded = next.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let landed = world.sign_in(&mut world.browser(), &format!("/login/oidc?next={encoded}")).await;
        assert_eq!(landed.location(), format!("{}/", world.url), "{next:?}");
        let login = world.browser().get(&format!("/login?next={encoded}")).await;
        assert!(login.body.contains("href=\"/login/oidc\""), "{next:?}: {}", login.body);
    }
    // The ledger could be told another path, by whoever has changed it.
    let mut browser = world.browser();
    let callback = world.callback(&mut browser, "/login/oidc").await;
    world.db.run("update countersign.console_sign_in set return_to = '//evil.example.com/'").await;
    assert_eq!(browser.get(&callback).await.location(), format!("{}/", world.url));
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_ins_that_are_only_begun_are_bounded_and_leave_room_for_new_ones() {
    let world = World::start("").await;
    world
        .db
        .run(
            "insert into countersign.console_sign_in (state_hash, browser_hash, nonce, verifier, return_to, is_fresh, started_at) \
             select sha256(n::text::bytea), '', '', '', '/', false, clock_timestamp() - interval '1 minute' + n * interval '1 ms' \
             from generate_series(1, 10500) n",
        )
        .await;
    let mut browser = world.browser();
    let callback = world.callback(&mut browser, "/login/oidc").await;
    assert_eq!(sign_ins(&world.db).await, "10000");
    assert_eq!(browser.get(&callback).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_cannot_begin_the_sign_ins_of_all() {
    // S-6: behind a proxy that names its clients.
    let provider = testkit::OidcProvider::start(super::CLIENT, Some(super::SECRET)).await;
    let config = format!("{}[http]\ntrusted_proxies = [\"127.0.0.1\"]\n", super::usual(&provider));
    let world = World::with(provider, &config).await;
    let mut person = world.browser();
    let callback = world.callback(&mut person, "/login/oidc").await;
    let flood = async |from: &str| {
        let request = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let request = request.get(format!("{}/login/oidc", world.url)).header("x-forwarded-for", from);
        request.send().await.unwrap()
    };
    let mut refused = None;
    for _ in 0..2_000 {
        let response = flood("198.51.100.7").await;
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            refused = Some(response);
            break;
        }
        assert_eq!(response.status(), StatusCode::SEE_OTHER);
    }
    let refused = refused.expect("a limit");
    assert_eq!(refused.headers()["retry-after"], "1");
    assert!(refused.text().await.unwrap().contains("Too many sign-ins"));
    assert_eq!(flood("198.51.100.8").await.status(), StatusCode::SEE_OTHER, "another address");
    assert_eq!(person.get(&callback).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_in_makes_another_session_and_ends_the_one_before() {
    let world = World::start("").await;
    let mut browser = world.signed_in().await;
    let before = browser.cookies.clone();
    assert_eq!(world.sign_in(&mut browser, "/login/oidc").await.status, StatusCode::SEE_OTHER);
    assert_ne!(browser.cookies, before);
    assert_eq!(browser.get("/").await.status, StatusCode::OK);
    let mut thief = world.browser();
    thief.cookies = before;
    assert_eq!(thief.get("/").await.status, StatusCode::SEE_OTHER, "the old session has ended");
    // A session that a browser brings along is not taken over.
    let mut fixed = world.browser();
    fixed.cookies.insert("__Host-countersign".to_owned(), "cs_chosen-by-somebody-else".to_owned());
    world.sign_in(&mut fixed, "/login/oidc").await;
    assert_ne!(fixed.cookies["__Host-countersign"], "cs_chosen-by-somebody-else");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pages_of_one_browser_can_sign_in_at_once() {
    let world = World::start("").await;
    let mut browser = world.browser();
    let one = world.callback(&mut browser, "/login/oidc?next=/one").await;
    let two = world.callback(&mut browser, "/login/oidc?next=/two").await;
    let cookies = browser.cookies.clone();
    for (callback, path) in [(one, "/one"), (two, "/two")] {
        browser.cookies = cookies.clone();
        assert_eq!(browser.get(&callback).await.location(), format!("{}{path}", world.url));
    }
}
