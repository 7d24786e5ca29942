//! The provider: the authorization URL for browsers, and the redemption of authorization codes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use form_urlencoded::{Serializer, byte_serialize};
use http::{Method, Request, StatusCode, header};
use http_client::{HttpClient, HttpsUrl};
use serde::Deserialize;
use time::OffsetDateTime;
use tokio::sync::Mutex;
use types::Secret;

use super::discovery::ProviderMetadata;
use super::id_token::{Expected, IdToken};
use super::{AuthorizationResponse, OidcError, SignInSecrets};
use crate::issuer_metadata::openid_url;
use crate::jwks_cache::{JwksCache, JwksSource, KeyLookupError};
use crate::jwt::UnverifiedJwt;

/// The age after which the discovery document is fetched again.
const REFRESH_AFTER: Duration = Duration::from_secs(60 * 60);

/// The maximum age of the discovery document, even if the provider does not answer.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The pause after a failed attempt.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The registration of this client at the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcClient {
    /// The provider's issuer, compared exactly.
    pub issuer: HttpsUrl,
    pub client_id: String,
    /// The client secret; `None` for a public client.
    pub client_secret: Option<Secret>,
    /// The URL to which the provider redirects browsers.
    pub redirect_uri: String,
    /// The scopes; `openid` is added if it is missing.
    pub scopes: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
pub struct SignInRequest<'a> {
    pub secrets: &'a SignInSecrets,
    /// If set, the person must sign in again, and the ID token must contain the time of the sign-in. The value is
    /// sent as `max_age`, in seconds.
    pub fresh_within_s: Option<u64>,
}

/// A provider with its cached metadata.
#[derive(Debug)]
pub struct OidcProvider {
    client: OidcClient,
    discovery: HttpClient,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    provider: Option<(Arc<DiscoveredProvider>, Instant)>,
    /// The last failed attempt and its error.
    failed: Option<(Instant, OidcError)>,
}

#[derive(Debug)]
struct DiscoveredProvider {
    metadata: ProviderMetadata,
    token_endpoint: HttpClient,
    keys: Arc<JwksCache>,
}

/// The members of a token response that are read. The access token is not used.
#[derive(Deserialize)]
struct TokenResponse {
    id_token: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenErrorResponse {
    error: String,
    error_description: String,
}

impl OidcProvider {
    /// A provider whose metadata have not been fetched yet.
    ///
    /// # Errors
    /// [`OidcError::Configuration`] if the issuer has a query, or the system has no certificate authorities.
    pub fn new(client: OidcClient) -> Result<Self, OidcError> {
        let issuer = client.issuer.as_str();
        if issuer.contains('?') {
            return Err(OidcError::Configuration(format!("the issuer {issuer} has a query")));
        }
        let url = parsed(&openid_url(&client.issuer))?;
        Ok(Self { discovery: http_client(url)?, client, state: Mutex::default() })
    }

    /// Fetches the provider's metadata, as every sign-in does.
    pub async fn discover(&self) -> Result<(), OidcError> {
        self.provider().await.map(drop)
    }

    /// The URL to which the browser is redirected.
    pub async fn authorization_url(&self, request: SignInRequest<'_>) -> Result<String, OidcError> {
        let provider = self.provider().await?;
        let SignInRequest { secrets, fresh_within_s } = request;
        let mut query = Serializer::new(String::new());
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client.client_id)
            .append_pair("redirect_uri", &self.client.redirect_uri)
            .append_pair("scope", &self.scope())
            .append_pair("state", secrets.state.expose())
            .append_pair("nonce", secrets.nonce.expose())
            .append_pair("code_challenge", &secrets.challenge())
            .append_pair("code_challenge_method", "S256");
        if let Some(seconds) = fresh_within_s {
            // With max_age, the ID token must contain the time of the sign-in.
            query.append_pair("prompt", "login").append_pair("max_age", &seconds.to_string());
        }
        let endpoint = provider.metadata.authorization_endpoint.as_str();
        let separator = if endpoint.contains('?') { '&' } else { '?' };
        Ok(format!("{endpoint}{separator}{}", query.finish()))
    }

