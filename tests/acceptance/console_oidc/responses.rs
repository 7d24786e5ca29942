//! Answers of a provider, or of somebody in its place, that are not for this sign-in.

use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::now_s;

use super::World;

#[tokio::test(flavor = "multi_thread")]
async fn an_id_token_that_is_not_of_this_sign_in_is_refused() {
    let world = World::start("").await;
    let says = "What Example says is not for this sign-in";
    for (claims, reason) in [
        (json!({"nonce": "another"}), "(nonce)"),
        (json!({"nonce": null}), "(nonce)"),
        (json!({"iss": "https://evil.example.com"}), "(iss)"),
        (json!({"aud": "another"}), "(aud)"),
        (json!({"aud": ["console", "another"]}), "(azp)"),
        (json!({"aud": ["console", "another"], "azp": "another"}), "(azp)"),
        (json!({"azp": "another"}), "(azp)"),
        (json!({"exp": now_s() - 60}), "(exp)"),
        (json!({"exp": null}), "(exp)"),
        (json!({"iat": now_s() + 120}), "(iat)"),
        (json!({"iat": now_s() - 3600}), "(iat)"),
        (json!({"iat": null}), "(iat)"),
        (json!({"sub": null}), "(sub)"),
        (json!({"auth_time": now_s() + 3600}), "(auth_time)"),
    ] {
        world.provider.set(|provider| provider.id_token = claims.clone());
        let page = world.sign_in(&mut world.browser(), "/login/oidc").await;
        world.assert_nobody(&page, StatusCode::UNAUTHORIZED, says).await;
        world.console.logged(reason).await;
    }
    world.provider.set(|provider| {
        provider.id_token = json!({});
        provider.is_forged = true;
    });
    let page = world.sign_in(&mut world.browser(), "/login/oidc").await;
    world.assert_nobody(&page, StatusCode::UNAUTHORIZED, says).await;
    world.console.logged("the signature of the token is not valid").await;
    world.provider.set(|provider| {
        provider.is_forged = false;
        provider.id_token = json!({"aud": ["console", "another"], "azp": "console"});
    });
    world.signed_in().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_does_not_name_the_provider_is_refused() {
    // Mix-up: a response of another provider, which would get the code of this one, or give one of its own.
    let world = World::start("").await;
    let foreign = json!({"iss": "https://evil.example.com"});
    for response in [&foreign, &json!({"iss": null}), &json!({"iss": ""})] {
        world.provider.set(|provider| provider.response = response.clone());
        let page = world.sign_in(&mut world.browser(), "/login/oidc").await;
        world.assert_nobody(&page, StatusCode::UNAUTHORIZED, "does not say that it is from Example").await;
    }
    assert_eq!(world.provider.token_requests(), 0, "no code is sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_does_not_announce_its_name_in_responses_need_not_send_it() {
    let announced = "authorization_response_iss_parameter_supported";
    let provider = testkit::OidcProvider::start(super::CLIENT, Some(super::SECRET)).await;
    provider.set(|provider| {
        provider.discovery = json!({announced: null});
        provider.response = json!({"iss": "https://evil.example.com"});
    });
    let config = super::usual(&provider);
    let world = World::with(provider, &config).await;
    let page = world.sign_in(&mut world.browser(), "/login/oidc").await;
    world.assert_nobody(&page, StatusCode::UNAUTHORIZED, "does not say that it is from Example").await;
    world.provider.set(|provider| provider.response = json!({"iss": null}));
    world.signed_in().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_provider_is_said_in_words_and_nothing_of_it_is_taken_for_markup() {
    let world = World::start("").await;
    let markup = "<script>alert(1)</script>\u{202e}";
    for (error, says) in [
        ("access_denied", "The sign-in was declined there."),
        ("login_required", "Its answer is &#34;login_required&#34;."),
        (markup, "Its answer is &#34;&#60;script&#62;"),
    ] {
        world.provider.set(|provider| {
            provider.response = json!({"error": error, "error_description": markup, "code": null});
        });
        let page = world.sign_in(&mut world.browser(), "/login/oidc?next=/proposals/1").await;
        world.assert_nobody(&page, StatusCode::FORBIDDEN, says).await;
        assert!(page.body.contains("Example has not signed you in"), "{}", page.body);
        assert!(!page.body.contains("<script>") && !page.body.contains('\u{202e}'), "{}", page.body);
        assert!(page.body.contains("href=\"/login?next=%2Fproposals%2F1\""), "{}", page.body);
    }
    // With a code as well, it is still a refusal; and one of another provider is none of this one.
    world.provider.set(|provider| provider.response = json!({"error": "access_denied"}));
    let page = world.sign_in(&mut world.browser(), "/login/oidc").await;
    world.assert_nobody(&page, StatusCode::FORBIDDEN, "declined there").await;
    world.provider.set(|provider| provider.response = json!({"error": "access_denied", "iss": null}));
    let page = world.sign_in(&mut world.browser(), "/login/oidc").await;
    world.assert_nobody(&page, StatusCode::UNAUTHORIZED, "does not say that it is from Example").await;
    assert_eq!(world.provider.token_requests(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_cannot_be_used_stops_no_console_and_the_log_says_why() {
    for (discovery, status, says, reason) in [
        (
            json!({"issuer": "https://evil.example.com"}),
            StatusCode::BAD_GATEWAY,
            "do not work together",
            "is of the issuer",
        ),
        (
            json!({"code_challenge_methods_supported": ["plain"]}),
            StatusCode::BAD_GATEWAY,
            "do not work together",
            "PKCE",
        ),
        (
            json!({"token_endpoint": "http://idp.example.com/t"}),
            StatusCode::BAD_GATEWAY,
            "do not work together",
            "https://",
        ),
        (json!({"jwks_uri": null}), StatusCode::SERVICE_UNAVAILABLE, "cannot be asked", "jwks_uri"),
        (
            json!({"token_endpoint": "http://127.0.0.1:1/token"}),
            StatusCode::SERVICE_UNAVAILABLE,
            "cannot be asked",
            "token endpoint",
        ),
    ] {
        let provider = testkit::OidcProvider::start(super::CLIENT, Some(super::SECRET)).await;
        provider.set(|provider| provider.discovery = discovery.clone());
        let config = super::usual(&provider);
        let world = World::with(provider, &config).await;
        let mut browser = world.browser();
        let begun = browser.get("/login/oidc").await;
        let page = match begun.headers.get("location") {
            Some(_) => {
                let callback = world.provider.authorize(begun.location()).await;
                let callback = callback.strip_prefix(&world.url).unwrap().to_owned();
                browser.get(&callback).await
            }
            None => begun,
        };
        world.assert_nobody(&page, status, says).await;
        world.console.logged(reason).await;
        assert_eq!(browser.get("/login").await.status, StatusCode::OK);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_the_provider_does_not_know_signs_nobody_in() {
    let world = World::start("").await;
    for change in [json!("another-secret"), Value::Null] {
        world.provider.set(|provider| provider.client_secret = change.as_str().map(str::to_owned));
        let page = world.sign_in(&mut world.browser(), "/login/oidc").await;
        world.assert_nobody(&page, StatusCode::BAD_GATEWAY, "do not work together").await;
        world.console.logged("invalid_client").await;
    }
}
