//! A test issuer: its keys, its tokens, and the HTTP server of its keys.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair, RsaPublicKeyComponents};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::{AuthError, Authenticator, Identity, Issuer, JwksSource};

pub(super) const ISSUER: &str = "https://login.example.com/";
pub(super) const AUDIENCE: &str = "https://mcp.example.com/mcp";

/// A key pair and its signature algorithm.
pub(super) enum Signer {
    Rsa(RsaKeyPair, &'static dyn signature::RsaEncoding),
    Ec(EcdsaKeyPair, &'static str),
    Ed(Ed25519KeyPair),
}

pub(super) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    /// A fixed key pair for these tests: ring cannot generate RSA keys.
    pub(super) fn rsa(how: &'static dyn signature::RsaEncoding) -> Self {
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("rsa-2048.test-key.pem")).unwrap();
        Self::Rsa(RsaKeyPair::from_pkcs8(key.secret_der()).unwrap(), how)
    }

    pub(super) fn p256() -> Self {
        Self::ec(&signature::ECDSA_P256_SHA256_FIXED_SIGNING, "P-256")
    }

    pub(super) fn p384() -> Self {
        Self::ec(&signature::ECDSA_P384_SHA384_FIXED_SIGNING, "P-384")
    }

    fn ec(how: &'static signature::EcdsaSigningAlgorithm, curve: &'static str) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
        Self::Ec(EcdsaKeyPair::from_pkcs8(how, document.as_ref(), &random).unwrap(), curve)
    }

    pub(super) fn ed25519() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
    }

    pub(super) fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::Rsa(pair, _) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "kid": kid, "use": "sig", "n": encoded(public.n), "e": encoded(public.e)})
            }
            Self::Ec(pair, curve) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(pair.public_key().as_ref().len() / 2);
                json!({"kty": "EC", "crv": curve, "kid": kid, "x": encoded(x), "y": encoded(y)})
            }
            Self::Ed(pair) => json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": encoded(pair.public_key())}),
        }
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair, how) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(*how, &random, message, &mut signature).unwrap();
                signature
            }
            Self::Ec(pair, _) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// Signs any header and claims.
    pub(super) fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        format!("{signed}.{}", encoded(self.signature(signed.as_bytes())))
    }

    pub(super) fn token(&self, algorithm: &str, kid: &str) -> String {
        self.sign(&header_of(algorithm, kid), &claims())
    }
}

pub(super) fn header_of(algorithm: &str, kid: &str) -> Value {
    json!({"alg": algorithm, "kid": kid, "typ": "at+jwt"})
}

pub(super) fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

pub(super) fn claims() -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "anna", "email": "anna@example.com", "scope": "openid cs:write",
        "iat": now(), "nbf": now(), "exp": now() + 600})
}

/// Valid claims with one changed; `null` removes it.
pub(super) fn claims_with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => claims.as_object_mut().unwrap().remove(name),
        value => claims.as_object_mut().unwrap().insert(name.to_owned(), value),
    };
    claims
}

pub(super) fn issuer(keys: JwksSource) -> Issuer {
    let scopes = [("cs:read", "readonly"), ("cs:write", "write"), ("cs:admin", "admin")];
    Issuer {
        issuer: ISSUER.parse().unwrap(),
        audience: AUDIENCE.to_owned(),
        keys,
        account_claim: "sub".to_owned(),
        account_prefix: "oauth:".to_owned(),
        label_claim: Some("email".to_owned()),
        claims: BTreeMap::new(),
        role_claim: None,
        roles: Vec::new(),
        scopes: scopes.map(|(scope, profile)| (scope.to_owned(), profile.to_owned())).to_vec(),
        request_scopes: vec!["cs:read".to_owned(), "cs:write".to_owned()],
    }
}

/// An authenticator with these keys from a file.
pub(super) fn knowing(keys: &[Value]) -> Authenticator {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), json!({"keys": keys}).to_string()).unwrap();
    Authenticator::new(Vec::new(), vec![issuer(JwksSource::File(file.path().to_owned()))]).unwrap()
}

