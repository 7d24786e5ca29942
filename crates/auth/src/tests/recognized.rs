//! Credentials that are recognized without a signature check.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use types::Principal;

use super::support::{Answer, KeyServer, Signer, bearer, claims_with, header_of, identify, knowing, now};
use crate::jwk::{Algorithm, Jwks};
use crate::verified_tokens::{VerifiedToken, VerifiedTokenCache};
use crate::{Authenticator, BearerToken, CredentialKind, Identity, StrongerScopes, TokenHash, generate_token};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn recognized(known: &Authenticator, token: &str) -> Option<Identity> {
    known.recognize(&bearer(token)).map(|admission| admission.identity)
}

#[tokio::test]
async fn a_jwt_is_recognized_once_it_was_verified_and_no_other_is() {
    let signer = Signer::ed25519();
    let known = knowing(&[signer.jwk("k1")]);
    let token = signer.token("EdDSA", "k1");
    assert_eq!(recognized(&known, &token), None, "it has not been verified");
    let identity = identify(&known, &token).await.unwrap();
    assert_eq!(recognized(&known, &token), Some(identity));
    // Another signature, other claims, and a token that was verified and rejected.
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let eve = signer.sign(&header_of("EdDSA", "k1"), &claims_with("sub", json!("eve")));
    let forged = format!("{signed}.{}", eve.rsplit_once('.').unwrap().1);
    let foreign = signer.sign(&header_of("EdDSA", "k1"), &claims_with("aud", json!("https://other.example.com")));
    let powerless = signer.sign(&header_of("EdDSA", "k1"), &claims_with("scope", json!("openid")));
    for wrong in [&forged, &foreign, &powerless, &format!("{signed}.{signature}=")] {
        assert!(identify(&known, wrong).await.is_err());
        assert_eq!(recognized(&known, wrong), None, "{wrong}");
    }
}

#[tokio::test]
async fn a_jwt_is_recognized_until_it_expires() {
    let signer = Signer::ed25519();
    let known = knowing(&[signer.jwk("k1")]);
    // With the 30 s of clock tolerance.
    let token = signer.sign(&header_of("EdDSA", "k1"), &claims_with("exp", json!(now() - 28)));
    let admission = known.identify(&bearer(&token)).await.unwrap();
    assert_eq!(admission.expires.unwrap().unix_timestamp(), now() - 28 + 30);
    let begun = Instant::now();
    while recognized(&known, &token).is_some() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never expires");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(identify(&known, &token).await.is_err());
}

#[tokio::test]
async fn a_jwt_is_recognized_while_the_issuer_publishes_its_key() {
    let (first, second) = (Signer::ed25519(), Signer::ed25519());
    let server = KeyServer::start(Answer::Keys(vec![first.jwk("k1")])).await;
    let known = server.authenticator();
    let token = first.token("EdDSA", "k1");
    assert!(identify(&known, &token).await.is_ok());
    // The same keys with an additional one: no signature is checked again.
    server.answers(Answer::Keys(vec![second.jwk("k2"), first.jwk("k1")]));
    known.remote().advance_clock(HOUR);
    assert!(recognized(&known, &token).is_some());
    server.until_asked(2).await;
    known.remote().refreshed().await;
    assert!(recognized(&known, &token).is_some());
    // Another key with the same id.
    server.answers(Answer::Keys(vec![second.jwk("k1")]));
    known.remote().advance_clock(HOUR);
    assert!(recognized(&known, &token).is_some(), "keys are kept for an hour");
    server.until_asked(3).await;
    known.remote().refreshed().await;
    assert_eq!(recognized(&known, &token), None);
    assert!(identify(&known, &token).await.is_err());
}

#[tokio::test]
async fn a_token_of_the_configuration_is_recognized_unless_it_has_expired() {
    let (good, old) = (generate_token().unwrap(), generate_token().unwrap());
    let table = |secret: &str, expires| BearerToken {
        hash: TokenHash::of(secret),
        account: "a".parse().unwrap(),
        profile: "write".to_owned(),
        databases: None,
        label: None,
        expires,
    };
    let past = time::OffsetDateTime::now_utc() - Duration::from_secs(1);
    let tokens = vec![table(good.expose(), None), table(old.expose(), Some(past))];
    let known = Authenticator::new(tokens, Vec::new()).unwrap();
    assert!(recognized(&known, good.expose()).is_some());
    assert_eq!(recognized(&known, old.expose()), None);
    assert_eq!(recognized(&known, "none-none-none-none-none-none-none"), None);
}

#[tokio::test]
async fn signatures_are_verified_in_turn() {
    let signer = Signer::ed25519();
    let known = Arc::new(knowing(&[signer.jwk("k1")]));
    let all = u32::try_from(known.verifications.available_permits()).unwrap();
    let held = known.verifications.acquire_many(all).await.unwrap();
    let token = signer.token("EdDSA", "k1");
    let verifying = tokio::spawn({
        let (known, token) = (Arc::clone(&known), token.clone());
        async move { identify(&known, &token).await }
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!verifying.is_finished(), "it was verified beside all that may be");
    drop(held);
    assert!(verifying.await.unwrap().is_ok());
}

#[test]
fn the_oldest_of_many_verified_tokens_are_forgotten() {
    let keys = Jwks::parse(json!({"keys": [Signer::ed25519().jwk("k1")]}).to_string().as_bytes()).unwrap();
    let key = Arc::clone(keys.candidates(Some("k1"), Algorithm::EdDsa)[0]);
    let identity = Identity {
        principal: Principal { account_id: "a".parse().unwrap(), ..Principal::default() },
        profile: "write".to_owned(),
        databases: None,
        credential: CredentialKind::Jwt,
    };
    let tokens = VerifiedTokenCache::default();
    let hash = |number: usize| TokenHash::of(&number.to_string());
    for number in (0..=VerifiedTokenCache::CAPACITY).chain(1..10) {
        let stronger = StrongerScopes::default();
        let token = VerifiedToken { identity: identity.clone(), stronger, key: Arc::clone(&key), valid_until: 1.0 };
        tokens.insert(hash(number), token);
    }
    assert!(tokens.get(hash(0), &keys, 0.0).is_none());
    assert!((1..=VerifiedTokenCache::CAPACITY).all(|number| tokens.get(hash(number), &keys, 0.0).is_some()));
}
