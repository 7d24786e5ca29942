//! Bearer tokens, the Authorization header, and the form of errors.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use time::{Duration, OffsetDateTime};
use types::AccountId;

use super::support::{Signer, bearer, identify, knowing, refused};
use crate::{
    AuthConfigError, AuthError, Authenticator, BearerToken, CredentialKind, TokenError, TokenHash, generate_token,
    hash_token,
};

fn token(secret: &str, account: &str) -> BearerToken {
    BearerToken {
        hash: TokenHash::of(secret),
        account: AccountId::new(account).unwrap(),
        profile: "write".to_owned(),
        databases: None,
        label: Some("bot".to_owned()),
        expires: None,
    }
}

#[tokio::test]
async fn a_token_is_the_account_the_profile_and_the_label_of_its_table_and_no_others() {
    let (mine, other) = (generate_token().unwrap(), generate_token().unwrap());
    let yours = BearerToken { profile: "admin".to_owned(), label: None, ..token(other.expose(), "yours") };
    let known = Authenticator::new(vec![token(mine.expose(), "mine"), yours], Vec::new()).unwrap();
    let identity = identify(&known, mine.expose()).await.unwrap();
    assert_eq!((identity.principal.account_id.as_str(), identity.principal.actor.as_deref()), ("mine", Some("bot")));
    assert_eq!((identity.profile.as_str(), identity.credential), ("write", CredentialKind::Token));
    let identity = identify(&known, other.expose()).await.unwrap();
    assert_eq!((identity.principal.account_id.as_str(), identity.profile.as_str()), ("yours", "admin"));
    assert_eq!(identity.principal.actor, None);

    // An additional or missing character, another case and the hash are not the token.
    let secret = mine.expose();
    let hash = TokenHash::of(secret).to_string();
    let wrong = [secret[..45].to_owned(), format!("{secret}A"), secret.to_ascii_lowercase(), hash.replace(':', ".")];
    for wrong in wrong.iter().filter(|wrong| *wrong != secret) {
        assert_eq!(refused(&known, wrong).await, "the token is unknown or has expired", "{wrong}");
    }
}

#[tokio::test]
async fn a_token_counts_until_it_expires_and_an_expired_one_is_told_from_an_unknown_one_in_the_log_only() {
    let at = |from_now| Some(OffsetDateTime::now_utc() + from_now);
    let past = BearerToken { expires: at(Duration::seconds(-1)), ..token("past-past-past-past-past-past-past", "a") };
    let future = BearerToken { expires: at(Duration::minutes(1)), ..token("next-next-next-next-next-next-next", "a") };
    let known = Authenticator::new(vec![past, future], Vec::new()).unwrap();
    assert!(identify(&known, "next-next-next-next-next-next-next").await.is_ok());
    let expired = identify(&known, "past-past-past-past-past-past-past").await.unwrap_err();
    let unknown = identify(&known, "none-none-none-none-none-none-none").await.unwrap_err();
    assert_eq!(expired.status(), StatusCode::UNAUTHORIZED);
    assert_eq!((expired.message(), expired.challenge(None)), (unknown.message(), unknown.challenge(None)));
    assert_eq!(expired.log_message(), "the token \"bot\" has expired");
    assert_eq!(unknown.log_message(), unknown.message());
}

#[tokio::test]
async fn only_one_authorization_header_with_one_bearer_token_counts() {
    let secret = generate_token().unwrap();
    let known = Authenticator::new(vec![token(secret.expose(), "a")], Vec::new()).unwrap();
    let secret = secret.expose();
    assert_eq!(known.identify(&HeaderMap::new()).await, Err(AuthError::Missing { scopes: Vec::new() }));
    for right in [format!("Bearer {secret}"), format!("bearer {secret}"), format!("BEARER   {secret}")] {
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::try_from(right).unwrap())]);
        assert!(known.identify(&headers).await.is_ok());
    }
    let wrong = [
        format!("Basic {secret}"),
        secret.to_owned(),
        format!("Bearer\t{secret}"),
        format!("Bearer {secret} "),
        format!("Bearer {secret}, Bearer {secret}"),
        format!("Bearer {secret} {secret}"),
        format!("Bearer token=\"{secret}\""),
        "Bearer ".to_owned(),
        "Bearer".to_owned(),
        "Bearer ====".to_owned(),
        String::new(),
        format!("Bearer {}", "a".repeat(8 * 1024 + 1)),
    ];
    for wrong in wrong {
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::try_from(&wrong).unwrap())]);
        let refusal = known.identify(&headers).await.unwrap_err();
        assert_eq!(refusal.status(), StatusCode::UNAUTHORIZED, "{wrong}");
        assert!(!refusal.message().contains(secret), "{refusal:?}");
    }
    let not_text =
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_bytes(b"Bearer \xff\xfe").unwrap())]);
    assert!(known.identify(&not_text).await.is_err());

    let mut twice = bearer(secret);
    twice.append(header::AUTHORIZATION, HeaderValue::try_from(format!("Bearer {secret}")).unwrap());
    assert_eq!(twice.len(), 2);
    let refusal = known.identify(&twice).await.unwrap_err();
    assert!(refusal.message().contains("more than one Authorization header"), "{refusal:?}");
}

