//! An OpenID Connect provider: discovery, keys, authorization codes with PKCE, and ID tokens. It checks requests as a
//! real provider does, and returns wrong answers where a test configures them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use reqwest::Url;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::issuer::{SigningKey, now_s};
use crate::receiver::{ReceivedRequest, read};

/// The provider. It ends with this value.
#[derive(Debug)]
pub struct OidcProvider {
    url: String,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

/// The behaviour of the provider. A test can change it at any time.
#[derive(Debug, Clone)]
pub struct ProviderBehaviour {
    pub client_id: String,
    /// The secret of the client; `None` for a public one.
    pub client_secret: Option<String>,
    /// The person who is signed in at the provider.
    pub person: Value,
    /// When the person signed in at the provider, in seconds since 1970.
    pub auth_time: i64,
    /// Whether the provider lets the person sign in again when the client requests it.
    pub asks_again: bool,
    /// Members that replace those of the discovery document; null removes one.
    pub discovery: Value,
    /// Parameters that replace those of authorization responses; null removes one.
    pub response: Value,
    /// Claims that replace those of ID tokens; null removes one.
    pub id_token: Value,
    /// Whether a foreign key signs the ID tokens.
    pub is_forged: bool,
}

/// An issued code.
#[derive(Debug, Clone)]
struct Grant {
    request: HashMap<String, String>,
    auth_time: i64,
}

#[derive(Debug)]
struct Shared {
    key: SigningKey,
    foreign_key: SigningKey,
    behaviour: Mutex<ProviderBehaviour>,
    grants: Mutex<HashMap<String, Grant>>,
    /// The number of codes received, valid or not.
    token_requests: Mutex<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics here")
}

impl OidcProvider {
    /// Starts the provider on a free port, with a client of this id, and with anna signed in.
    pub async fn start(client_id: &str, client_secret: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("its number"));
        let person =
            json!({"sub": "1f3a", "email": "anna@example.com", "email_verified": true, "groups": ["reviewers"]});
        let behaviour = ProviderBehaviour {
            client_id: client_id.to_owned(),
            client_secret: client_secret.map(str::to_owned),
            person,
            auth_time: now_s(),
            asks_again: true,
            discovery: json!({}),
            response: json!({}),
            id_token: json!({}),
            is_forged: false,
        };
        let shared = Arc::new(Shared {
            key: SigningKey::new("k1"),
            foreign_key: SigningKey::new("k1"),
            behaviour: Mutex::new(behaviour),
            grants: Mutex::default(),
            token_requests: Mutex::default(),
        });
        let (own, at) = (Arc::clone(&shared), url.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, at.clone(), Arc::clone(&own)));
            }
        });
        Self { url, shared, task }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn set(&self, change: impl FnOnce(&mut ProviderBehaviour)) {
        change(&mut lock(&self.shared.behaviour));
    }

    /// The number of codes received, valid or not.
    pub fn token_requests(&self) -> usize {
        *lock(&self.shared.token_requests)
    }

    /// Opens the authorization URL of a client in a browser, and lets the person agree. Returns the URL that the
    /// provider redirects to.
    pub async fn authorize(&self, url: &str) -> String {
        let browser =
            reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a browser");
        let response = browser.get(url).send().await.expect("an answer of the provider");
        let Some(location) = response.headers().get("location") else {
            panic!("{}: {}", response.status(), response.text().await.unwrap_or_default());
        };
        location.to_str().expect("an address").to_owned()
    }
}

impl Drop for OidcProvider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: TcpStream, url: String, shared: Arc<Shared>) {
    let Some(request) = read(&mut stream).await else { return };
    let (status, location, body) = respond(&url, &shared, &request);
    let location = location.map(|to| format!("location: {to}\r\n")).unwrap_or_default();
    let head = format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nconnection: close\r\n{location}");
    let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    // The client may have disconnected.
    drop(stream.write_all(answer.as_bytes()).await);
}

/// Status, redirect URL, body.
type Answer = (u16, Option<String>, String);

fn respond(url: &str, shared: &Shared, request: &ReceivedRequest) -> Answer {
    let behaviour = lock(&shared.behaviour).clone();
    let target = request.line.split(' ').nth(1).unwrap_or_default();
    let target = Url::parse(&format!("{url}{target}")).expect("a path");
    match target.path() {
        "/.well-known/openid-configuration" => (200, None, discovery(url, &behaviour).to_string()),
        "/keys" => (200, None, json!({"keys": [shared.key.jwk()]}).to_string()),
        "/authorize" => authorize(url, shared, &behaviour, &fields(&target)),
        "/token" => match redeem(url, shared, &behaviour, request) {
            Ok(tokens) => (200, None, tokens.to_string()),
            Err(error) => (400, None, json!({"error": error, "error_description": "by the provider"}).to_string()),
        },
        _ => (404, None, String::new()),
    }
}