pub(super) fn bearer(token: &str) -> HeaderMap {
    let value = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
    HeaderMap::from_iter([(header::AUTHORIZATION, value)])
}

pub(super) async fn identify(authenticator: &Authenticator, token: &str) -> Result<Identity, AuthError> {
    authenticator.identify(&bearer(token)).await.map(|admission| admission.identity)
}

/// The reason for which a token is rejected.
pub(super) async fn refused(authenticator: &Authenticator, token: &str) -> String {
    match identify(authenticator, token).await {
        Err(AuthError::Invalid { description, .. }) => description,
        other => panic!("{other:?}"),
    }
}

/// The response of the server of the keys.
#[derive(Clone)]
pub(super) enum Answer {
    Keys(Vec<Value>),
    Status(u16, &'static str),
    Body(Bytes),
    /// The keys, once this is true.
    Held(watch::Receiver<bool>, Vec<Value>),
}

/// A server on loopback that counts its requests.
#[derive(Clone)]
pub(super) struct KeyServer {
    answer: Arc<Mutex<Answer>>,
    asked: Arc<watch::Sender<usize>>,
    /// The documents besides the keys, by path, each with its status.
    documents: Arc<Mutex<HashMap<String, (u16, String)>>>,
    /// The paths that were requested besides that of the keys.
    paths: Arc<Mutex<Vec<String>>>,
    address: SocketAddr,
}

impl KeyServer {
    pub(super) async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            answer: Arc::new(Mutex::new(answer)),
            asked: Arc::new(watch::channel(0).0),
            documents: Arc::default(),
            paths: Arc::default(),
            address: listener.local_addr().unwrap(),
        };
        tokio::spawn(server.clone().accept(listener));
        server
    }

    async fn accept(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let server = self.clone();
            tokio::spawn(async move {
                let service = service_fn(|request| server.clone().serve(request));
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }

    async fn serve(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let path = request.uri().path();
        if path != "/keys" {
            self.paths.lock().unwrap().push(path.to_owned());
            let document = self.documents.lock().unwrap().get(path).cloned();
            let (status, body) = document.unwrap_or((404, String::new()));
            return Ok(Response::builder().status(status).body(Full::new(body.into())).unwrap());
        }
        self.asked.send_modify(|asked| *asked += 1);
        let answer = self.answer.lock().unwrap().clone();
        let keys = |keys: Vec<Value>| Bytes::from(json!({"keys": keys}).to_string());
        let (status, body) = match answer {
            Answer::Keys(list) => (200, keys(list)),
            Answer::Status(status, _) => (status, Bytes::from_static(b"{\"keys\": []}")),
            Answer::Body(body) => (200, body),
            Answer::Held(mut until, list) => {
                until.wait_for(|is_over| *is_over).await.unwrap();
                (200, keys(list))
            }
        };
        let mut response = Response::builder().status(status);
        if let Answer::Status(_, location) = self.answer.lock().unwrap().clone() {
            response = response.header(header::LOCATION, location);
        }
        Ok(response.body(Full::new(body)).unwrap())
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/keys", self.address)
    }

    pub(super) fn authenticator(&self) -> Authenticator {
        let source = JwksSource::Url(self.url().parse().unwrap());
        Authenticator::new(Vec::new(), vec![issuer(source)]).unwrap()
    }

    /// Serves a document at this path from now on.
    pub(super) fn publish(&self, path: &str, status: u16, body: &str) {
        self.documents.lock().unwrap().insert(path.to_owned(), (status, body.to_owned()));
    }

    /// The paths that were requested besides that of the keys, since the last call.
    pub(super) fn paths(&self) -> Vec<String> {
        std::mem::take(&mut self.paths.lock().unwrap())
    }

    pub(super) fn answers(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    pub(super) fn asked(&self) -> usize {
        *self.asked.borrow()
    }

    pub(super) async fn until_asked(&self, times: usize) {
        let mut asked = self.asked.subscribe();
        let enough = asked.wait_for(|asked| *asked >= times);
        tokio::time::timeout(Duration::from_secs(20), enough).await.expect("to be asked").unwrap();
    }
}