#[test]
fn an_empty_authenticator_reports_it_and_a_token_has_one_principal() {
    assert!(Authenticator::new(Vec::new(), Vec::new()).unwrap().is_empty());
    assert!(!Authenticator::new(vec![token("x", "a")], Vec::new()).unwrap().is_empty());
    assert!(!knowing(&[Signer::ed25519().jwk("1")]).is_empty());
    let error = Authenticator::new(vec![token("x", "a"), token("x", "b")], Vec::new()).unwrap_err();
    assert!(matches!(error, AuthConfigError::SameToken(hash) if hash == TokenHash::of("x")));
}

#[test]
fn tokens_are_random_and_their_hashes_are_read_as_they_are_written() {
    let tokens: std::collections::HashSet<String> =
        (0..1000).map(|_| generate_token().unwrap().expose().to_owned()).collect();
    assert_eq!(tokens.len(), 1000);
    for token in &tokens {
        assert!(token.starts_with("cs_") && token.len() == 46, "{token}");
        assert_eq!(hash_token(token), Ok(TokenHash::of(token)));
    }
    // FIPS 180-2: SHA-256 of "abc".
    let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(TokenHash::of("abc").to_string(), abc);
    assert_eq!(abc.parse(), Ok(TokenHash::of("abc")));
    assert_eq!(abc.replace("ba78", "BA78").parse(), Ok(TokenHash::of("abc")));
    for wrong in
        [&abc[7..], &abc[..70], "sha256:", "", &abc.replace("ba", "+a"), &abc.replace("ba", "é"), &format!("{abc}0")]
    {
        assert!(wrong.parse::<TokenHash>().is_err(), "{wrong}");
    }
}

#[test]
fn a_token_from_elsewhere_must_be_long_enough_and_fit_into_a_header() {
    assert_eq!(hash_token(&"a".repeat(31)), Err(TokenError::Short));
    assert_eq!(hash_token(&format!("{}====", "a".repeat(28))), Err(TokenError::Short));
    assert!(hash_token(&"a".repeat(32)).is_ok());
    assert_eq!(hash_token(&"a".repeat(8 * 1024 + 1)), Err(TokenError::Long));
    for wrong in [
        "",
        "with space with space with space with",
        "with\nline with\nline with\nline wi",
        "ümlaut-ümlaut-ümlaut-ümlaut-ümlaut",
    ] {
        assert_eq!(hash_token(wrong), Err(TokenError::Characters), "{wrong:?}");
    }
}

#[test]
fn a_refusal_is_told_as_the_specifications_have_it() {
    let url = Some("https://cs.example.com/.well-known/oauth-protected-resource/mcp");
    let scopes = vec!["cs:read".to_owned(), "cs:write".to_owned()];
    let challenge = |refusal: &AuthError, url| refusal.challenge(url).map(|value| value.to_str().unwrap().to_owned());
    let missing = AuthError::Missing { scopes: scopes.clone() };
    assert_eq!(missing.status(), StatusCode::UNAUTHORIZED);
    // RFC 6750, section 3.1: no error code for a request without credentials.
    assert_eq!(
        challenge(&missing, url).unwrap(),
        "Bearer realm=\"countersign\", scope=\"cs:read cs:write\", \
         resource_metadata=\"https://cs.example.com/.well-known/oauth-protected-resource/mcp\""
    );
    assert_eq!(challenge(&AuthError::Missing { scopes: Vec::new() }, None).unwrap(), "Bearer realm=\"countersign\"");

    let invalid = AuthError::Invalid { description: "it\" is\\ ü\n wrong".to_owned(), log: None, scopes: Vec::new() };
    assert_eq!(invalid.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        challenge(&invalid, None).unwrap(),
        "Bearer realm=\"countersign\", error=\"invalid_token\", error_description=\"it? is? ?? wrong\""
    );
    let insufficient = AuthError::InsufficientScope { needed: scopes, account: AccountId::default() };
    assert_eq!(insufficient.status(), StatusCode::FORBIDDEN);
    let told = challenge(&insufficient, url).unwrap();
    assert!(told.contains("error=\"insufficient_scope\"") && told.contains("scope=\"cs:read cs:write\""), "{told}");
    assert!(told.contains("resource_metadata="), "{told}");

    let unavailable = AuthError::Unavailable { reason: "connection refused at 10.0.0.1".to_owned() };
    assert_eq!((unavailable.status(), unavailable.challenge(url)), (StatusCode::SERVICE_UNAVAILABLE, None));
    assert!(!unavailable.message().contains("10.0.0.1"));
}
