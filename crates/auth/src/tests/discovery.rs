//! An issuer whose keys are found by its metadata.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::{Answer, KeyServer, Signer, claims_with, header_of, identify, issuer, refused};
use crate::{AuthError, Authenticator, Issuer, JwksSource};

const OAUTH: &str = "/.well-known/oauth-authorization-server/realms/x";

const OPENID: &str = "/realms/x/.well-known/openid-configuration";

struct Discovered {
    server: KeyServer,
    signer: Signer,
    known: Authenticator,
    /// The exact issuer.
    issuer: String,
}

impl Discovered {
    async fn new() -> Self {
        let signer = Signer::ed25519();
        let server = KeyServer::start(Answer::Keys(vec![signer.jwk("k1")])).await;
        let url = server.url().replace("/keys", "/realms/x");
        let source = JwksSource::Metadata(url.parse().unwrap());
        let known =
            Authenticator::new(Vec::new(), vec![Issuer { issuer: url.parse().unwrap(), ..issuer(source) }]).unwrap();
        Self { server, signer, known, issuer: url }
    }

    fn document(&self) -> Value {
        json!({"issuer": self.issuer, "jwks_uri": self.server.url(), "response_types_supported": ["code"]})
    }

    fn token(&self) -> String {
        self.signer.sign(&header_of("EdDSA", "k1"), &claims_with("iss", json!(self.issuer)))
    }

    /// The reason why the keys are not available.
    async fn unavailable(&self) -> String {
        match identify(&self.known, &self.token()).await {
            Err(AuthError::Unavailable { reason }) => reason,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_keys_are_those_that_either_document_names_and_are_cached() {
    for (published, asked) in [(OAUTH, vec![OAUTH]), (OPENID, vec![OAUTH, OPENID])] {
        let it = Discovered::new().await;
        it.server.publish(published, 200, &it.document().to_string());
        assert_eq!(it.server.paths(), Vec::<String>::new(), "no request had a token");
        for _ in 0..3 {
            assert!(identify(&it.known, &it.token()).await.is_ok());
        }
        assert_eq!((it.server.paths(), it.server.asked()), (asked.iter().map(ToString::to_string).collect(), 1));
        // After an hour both are fetched again, and until then nothing is, whatever keys tokens name.
        refused(&it.known, &it.signer.sign(&header_of("EdDSA", "k2"), &claims_with("iss", json!(it.issuer)))).await;
        assert_eq!(it.server.asked(), 1);
        it.known.remote().advance_clock(Duration::from_secs(60 * 60));
        assert!(identify(&it.known, &it.token()).await.is_ok());
        it.server.until_asked(2).await;
        it.known.remote().refreshed().await;
        assert_eq!(it.server.paths(), asked);
    }
}

#[tokio::test]
async fn a_document_of_another_issuer_or_without_usable_keys_is_not_taken() {
    let it = Discovered::new().await;
    let with = |name: &str, value: Value| {
        let mut document = it.document();
        document[name] = value;
        document.to_string()
    };
    for (status, body, why) in [
        (404, String::new(), "404"),
        (302, it.document().to_string(), "302"),
        (500, it.document().to_string(), "500"),
        (200, "<html>".to_owned(), "the document is not valid"),
        (200, with("issuer", json!("https://evil.example.com")), "is of the issuer \"https://evil.example.com\""),
        (200, with("issuer", json!(format!("{}/", it.issuer))), "is of the issuer"),
        (200, with("issuer", json!("a\u{1b}[2Jb")), "is of the issuer \"a\\u001b[2Jb\""),
        (200, with("issuer", Value::Null), "the document is not valid"),
        (200, with("jwks_uri", Value::Null), "the document is not valid"),
        (200, with("jwks_uri", json!("http://login.example.com/keys")), "jwks_uri of the provider: it must begin with"),
        (200, with("jwks_uri", json!("file:///etc/passwd")), "jwks_uri of the provider"),
        (200, with("jwks_uri", json!(format!("{}/nothing", it.issuer))), "404"),
    ] {
        for path in [OAUTH, OPENID] {
            it.server.publish(path, status, &body);
        }
        let said = it.unavailable().await;
        assert!(said.contains(why) && said.contains(&it.issuer.replace("/realms/x", "")), "{body}: {said}");
        // Within 5 seconds the issuer is not asked again.
        assert_eq!(it.unavailable().await, said);
        it.known.remote().advance_clock(Duration::from_secs(5));
    }
    assert_eq!(it.server.asked(), 0);
    it.server.publish(OAUTH, 200, "<html>");
    it.server.publish(OPENID, 200, &it.document().to_string());
    assert!(identify(&it.known, &it.token()).await.is_ok(), "the other document is good");
}

#[tokio::test]
async fn an_issuer_that_does_not_answer_is_asked_once_and_its_keys_stay() {
    let it = Discovered::new().await;
    it.server.publish(OAUTH, 200, &it.document().to_string());
    assert!(identify(&it.known, &it.token()).await.is_ok());
    it.server.publish(OAUTH, 503, "");
    it.known.remote().advance_clock(Duration::from_secs(60 * 60));
    assert!(identify(&it.known, &it.token()).await.is_ok());
    it.known.remote().refreshed().await;
    assert!(identify(&it.known, &it.token()).await.is_ok(), "its keys are valid for a day");
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{closed}");
    let source = JwksSource::Metadata(url.parse().unwrap());
    let known =
        Authenticator::new(Vec::new(), vec![Issuer { issuer: url.parse().unwrap(), ..issuer(source) }]).unwrap();
    let token = it.signer.sign(&header_of("EdDSA", "k1"), &claims_with("iss", json!(url)));
    let refusal = identify(&known, &token).await.unwrap_err();
    let AuthError::Unavailable { reason } = &refusal else { panic!("{refusal:?}") };
    assert!(reason.contains("refused") && reason.matches(&url).count() == 1, "{reason}");
}
