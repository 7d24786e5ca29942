//! When the issuer's keys are fetched, and the effect of an unreachable issuer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hyper::body::Bytes;
use serde_json::json;
use tokio::sync::watch;
use types::AccountId;

use super::support::{Answer, KeyServer, Signer, identify, issuer, refused};
use crate::jwks_cache::{JwksCache, RemoteJwks};
use crate::{AuthError, Authenticator, BearerToken, JwksSource, TokenHash};

const MINUTE: Duration = Duration::from_secs(60);

impl Authenticator {
    pub(super) fn remote(&self) -> Arc<RemoteJwks> {
        match self.issuers[0].keys() {
            JwksCache::RemoteJwks(remote) => Arc::clone(remote),
            JwksCache::Fixed(_) => panic!("the keys stand in a file"),
        }
    }
}

#[tokio::test]
async fn keys_are_looked_up_at_the_first_need_and_then_kept() {
    let signer = Signer::ed25519();
    let server = KeyServer::start(Answer::Keys(vec![signer.jwk("k1")])).await;
    let known = server.authenticator();
    assert_eq!(server.asked(), 0, "no request had a token");
    refused(&known, "cs_nothing-that-looks-like-a-jwt").await;
    refused(&known, "not.a.jwt").await;
    assert_eq!(server.asked(), 0, "no key could help");
    let token = signer.token("EdDSA", "k1");
    let many = join_all((0..50).map(|_| identify(&known, &token))).await;
    assert!(many.iter().all(Result::is_ok));
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn a_new_key_of_the_issuer_counts_at_once_and_an_old_one_until_it_is_gone() {
    let (old, new) = (Signer::ed25519(), Signer::p256());
    let server = KeyServer::start(Answer::Keys(vec![old.jwk("old")])).await;
    let known = server.authenticator();
    assert!(identify(&known, &old.token("EdDSA", "old")).await.is_ok());
    known.remote().advance_clock(MINUTE);

    server.answers(Answer::Keys(vec![old.jwk("old"), new.jwk("new")]));
    assert!(identify(&known, &new.token("ES256", "new")).await.is_ok());
    assert!(identify(&known, &old.token("EdDSA", "old")).await.is_ok());
    assert_eq!(server.asked(), 2);

    server.answers(Answer::Keys(vec![new.jwk("new")]));
    known.remote().advance_clock(60 * MINUTE);
    // Within the hour the keys are not fetched. After it a request starts a fetch, and does not wait for it.
    assert!(identify(&known, &old.token("EdDSA", "old")).await.is_ok());
    server.until_asked(3).await;
    known.remote().refreshed().await;
    assert!(refused(&known, &old.token("EdDSA", "old")).await.contains("no key"));
    assert!(identify(&known, &new.token("ES256", "new")).await.is_ok());
    assert_eq!(server.asked(), 3);
}

#[tokio::test]
async fn unknown_keys_make_no_storm() {
    let (signer, foreign) = (Signer::ed25519(), Signer::ed25519());
    let server = KeyServer::start(Answer::Keys(vec![signer.jwk("k1")])).await;
    let known = server.authenticator();
    assert!(identify(&known, &signer.token("EdDSA", "k1")).await.is_ok());
    let storm = async || {
        let tokens: Vec<String> = (0..200).map(|number| foreign.token("EdDSA", &format!("none-{number}"))).collect();
        for refusal in join_all(tokens.iter().map(|token| refused(&known, token))).await {
            assert!(refusal.contains("no key"), "{refusal}");
        }
    };
    storm().await;
    assert_eq!(server.asked(), 1, "they were looked up within the last minute");
    known.remote().advance_clock(MINUTE);
    storm().await;
    storm().await;
    assert_eq!(server.asked(), 2, "once a minute");
    known.remote().advance_clock(MINUTE);
    storm().await;
    assert_eq!(server.asked(), 3);
    assert!(identify(&known, &signer.token("EdDSA", "k1")).await.is_ok());
}

#[tokio::test]
async fn a_server_that_hangs_costs_5_seconds_and_only_those_who_need_it() {
    let signer = Signer::ed25519();
    let (release, held) = watch::channel(false);
    let server = KeyServer::start(Answer::Held(held.clone(), vec![signer.jwk("k1")])).await;
    let source = JwksSource::Url(server.url().parse().unwrap());
    let secret = "token-token-token-token-token-token";
    let token = BearerToken {
        hash: TokenHash::of(secret),
        account: AccountId::new("a").unwrap(),
        profile: "write".to_owned(),
        databases: None,
        label: None,
        expires: None,
    };
    let known = Arc::new(Authenticator::new(vec![token], vec![issuer(source)]).unwrap());
    let started = tokio::time::Instant::now();
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let (known, token) = (Arc::clone(&known), signer.token("EdDSA", "k1"));
            tokio::spawn(async move { identify(&known, &token).await })
        })
        .collect();
    server.until_asked(1).await;
    assert!(identify(&known, secret).await.is_ok(), "a token needs no issuer");
    assert!(waiting.iter().all(|one| !one.is_finished()) && started.elapsed() < Duration::from_secs(4));
    // From here on only time is waited for, and the paused clock advances at once.
    tokio::time::pause();
    for refusal in join_all(waiting).await {
        let refusal = refusal.unwrap().unwrap_err();
        assert!(matches!(&refusal, AuthError::Unavailable { reason } if reason.contains("within 5 s")), "{refusal:?}");
    }
    let took = started.elapsed();
    tokio::time::resume();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(9), "{took:?}");
    assert_eq!(server.asked(), 1, "those who waited do not ask again, one after the other");

    // The known keys remain in use, whatever the result of a fetch.
    release.send(true).unwrap();
    known.remote().advance_clock(Duration::from_secs(5));
    assert!(identify(&known, &signer.token("EdDSA", "k1")).await.is_ok());
    release.send(false).unwrap();
    known.remote().advance_clock(60 * MINUTE);
    let started = Instant::now();
    for _ in 0..10 {
        assert!(identify(&known, &signer.token("EdDSA", "k1")).await.is_ok());
    }
    assert!(started.elapsed() < Duration::from_secs(4));
    server.until_asked(3).await;
    release.send(true).unwrap();
    known.remote().refreshed().await;
    assert_eq!(server.asked(), 3);
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_stop_the_fetch_that_others_wait_for() {
    let signer = Signer::ed25519();
    let (release, held) = watch::channel(false);
    let server = KeyServer::start(Answer::Held(held, vec![signer.jwk("k1")])).await;
    let known = Arc::new(server.authenticator());
    let gone = tokio::spawn({
        let (known, token) = (Arc::clone(&known), signer.token("EdDSA", "k1"));
        async move { identify(&known, &token).await }
    });
    server.until_asked(1).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    release.send(true).unwrap();
    assert!(identify(&known, &signer.token("EdDSA", "k1")).await.is_ok());
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn what_is_no_set_of_keys_is_not_taken_and_what_there_was_stays_for_a_day() {
    let signer = Signer::ed25519();
    let token = signer.token("EdDSA", "k1");
    let elsewhere = KeyServer::start(Answer::Keys(vec![signer.jwk("k1")])).await;
    let location: &'static str = Box::leak(elsewhere.url().into_boxed_str());
    let huge = json!({"keys": [signer.jwk("k1")], "padding": "x".repeat(1024 * 1024)}).to_string();
    let wrong = [
        (Answer::Status(302, location), "302"),
        (Answer::Status(307, location), "307"),
        (Answer::Status(500, ""), "500"),
        (Answer::Status(204, ""), "204"),
        (Answer::Body(Bytes::from_static(b"<html>")), "not a JSON Web Key Set"),
        (Answer::Body(Bytes::from_static(b"{\"keys\": []}")), "no key that can be used"),
        (Answer::Body(huge.into()), "limit"),
    ];
    for (answer, why) in wrong.clone() {
        let server = KeyServer::start(answer).await;
        let refusal = identify(&server.authenticator(), &token).await.unwrap_err();
        assert!(matches!(&refusal, AuthError::Unavailable { reason } if reason.contains(why)), "{why}: {refusal:?}");
    }
    assert_eq!(elsewhere.asked(), 0, "no redirect is followed");

    let server = KeyServer::start(Answer::Keys(vec![signer.jwk("k1")])).await;
    let known = server.authenticator();
    assert!(identify(&known, &token).await.is_ok());
    for (answer, _) in wrong {
        server.answers(answer);
        known.remote().advance_clock(61 * MINUTE);
        let before = server.asked();
        assert!(identify(&known, &token).await.is_ok());
        server.until_asked(before + 1).await;
        known.remote().refreshed().await;
    }
    // While the issuer is unreachable, an unknown key may be valid, so the token is not rejected as invalid.
    let refusal = identify(&known, &signer.token("EdDSA", "k2")).await.unwrap_err();
    assert!(matches!(refusal, AuthError::Unavailable { .. }), "{refusal:?}");
    // After a day without an answer the issuer may have withdrawn any of the keys.
    known.remote().advance_clock(24 * 60 * MINUTE);
    let refusal = identify(&known, &token).await.unwrap_err();
    assert!(matches!(refusal, AuthError::Unavailable { .. }), "{refusal:?}");
    server.answers(Answer::Keys(vec![signer.jwk("k1")]));
    known.remote().advance_clock(Duration::from_secs(5));
    assert!(identify(&known, &token).await.is_ok());
}

#[tokio::test]
async fn an_unreachable_issuer_is_unavailable_and_tried_again_after_5_seconds() {
    let signer = Signer::ed25519();
    let token = signer.token("EdDSA", "k1");
    let server = KeyServer::start(Answer::Status(503, "")).await;
    let known = server.authenticator();
    for _ in 0..10 {
        let refusal = identify(&known, &token).await.unwrap_err();
        assert!(matches!(refusal, AuthError::Unavailable { .. }), "{refusal:?}");
    }
    assert_eq!(server.asked(), 1);
    server.answers(Answer::Keys(vec![signer.jwk("k1")]));
    known.remote().advance_clock(Duration::from_secs(5));
    assert!(identify(&known, &token).await.is_ok());

    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let source = JwksSource::Url(format!("http://{closed}/keys").parse().unwrap());
    let known = Authenticator::new(Vec::new(), vec![issuer(source)]).unwrap();
    let refusal = identify(&known, &token).await.unwrap_err();
    assert!(matches!(&refusal, AuthError::Unavailable { reason } if reason.contains("refused")), "{refusal:?}");
}
