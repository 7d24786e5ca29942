//! Single JWTs, against keys in a file.

use std::collections::BTreeMap;

use http::StatusCode;
use ring::hmac;
use ring::signature::{
    self, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512,
};
use serde_json::{Value, json};
use types::{ClaimName, RoleName};

use super::support::{
    AUDIENCE, ISSUER, Signer, claims, claims_with, encoded, header_of, identify, issuer, knowing, now, refused,
};
use crate::{AuthConfigError, AuthError, Authenticator, CredentialKind, Issuer, JwksSource};

#[tokio::test]
async fn every_algorithm_with_a_public_key_counts() {
    let rsa: [(&str, &'static dyn signature::RsaEncoding); 6] = [
        ("RS256", &RSA_PKCS1_SHA256),
        ("RS384", &RSA_PKCS1_SHA384),
        ("RS512", &RSA_PKCS1_SHA512),
        ("PS256", &RSA_PSS_SHA256),
        ("PS384", &RSA_PSS_SHA384),
        ("PS512", &RSA_PSS_SHA512),
    ];
    let mut signers: Vec<(&str, Signer)> = rsa.map(|(name, how)| (name, Signer::rsa(how))).into();
    signers.extend([("ES256", Signer::p256()), ("ES384", Signer::p384()), ("EdDSA", Signer::ed25519())]);
    for (algorithm, signer) in &signers {
        let known = knowing(&[signer.jwk("k1")]);
        let identity = identify(&known, &signer.token(algorithm, "k1")).await.unwrap();
        assert_eq!(identity.principal.account_id.as_str(), "oauth:anna", "{algorithm}");
        assert_eq!(identity.principal.actor.as_deref(), Some("anna@example.com"));
        assert_eq!((identity.profile.as_str(), identity.credential), ("write", CredentialKind::Jwt));

        // One changed bit, at the end of each part.
        let token = signer.token(algorithm, "k1");
        let parts: Vec<&str> = token.split('.').collect();
        let with = |index: usize, part: &str| {
            let mut parts = parts.clone();
            parts[index] = part;
            parts.join(".")
        };
        let other_claims = encoded(claims_with("sub", json!("bert")).to_string());
        let other_header = encoded(json!({"alg": algorithm, "kid": "k1"}).to_string());
        for changed in [with(0, &other_header), with(1, &other_claims), with(2, &encoded([0; 64])), with(2, "")] {
            assert_eq!(refused(&known, &changed).await, "the signature of the token is not valid", "{algorithm}");
        }
    }
}

#[tokio::test]
async fn the_key_says_which_algorithm_counts_and_never_the_token() {
    let rsa = Signer::rsa(&RSA_PKCS1_SHA256);
    let jwk = rsa.jwk("k1");
    let known = knowing(std::slice::from_ref(&jwk));
    let none = format!("{}.{}.", encoded(header_of("none", "k1").to_string()), encoded(claims().to_string()));
    let mut tokens = vec![none];
    // HS256 with public data as its secret: the key as PEM, DER and JWK, and its modulus.
    let private = include_bytes!("rsa-2048.test-key.pem");
    let modulus = jwk["n"].as_str().unwrap();
    let secrets = [private.to_vec(), jwk.to_string().into_bytes(), modulus.into(), Vec::new()];
    for (name, how) in [("HS256", hmac::HMAC_SHA256), ("HS384", hmac::HMAC_SHA384), ("HS512", hmac::HMAC_SHA512)] {
        for secret in &secrets {
            let signed = format!("{}.{}", encoded(header_of(name, "k1").to_string()), encoded(claims().to_string()));
            let tag = hmac::sign(&hmac::Key::new(how, secret), signed.as_bytes());
            tokens.push(format!("{signed}.{}", encoded(tag)));
        }
    }
    tokens.extend(["NONE", "None", "rs256", "ES512", "ES256K", ""].map(|name| rsa.token(name, "k1")));
    for token in tokens {
        assert!(refused(&known, &token).await.contains("signed with another algorithm"), "{token}");
    }

    // Symmetric keys, encryption keys and keys of other algorithms in the set are ignored.
    let oct = json!({"kty": "oct", "kid": "k1", "k": encoded("secret"), "alg": "HS256"});
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), json!({"keys": [oct]}).to_string()).unwrap();
    let error = Authenticator::new(Vec::new(), vec![issuer(JwksSource::File(path.path().to_owned()))]).unwrap_err();
    assert!(matches!(error, AuthConfigError::NoKeys { .. }), "{error:?}");
    for (member, value) in [("use", json!("enc")), ("key_ops", json!(["encrypt"])), ("alg", json!("RS512"))] {
        let mut other = jwk.clone();
        other[member] = value;
        let known = knowing(&[other, Signer::ed25519().jwk("k2")]);
        assert!(refused(&known, &rsa.token("RS256", "k1")).await.contains("no key"), "{member}");
    }
    let known = knowing(&[Signer::p256().jwk("k1")]);
    assert!(refused(&known, &rsa.token("RS256", "k1")).await.contains("no key"));
}