    /// The verified ID token of a browser that has returned. `nonce` and `verifier` must be those of its sign-in.
    pub async fn redeem(
        &self,
        response: &AuthorizationResponse,
        nonce: &Secret,
        verifier: &Secret,
    ) -> Result<IdToken, OidcError> {
        let provider = self.provider().await?;
        self.check_issuer(response, provider.metadata.sends_issuer)?;
        if let Some(code) = &response.error {
            let description = response.error_description.clone().unwrap_or_default();
            return Err(OidcError::Denied { code: code.clone(), description });
        }
        let code = response.code.as_ref().ok_or_else(|| OidcError::Code("the response has none".to_owned()))?;
        let token = self.exchange(&provider, code, verifier).await?;
        self.verify(&provider, &token, nonce).await
    }

    /// Checks the issuer of a response (RFC 9207): the response of another provider must not be accepted.
    fn check_issuer(&self, response: &AuthorizationResponse, is_required: bool) -> Result<(), OidcError> {
        match &response.issuer {
            Some(issuer) if issuer == self.client.issuer.as_str() => Ok(()),
            None if !is_required => Ok(()),
            None => Err(OidcError::Issuer("missing".to_owned())),
            Some(other) => Err(OidcError::Issuer(types::quoted(other))),
        }
    }

    /// Redeems a code for an ID token, which is not verified yet.
    async fn exchange(
        &self,
        provider: &DiscoveredProvider,
        code: &Secret,
        verifier: &Secret,
    ) -> Result<String, OidcError> {
        let unusable = |reason: String| OidcError::Unavailable(format!("its token endpoint: {reason}"));
        let path = provider.token_endpoint.url().path();
        let request = self.token_request(path, code, verifier).map_err(|error| unusable(error.to_string()))?;
        let response = provider.token_endpoint.send(request).await.map_err(|error| unusable(error.to_string()))?;
        if response.status == StatusCode::OK {
            let tokens: TokenResponse =
                serde_json::from_slice(&response.body).map_err(|_| unusable("the answer is not JSON".to_owned()))?;
            let missing = "the answer has no ID token; openid must be a scope of this client".to_owned();
            return tokens.id_token.ok_or(OidcError::Configuration(missing));
        }
        let TokenErrorResponse { error, error_description } =
            serde_json::from_slice(&response.body).unwrap_or_default();
        let reason = format!("status {}, {error} {error_description}", response.status);
        match error.as_str() {
            "invalid_grant" => Err(OidcError::Code(reason)),
            "" => Err(unusable(reason)),
            _ => Err(OidcError::Configuration(reason)),
        }
    }

    fn token_request(&self, path: &str, code: &Secret, verifier: &Secret) -> http::Result<Request<Bytes>> {
        let mut body = Serializer::new(String::new());
        body.append_pair("grant_type", "authorization_code")
            .append_pair("code", code.expose())
            .append_pair("redirect_uri", &self.client.redirect_uri)
            .append_pair("code_verifier", verifier.expose());
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json");
        match &self.client.client_secret {
            Some(secret) => request = request.header(header::AUTHORIZATION, basic(&self.client.client_id, secret)),
            None => drop(body.append_pair("client_id", &self.client.client_id)),
        }
        request.body(body.finish().into())
    }

    async fn verify(&self, provider: &DiscoveredProvider, token: &str, nonce: &Secret) -> Result<IdToken, OidcError> {
        let token = UnverifiedJwt::parse(token).map_err(OidcError::IdToken)?;
        let key_id = token.key_id.clone();
        let key_id = key_id.as_deref();
        let keys = match provider.keys.keys_for(key_id, token.algorithm).await {
            Ok(keys) => keys,
            Err(KeyLookupError::Unknown) => {
                return Err(OidcError::IdToken("the provider has no key that the token could be signed with"));
            }
            Err(KeyLookupError::Unavailable(reason)) => {
                return Err(OidcError::Unavailable(format!("its keys: {reason}")));
            }
        };
        let candidates = keys.candidates(key_id, token.algorithm);
        let (claims, _) = token.verify(&candidates).map_err(OidcError::IdToken)?;
        let expected = Expected {
            issuer: self.client.issuer.as_str(),
            client_id: &self.client.client_id,
            nonce: nonce.expose(),
            now: OffsetDateTime::now_utc().unix_timestamp() as f64,
        };
        IdToken::check(claims, &expected).map_err(OidcError::IdToken)
    }

