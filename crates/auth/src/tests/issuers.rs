//! Several issuers, of which a token names one.

use serde_json::{Value, json};
use types::AccountId;

use super::support::{AUDIENCE, Answer, ISSUER, KeyServer, Signer, claims_with, header_of, identify, issuer, refused};
use crate::{AuthError, Authenticator, Issuer, JwksSource};

const OTHER: &str = "https://other.example.com/realms/x";

async fn both(keys: [&KeyServer; 2]) -> Authenticator {
    let [own, other] = keys.map(|keys| issuer(JwksSource::Url(keys.url().parse().unwrap())));
    let scopes = vec![("cs:read".to_owned(), "write".to_owned()), ("other".to_owned(), "admin".to_owned())];
    let other = Issuer {
        issuer: OTHER.parse().unwrap(),
        account_prefix: "other:".to_owned(),
        request_scopes: vec!["cs:read".to_owned(), "other".to_owned()],
        scopes,
        ..other
    };
    Authenticator::new(Vec::new(), vec![own, other]).unwrap()
}

fn token(signer: &Signer, iss: Value, scope: &str) -> String {
    let mut claims = claims_with("iss", iss);
    claims["scope"] = json!(scope);
    signer.sign(&header_of("EdDSA", "k1"), &claims)
}

#[tokio::test]
async fn a_token_is_of_the_issuer_that_it_names_and_that_signed_it() {
    let signers = [Signer::ed25519(), Signer::ed25519()];
    let [own, other] = [&signers[0], &signers[1]].map(|signer| KeyServer::start(Answer::Keys(vec![signer.jwk("k1")])));
    let (own, other) = (own.await, other.await);
    let known = both([&own, &other]).await;
    for iss in
        [json!("https://evil.example.com"), json!([ISSUER, OTHER]), json!(ISSUER.trim_end_matches('/')), Value::Null]
    {
        let said = refused(&known, &token(&signers[0], iss, "cs:read")).await;
        assert_eq!(said, "the token is not from an issuer of this server (iss)");
    }
    assert_eq!((own.asked(), other.asked()), (0, 0), "no key could help");

    // Claims, scopes and profiles are those of each.
    let admin = token(&signers[1], json!(OTHER), "other");
    for (token, account, profile) in [
        (token(&signers[0], json!(ISSUER), "cs:read"), "oauth:anna", "readonly"),
        (token(&signers[1], json!(OTHER), "cs:read"), "other:anna", "write"),
        (admin.clone(), "other:anna", "admin"),
    ] {
        let identity = identify(&known, &token).await.unwrap();
        assert_eq!((identity.principal.account_id.as_str(), identity.profile.as_str()), (account, profile));
    }
    let refusal = identify(&known, &token(&signers[0], json!(ISSUER), "other")).await.unwrap_err();
    let AuthError::InsufficientScope { needed, account } = refusal else { panic!("{refusal:?}") };
    assert_eq!(
        (needed, account),
        (vec!["cs:read".to_owned(), "cs:write".to_owned()], AccountId::new("oauth:anna").unwrap())
    );
    for (signer, iss) in [(&signers[1], ISSUER), (&signers[0], OTHER)] {
        let said = refused(&known, &token(signer, json!(iss), "cs:read")).await;
        assert_eq!(said, "the signature of the token is not valid", "{iss}");
    }
    // The keys of the other issuer stay: its token is recognized by its hash.
    own.answers(Answer::Status(500, ""));
    assert!(known.recognize(&super::support::bearer(&admin)).is_some());
}

#[tokio::test]
async fn an_issuer_that_is_away_costs_the_others_nothing() {
    let signer = Signer::ed25519();
    let own = KeyServer::start(Answer::Status(500, "")).await;
    let other = KeyServer::start(Answer::Keys(vec![signer.jwk("k1")])).await;
    let known = both([&own, &other]).await;
    let refusal = identify(&known, &token(&signer, json!(ISSUER), "cs:read")).await.unwrap_err();
    assert!(matches!(refusal, AuthError::Unavailable { .. }), "{refusal:?}");
    assert!(identify(&known, &token(&signer, json!(OTHER), "cs:read")).await.is_ok());
}

#[tokio::test]
async fn clients_learn_of_every_issuer() {
    let keys = KeyServer::start(Answer::Status(500, "")).await;
    let known = both([&keys, &keys]).await;
    let metadata = known.metadata(AUDIENCE).unwrap();
    assert_eq!(metadata["authorization_servers"], json!([ISSUER, OTHER]));
    assert_eq!(metadata["scopes_supported"], json!(["cs:read", "cs:write", "other"]));
    let refusal = known.identify(&http::HeaderMap::new()).await.unwrap_err();
    let AuthError::Missing { scopes } = refusal else { panic!("{refusal:?}") };
    assert_eq!(scopes, ["cs:read", "cs:write", "other"]);
}