#[tokio::test]
async fn a_key_in_the_token_is_ignored() {
    let (ours, theirs) = (Signer::ed25519(), Signer::ed25519());
    let known = knowing(&[ours.jwk("k1")]);
    for (member, value) in [
        ("jwk", theirs.jwk("k1")),
        ("jku", json!("https://evil.example.com/keys")),
        ("x5u", json!("https://evil.example.com/chain")),
    ] {
        let mut header = header_of("EdDSA", "k1");
        header[member] = value;
        assert_eq!(refused(&known, &theirs.sign(&header, &claims())).await, "the signature of the token is not valid");
        assert!(identify(&known, &ours.sign(&header, &claims())).await.is_ok(), "{member} is passed over");
    }
    let mut header = header_of("EdDSA", "k1");
    header["crit"] = json!(["b64"]);
    header["b64"] = json!(false);
    assert!(refused(&known, &ours.sign(&header, &claims())).await.contains("crit"));
}

#[tokio::test]
async fn the_claims_must_be_for_us_and_for_now() {
    let signer = Signer::p256();
    let known = knowing(&[signer.jwk("k1")]);
    let token = |claims: &Value| signer.sign(&header_of("ES256", "k1"), claims);
    for (name, value, why) in [
        ("iss", json!("https://login.example.com"), "iss"),
        ("iss", json!([ISSUER]), "iss"),
        ("iss", Value::Null, "iss"),
        ("aud", json!("https://other.example.com/mcp"), "aud"),
        ("aud", json!([]), "aud"),
        ("aud", json!({AUDIENCE: true}), "aud"),
        ("aud", json!(format!("{AUDIENCE}/")), "aud"),
        ("aud", Value::Null, "aud"),
        ("exp", json!(now() - 31), "has expired"),
        ("exp", Value::Null, "no time at which it expires"),
        ("exp", json!((now() + 600).to_string()), "is not a number"),
        ("exp", json!([now() + 600]), "is not a number"),
        ("nbf", json!(now() + 600), "is not valid yet"),
        ("nbf", json!("soon"), "is not a number"),
        ("sub", Value::Null, "no account"),
        ("sub", json!(""), "no account"),
        ("sub", json!(17), "no account"),
        ("sub", json!("a\nb"), "no account"),
        ("sub", json!("x".repeat(255)), "no account"),
    ] {
        let said = refused(&known, &token(&claims_with(name, value.clone()))).await;
        assert!(said.contains(why), "{name} {value}: {said}");
    }
    for (name, value) in [
        ("aud", json!(["https://other.example.com", AUDIENCE])),
        ("exp", json!(now() - 10)),
        ("exp", json!(now() as f64 + 60.5)),
        ("nbf", json!(now() + 10)),
        ("nbf", Value::Null),
        ("iat", json!("whenever")),
        ("typ", json!("Bearer")),
    ] {
        let identity = identify(&known, &token(&claims_with(name, value.clone()))).await;
        assert!(identity.is_ok(), "{name} {value}: {identity:?}");
    }
    assert!(refused(&known, &token(&json!(["no", "object"]))).await.contains("not a JSON object"));
    // An invalid label is dropped.
    let identity = identify(&known, &token(&claims_with("email", json!("a\u{1b}[2Jb")))).await.unwrap();
    assert_eq!(identity.principal.actor, None);
}