    fn scope(&self) -> String {
        let openid = (!self.client.scopes.iter().any(|scope| scope == "openid")).then_some("openid");
        openid.into_iter().chain(self.client.scopes.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
    }

    /// The metadata, at most an hour old, or at most a day old if the provider does not answer. One caller fetches
    /// them while the others wait.
    async fn provider(&self) -> Result<Arc<DiscoveredProvider>, OidcError> {
        let mut state = self.state.lock().await;
        if let Some((provider, at)) = &state.provider
            && at.elapsed() < REFRESH_AFTER
        {
            return Ok(Arc::clone(provider));
        }
        let paused = state.failed.as_ref().filter(|(at, _)| at.elapsed() < RETRY_AFTER);
        let error = match paused {
            Some((_, error)) => error.clone(),
            None => match self.fetch_provider(state.provider.as_ref().map(|(provider, _)| provider)).await {
                Ok(provider) => {
                    let provider = Arc::new(provider);
                    *state = State { provider: Some((Arc::clone(&provider), Instant::now())), failed: None };
                    return Ok(provider);
                }
                Err(error) => {
                    state.failed = Some((Instant::now(), error.clone()));
                    error
                }
            },
        };
        match &state.provider {
            Some((provider, at)) if at.elapsed() < MAX_AGE && matches!(error, OidcError::Unavailable(_)) => {
                tracing::warn!(%error, "the metadata of the provider is older than an hour");
                Ok(Arc::clone(provider))
            }
            _ => Err(error),
        }
    }

    async fn fetch_provider(&self, before: Option<&Arc<DiscoveredProvider>>) -> Result<DiscoveredProvider, OidcError> {
        let unavailable =
            |error: std::io::Error| OidcError::Unavailable(format!("{}: {error}", self.discovery.url().as_str()));
        let json = self.discovery.get("application/json").await.map_err(unavailable)?;
        let metadata = ProviderMetadata::parse(&json, &self.client.issuer, self.client.client_secret.is_some())?;
        let keys = match before.filter(|before| before.metadata.jwks_uri == metadata.jwks_uri) {
            Some(before) => Arc::clone(&before.keys),
            None => {
                let source = JwksSource::Url(metadata.jwks_uri.clone());
                Arc::new(JwksCache::new(&source).map_err(|error| OidcError::Configuration(error.to_string()))?)
            }
        };
        Ok(DiscoveredProvider { token_endpoint: http_client(metadata.token_endpoint.clone())?, metadata, keys })
    }
}

fn parsed(url: &str) -> Result<HttpsUrl, OidcError> {
    url.parse().map_err(|error| OidcError::Configuration(format!("{url}: {error}")))
}

fn http_client(url: HttpsUrl) -> Result<HttpClient, OidcError> {
    HttpClient::new(url).map_err(|error| OidcError::Configuration(error.to_string()))
}

/// `client_secret_basic`: both parts are encoded as in forms first (RFC 6749, section 2.3.1).
fn basic(client_id: &str, secret: &Secret) -> String {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    format!("Basic {}", STANDARD.encode(format!("{}:{}", encoded(client_id), encoded(secret.expose()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_and_the_secret_are_encoded_before_they_are_joined() {
        let header = basic("a:b", &Secret::new("c d%"));
        assert_eq!(STANDARD.decode(header.strip_prefix("Basic ").unwrap()).unwrap(), b"a%3Ab:c+d%25");
    }

    #[test]
    fn openid_is_a_scope_in_any_case() {
        let scope = |scopes: &[&str]| {
            let client = OidcClient {
                issuer: "http://127.0.0.1:1".parse().unwrap(),
                client_id: "c".to_owned(),
                client_secret: None,
                redirect_uri: "http://127.0.0.1:2/x".to_owned(),
                scopes: scopes.iter().map(ToString::to_string).collect(),
            };
            OidcProvider::new(client).unwrap().scope()
        };
        assert_eq!(scope(&["email"]), "openid email");
        assert_eq!(scope(&["email", "openid"]), "email openid");
    }
}