fn fields(url: &Url) -> HashMap<String, String> {
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

/// An object with these members replaced; null removes a member.
fn with(mut object: Value, instead: &Value) -> Value {
    let members = object.as_object_mut().expect("an object");
    for (name, value) in instead.as_object().unwrap_or(&Map::new()) {
        match value {
            Value::Null => drop(members.remove(name)),
            value => drop(members.insert(name.clone(), value.clone())),
        }
    }
    object
}

fn discovery(url: &str, behaviour: &ProviderBehaviour) -> Value {
    let document = json!({
        "issuer": url,
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "jwks_uri": format!("{url}/keys"),
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
    });
    with(document, &behaviour.discovery)
}

fn authorize(url: &str, shared: &Shared, behaviour: &ProviderBehaviour, request: &HashMap<String, String>) -> Answer {
    let field = |name: &str| request.get(name).map_or("", String::as_str);
    let is_sound = field("response_type") == "code"
        && field("client_id") == behaviour.client_id
        && field("scope").split(' ').any(|scope| scope == "openid")
        && field("redirect_uri").ends_with("/login/oidc/callback")
        && field("code_challenge_method") == "S256"
        && field("code_challenge").len() == 43;
    if !is_sound {
        return (400, None, format!("{request:?}"));
    }
    let max_age: Option<i64> = request.get("max_age").map(|age| age.parse().expect("seconds"));
    let is_late = max_age.is_some_and(|max_age| now_s() - behaviour.auth_time > max_age);
    if behaviour.asks_again && (field("prompt") == "login" || is_late) {
        lock(&shared.behaviour).auth_time = now_s();
    }
    let code = format!("code-{}", lock(&shared.grants).len());
    let grant = Grant { request: request.clone(), auth_time: lock(&shared.behaviour).auth_time };
    lock(&shared.grants).insert(code.clone(), grant);
    let response = with(json!({"code": code, "state": field("state"), "iss": url}), &behaviour.response);
    let mut to = Url::parse(field("redirect_uri")).expect("an address");
    for (name, value) in response.as_object().expect("an object") {
        to.query_pairs_mut().append_pair(name, value.as_str().expect("a text"));
    }
    (302, Some(to.to_string()), String::new())
}

/// Returns the tokens for a code, which can be redeemed once.
fn redeem(
    url: &str,
    shared: &Shared,
    behaviour: &ProviderBehaviour,
    request: &ReceivedRequest,
) -> Result<Value, &'static str> {
    *lock(&shared.token_requests) += 1;
    let body = fields(&Url::parse(&format!("{url}/?{}", request.body)).expect("a form"));
    let field = |name: &str| body.get(name).map_or("", String::as_str);
    let authorization = request.headers.get("authorization").map(String::as_str);
    let expected = behaviour.client_secret.as_ref().map(|secret| {
        // The id and the secrets of tests contain no characters that form encoding changes.
        format!("Basic {}", STANDARD.encode(format!("{}:{secret}", behaviour.client_id)))
    });
    let names_itself = behaviour.client_secret.is_some() || field("client_id") == behaviour.client_id;
    if authorization != expected.as_deref() || !names_itself {
        return Err("invalid_client");
    }
    let grant = lock(&shared.grants).get(field("code")).cloned().filter(|grant| !grant.request.is_empty());
    // A used code stays known, so that it is not issued again.
    lock(&shared.grants).entry(field("code").to_owned()).and_modify(|grant| grant.request.clear());
    let grant = grant.ok_or("invalid_grant")?;
    let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, field("code_verifier").as_bytes()));
    let is_sound = field("grant_type") == "authorization_code"
        && grant.request.get("code_challenge") == Some(&challenge)
        && grant.request.get("redirect_uri").map(String::as_str) == Some(field("redirect_uri"));
    if !is_sound {
        return Err("invalid_grant");
    }
    let claims = json!({"iss": url, "aud": behaviour.client_id, "iat": now_s(), "exp": now_s() + 300,
        "nonce": grant.request.get("nonce")});
    // The claim is present if the client has sent max_age.
    let auth_time = grant.request.contains_key("max_age").then(|| json!({"auth_time": grant.auth_time}));
    let claims = with(with(claims, &behaviour.person), &auth_time.unwrap_or(json!({})));
    let key = if behaviour.is_forged { &shared.foreign_key } else { &shared.key };
    let header = json!({"alg": "ES256", "kid": "k1"});
    let id_token = key.token_with(&header, &with(claims, &behaviour.id_token));
    Ok(json!({"access_token": "not used", "token_type": "Bearer", "expires_in": 300, "id_token": id_token}))
}