#[tokio::test]
async fn the_strongest_scope_gives_the_profile_and_none_is_403() {
    let signer = Signer::p384();
    let known = knowing(&[signer.jwk("k1")]);
    let token = |claims: &Value| signer.sign(&header_of("ES384", "k1"), claims);
    let both = |scope: Value, scp: Value| {
        let mut claims = claims_with("scope", scope);
        if !scp.is_null() {
            claims["scp"] = scp;
        }
        claims
    };
    for (scope, scp, profile) in [
        (json!("cs:read"), Value::Null, "readonly"),
        (json!("cs:admin cs:read"), Value::Null, "admin"),
        (json!("openid  cs:write cs:read"), Value::Null, "write"),
        (Value::Null, json!("cs:read cs:write"), "write"),
        (Value::Null, json!(["cs:read", "email"]), "readonly"),
        (json!(["cs:write"]), json!(["cs:read"]), "write"),
    ] {
        let identity = identify(&known, &token(&both(scope.clone(), scp))).await.unwrap();
        assert_eq!(identity.profile, profile, "{scope}");
    }
    for (scope, scp) in [
        (Value::Null, Value::Null),
        (json!(""), Value::Null),
        (json!("cs:writer CS:WRITE xcs:write cs"), json!([17, ["cs:read"]])),
        (json!({"cs:write": true}), Value::Null),
    ] {
        let refusal = identify(&known, &token(&both(scope, scp))).await.unwrap_err();
        let AuthError::InsufficientScope { needed, .. } = &refusal else { panic!("{refusal:?}") };
        assert_eq!(*needed, ["cs:read", "cs:write"]);
        assert_eq!(refusal.status(), StatusCode::FORBIDDEN);
    }
    // The missing scope is reported only for a valid token.
    let foreign = Signer::p384().sign(&header_of("ES384", "k1"), &claims_with("scope", Value::Null));
    assert_eq!(refused(&known, &foreign).await, "the signature of the token is not valid");
}

#[tokio::test]
async fn a_key_is_found_by_its_id_and_without_one_only_if_there_is_no_choice() {
    let (first, second) = (Signer::ed25519(), Signer::ed25519());
    let known = knowing(&[first.jwk("k1"), second.jwk("k2"), Signer::p256().jwk("k3")]);
    assert!(identify(&known, &second.token("EdDSA", "k2")).await.is_ok());
    assert_eq!(refused(&known, &second.token("EdDSA", "k1")).await, "the signature of the token is not valid");
    assert!(refused(&known, &second.token("EdDSA", "K2")).await.contains("no key"));
    let nameless = first.sign(&json!({"alg": "EdDSA"}), &claims());
    assert!(refused(&known, &nameless).await.contains("no key"));
    let known = knowing(&[first.jwk("k1"), Signer::p256().jwk("k3")]);
    assert!(identify(&known, &nameless).await.is_ok());
}

