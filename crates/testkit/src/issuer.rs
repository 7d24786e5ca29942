//! An issuer of JWTs: signs tokens, and serves its keys on this machine.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A key that signs with ES256.
#[derive(Debug)]
pub struct SigningKey {
    pair: EcdsaKeyPair,
    kid: String,
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The current time, in seconds since 1970, as in JWTs.
pub fn now_s() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    i64::try_from(elapsed.as_secs()).expect("a clock")
}

impl SigningKey {
    /// A new key with this key id.
    pub fn new(kid: &str) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random);
        Self { pair: pair.expect("a key"), kid: kid.to_owned() }
    }

    /// The public key, as an issuer publishes it.
    pub fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let (x, y) = point[1..].split_at(point.len() / 2);
        json!({"kty": "EC", "crv": "P-256", "kid": self.kid, "x": encoded(x), "y": encoded(y)})
    }

    /// A signed token with these claims.
    pub fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"alg": "ES256", "kid": self.kid, "typ": "at+jwt"}), claims)
    }

    /// A signed token with this header and these claims, which need not be valid.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", encoded(signature))
    }
}

/// The server of an issuer's keys and metadata. It ends with the test.
#[derive(Debug)]
pub struct KeyServer {
    keys: Arc<Mutex<Value>>,
    issuer: String,
    url: String,
}

impl KeyServer {
    /// Starts the server on a free port with these keys.
    pub async fn start(keys: &[&SigningKey]) -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"), keys).await
    }

    /// Starts the server at this address with these keys.
    pub async fn start_at(address: SocketAddr, keys: &[&SigningKey]) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port");
        let issuer = format!("http://{}", listener.local_addr().expect("its number"));
        let server = Self { keys: Arc::default(), url: format!("{issuer}/keys"), issuer };
        server.set_keys(keys);
        let keys = Arc::clone(&server.keys);
        let metadata = json!({"issuer": server.issuer, "jwks_uri": server.url}).to_string();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&keys), metadata.clone()));
            }
        });
        server
    }

    /// Serves these keys from now on, and no others.
    pub fn set_keys(&self, keys: &[&SigningKey]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
        *self.keys.lock().expect("nobody panics here") = json!({"keys": keys});
    }

    /// The issuer whose metadata name the keys.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

async fn answer(mut stream: TcpStream, keys: Arc<Mutex<Value>>, metadata: String) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let body = match request.starts_with(b"GET /.well-known/oauth-authorization-server ") {
        true => metadata,
        false => keys.lock().expect("nobody panics here").to_string(),
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
    let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    // The client may have disconnected.
    drop(stream.write_all(answer.as_bytes()).await);
}
