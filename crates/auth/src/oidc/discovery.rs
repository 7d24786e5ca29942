//! The provider's metadata (OpenID Connect Discovery 1.0, RFC 8414).

use http_client::HttpsUrl;
use serde::Deserialize;

use super::OidcError;
use crate::issuer_metadata::{check_issuer, endpoint};

/// The parts of the discovery document that are used.
#[derive(Debug)]
pub(super) struct ProviderMetadata {
    pub(super) authorization_endpoint: HttpsUrl,
    pub(super) token_endpoint: HttpsUrl,
    pub(super) jwks_uri: HttpsUrl,
    /// Whether each response names its issuer (RFC 9207). Then a response without an issuer is not from the provider.
    pub(super) sends_issuer: bool,
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    response_types_supported: Option<Vec<String>>,
    code_challenge_methods_supported: Option<Vec<String>>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

impl ProviderMetadata {
    /// Parses the document of this issuer. `has_secret`: the client has a secret.
    pub(super) fn parse(json: &[u8], issuer: &HttpsUrl, has_secret: bool) -> Result<Self, OidcError> {
        let document: Document = serde_json::from_slice(json)
            .map_err(|error| OidcError::Unavailable(format!("its discovery document is not valid: {error}")))?;
        let misfit = |reason: String| Err(OidcError::Configuration(reason));
        check_issuer(issuer, &document.issuer).map_err(OidcError::Configuration)?;
        let lacks = |list: &Option<Vec<String>>, wanted: &str| {
            list.as_ref().is_some_and(|list| !list.iter().any(|one| one == wanted))
        };
        if lacks(&document.response_types_supported, "code") {
            return misfit(
                "the provider does not have the authorization code flow (response_types_supported)".to_owned(),
            );
        }
        // Several providers support PKCE without announcing it.
        if lacks(&document.code_challenge_methods_supported, "S256") {
            return misfit("the provider does not have PKCE with S256 (code_challenge_methods_supported)".to_owned());
        }
        if has_secret && lacks(&document.token_endpoint_auth_methods_supported, "client_secret_basic") {
            return misfit(
                "the provider does not take a client_secret_basic (token_endpoint_auth_methods_supported)".to_owned(),
            );
        }
        let url = |name: &str, text: &str| endpoint(issuer, name, text).map_err(OidcError::Configuration);
        Ok(Self {
            authorization_endpoint: url("authorization_endpoint", &document.authorization_endpoint)?,
            token_endpoint: url("token_endpoint", &document.token_endpoint)?,
            jwks_uri: url("jwks_uri", &document.jwks_uri)?,
            sends_issuer: document.authorization_response_iss_parameter_supported,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn document(name: &str, value: Value) -> Vec<u8> {
        let mut document = json!({"issuer": "https://login.example.com", "jwks_uri": "https://login.example.com/keys",
            "authorization_endpoint": "https://login.example.com/authorize",
            "token_endpoint": "https://login.example.com/token"});
        match value {
            Value::Null => drop(document.as_object_mut().unwrap().remove(name)),
            value => document[name] = value,
        }
        document.to_string().into_bytes()
    }

    #[test]
    fn a_document_that_does_not_fit_is_refused_with_the_reason() {
        let issuer: HttpsUrl = "https://login.example.com".parse().unwrap();
        let parse = |name: &str, value: Value| ProviderMetadata::parse(&document(name, value), &issuer, true);
        assert!(!parse("x", json!(1)).unwrap().sends_issuer);
        assert!(parse("authorization_response_iss_parameter_supported", json!(true)).unwrap().sends_issuer);
        for (name, value, why) in [
            ("issuer", json!("https://evil.example.com"), "is of the issuer \"https://evil.example.com\""),
            ("issuer", json!("https://login.example.com/"), "is of the issuer"),
            ("issuer", Value::Null, "missing field `issuer`"),
            ("jwks_uri", Value::Null, "missing field `jwks_uri`"),
            (
                "jwks_uri",
                json!("http://login.example.com/keys"),
                "jwks_uri of the provider: it must begin with https://",
            ),
            ("token_endpoint", json!("http://login.example.com/t"), "token_endpoint of the provider"),
            ("token_endpoint", json!("http://127.0.0.1:5432/"), "token_endpoint of the provider is not https"),
            ("jwks_uri", json!("http://localhost/keys"), "jwks_uri of the provider is not https"),
            ("authorization_endpoint", json!("javascript:alert(1)"), "authorization_endpoint of the provider"),
            ("response_types_supported", json!(["id_token"]), "the authorization code flow"),
            ("code_challenge_methods_supported", json!(["plain"]), "PKCE with S256"),
            ("token_endpoint_auth_methods_supported", json!(["client_secret_post"]), "client_secret_basic"),
        ] {
            let said = parse(name, value.clone()).unwrap_err().to_string();
            assert!(said.contains(why), "{name} {value}: {said}");
        }
        let public = document("token_endpoint_auth_methods_supported", json!(["client_secret_post"]));
        assert!(ProviderMetadata::parse(&public, &issuer, false).is_ok());
    }
}