#[tokio::test]
async fn what_is_no_jwt_is_refused() {
    let signer = Signer::ed25519();
    let known = knowing(&[signer.jwk("k1")]);
    let token = signer.token("EdDSA", "k1");
    let parts: Vec<&str> = token.split('.').collect();
    for wrong in [
        "a.b.c".to_owned(),
        "..".to_owned(),
        format!("{}.{}", parts[0], parts[1]),
        format!("{token}.{}", parts[2]),
        format!("{token}="),
        format!("{}.{}.{}==", parts[0], parts[1], parts[2]),
        format!("{}.{}.{}", encoded("[]"), parts[1], parts[2]),
        format!("{}.{}.{}", encoded(r#"{"alg":"EdDSA","alg":"none"}"#), parts[1], parts[2]),
        signer.sign(&header_of("EdDSA", "k1"), &claims_with("pad", json!("x".repeat(8 * 1024)))),
    ] {
        refused(&known, &wrong).await;
    }
    // Some libraries accept several encodings of the same bits. Here a token has one encoding.
    let last = parts[2].chars().last().unwrap();
    let twin = char::from_u32(u32::from(last) + 1).unwrap();
    let other = format!("{}.{}.{}{twin}", parts[0], parts[1], &parts[2][..parts[2].len() - 1]);
    refused(&known, &other).await;
}

#[tokio::test]
async fn keys_that_are_too_weak_or_broken_are_none_and_cost_the_others_nothing() {
    let good = Signer::ed25519();
    let short = |bits: usize| json!({"kty": "RSA", "kid": "r", "n": encoded([vec![0x80], vec![1; bits / 8 - 1]].concat()), "e": "AQAB"});
    let strange = [
        short(1024),
        short(2040),
        json!({"kty": "RSA", "kid": "r", "n": encoded([0x80; 2000]), "e": "AQAB"}),
        json!({"kty": "RSA", "kid": "r", "n": "AQAB"}),
        json!({"kty": "RSA", "kid": 17, "n": "AQAB", "e": "AQAB"}),
        json!({"kty": "EC", "kid": "e", "crv": "secp256k1", "x": "AQAB", "y": "AQAB"}),
        json!({"kty": "EC", "kid": "e", "crv": "P-256", "x": "AQAB", "y": "AQAB"}),
        json!({"kty": "OKP", "kid": "o", "crv": "Ed25519", "x": "AQAB"}),
        json!({"kty": "AKP", "alg": "ML-DSA-44", "pub": "AQAB"}),
        json!("key"),
        json!({}),
    ];
    let mut all = strange.to_vec();
    all.push(good.jwk("k1"));
    let known = knowing(&all);
    assert!(identify(&known, &good.token("EdDSA", "k1")).await.is_ok());
    for (what, text) in [
        ("strange ones alone", json!({"keys": strange}).to_string()),
        ("no JSON", "<html>".to_owned()),
        ("no keys", "{}".to_owned()),
        ("too many", json!({"keys": vec![good.jwk("k"); 101]}).to_string()),
    ] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let error = Authenticator::new(Vec::new(), vec![issuer(JwksSource::File(file.path().to_owned()))]).unwrap_err();
        assert!(matches!(error, AuthConfigError::NoKeys { .. }), "{what}: {error:?}");
    }
    let error = Authenticator::new(Vec::new(), vec![issuer(JwksSource::File("/nowhere".into()))]).unwrap_err();
    assert!(error.to_string().contains("/nowhere (jwks_file) cannot be read"), "{error}");
}

#[test]
fn the_metadata_name_the_issuer_and_what_to_ask_it_for() {
    let known = knowing(&[Signer::ed25519().jwk("k1")]);
    assert_eq!(
        known.metadata(AUDIENCE).unwrap(),
        json!({"resource": AUDIENCE, "authorization_servers": [ISSUER], "scopes_supported": ["cs:read", "cs:write"],
            "bearer_methods_supported": ["header"], "resource_name": "countersign"})
    );
    assert_eq!(Authenticator::new(Vec::new(), Vec::new()).unwrap().metadata(AUDIENCE), None);
}

#[tokio::test]
async fn chosen_claims_and_the_role_are_the_context_of_the_caller() {
    let signer = Signer::ed25519();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), json!({"keys": [signer.jwk("k1")]}).to_string()).unwrap();
    let name = |name: &str| ClaimName::try_from(name.to_owned()).unwrap();
    let claimed = BTreeMap::from([
        (name("tenant"), "https://example.com/tenant".to_owned()),
        (name("region"), "region".to_owned()),
    ]);
    let configured = Issuer {
        claims: claimed,
        role_claim: Some("db_role".to_owned()),
        roles: vec![RoleName::try_from("app_eu".to_owned()).unwrap()],
        ..issuer(JwksSource::File(file.path().to_owned()))
    };
    let known = Authenticator::new(Vec::new(), vec![configured]).unwrap();
    let token = |more: Value| {
        let mut claims = claims();
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        signer.sign(&header_of("EdDSA", "k1"), &claims)
    };
    for (more, expected) in [
        (json!({"https://example.com/tenant": "acme", "region": 7}), json!({"region": "7", "tenant": "acme"})),
        (
            json!({"https://example.com/tenant": ["a", "b"], "region": false}),
            json!({"region": "false", "tenant": "[\"a\",\"b\"]"}),
        ),
        (json!({"tenant": "acme", "region": null}), json!({"region": "", "tenant": ""})),
    ] {
        let mut more = more;
        more["db_role"] = json!("app_eu");
        let identity = identify(&known, &token(more)).await.unwrap();
        assert_eq!(json!(*identity.principal.context), json!({"role": "app_eu", "claims": expected}));
    }
    for (more, expected) in [
        (json!({}), "the token names no role (claim db_role)"),
        (json!({"db_role": "app_us"}), "the token names the role \"app_us\", which is not in roles"),
        (
            json!({"db_role": "app_eu", "region": {}}),
            "the claim region of the token is neither a text, a number, a boolean, nor a list of texts",
        ),
        (
            json!({"db_role": "app_eu", "region": "x".repeat(1025)}),
            "the claim region of the token is longer than 1024 bytes",
        ),
        (json!({"db_role": "app_eu", "region": "a\u{7}"}), "the claim region of the token has control characters"),
    ] {
        assert_eq!(refused(&known, &token(more)).await, expected);
    }
}
