//! A JWT of the issuer (RFC 7515, RFC 7519, RFC 9068): its parts, signature and claims.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use types::MAX_CLAIM_BYTES;

use crate::jwk::{Algorithm, PublicKey};

/// The tolerated difference between the issuer's clock and the server's, in seconds.
pub(crate) const LEEWAY_S: f64 = 30.0;

/// A JWT whose signature has not been verified. Only its header and its issuer may be used, and only to find the key.
pub(crate) struct UnverifiedJwt<'t> {
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<String>,
    /// Header and claims, in the signed encoding.
    signed: &'t str,
    claims: JwtClaims,
    signature: Vec<u8>,
}

/// The header members that are read. A key in the header (`jwk`, `jku`, `x5c`, `x5u`) is ignored: the token's author
/// chose it.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// The claims of a JWT with a valid signature.
#[derive(Debug)]
pub(crate) struct JwtClaims(Map<String, Value>);

/// Why a JWT is rejected, as a sentence for the client's developer.
pub(crate) type JwtError = &'static str;

/// Whether a token has the three parts of a JWT. The parts are not checked.
pub(crate) fn looks_like_jwt(token: &str) -> bool {
    token.split('.').count() == 3
}

impl<'t> UnverifiedJwt<'t> {
    pub(crate) fn parse(token: &'t str) -> Result<Self, JwtError> {
        const NO_JWT: JwtError = "the token is not a signed JWT";
        let (signed, signature) = token.rsplit_once('.').ok_or(NO_JWT)?;
        let (header, claims) = signed.split_once('.').ok_or(NO_JWT)?;
        let header = URL_SAFE_NO_PAD.decode(header).map_err(|_| NO_JWT)?;
        let header: Header = serde_json::from_slice(&header).map_err(|_| NO_JWT)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| NO_JWT)?;
        if header.crit.is_some() {
            return Err("the header of the token has crit, and no extension is supported");
        }
        let algorithm = Algorithm::from_name(&header.alg)
            .ok_or("the token is signed with another algorithm than RS, PS, ES256, ES384 or EdDSA")?;
        const NO_CLAIMS: JwtError = "the claims of the token are not a JSON object";
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| NO_CLAIMS)?;
        let claims = JwtClaims::from_json(&claims).ok_or(NO_CLAIMS)?;
        Ok(Self { algorithm, key_id: header.kid, signed, claims, signature })
    }

    /// The issuer that the token names.
    pub(crate) fn issuer(&self) -> Option<&str> {
        self.claims.text("iss")
    }

    /// Returns the claims and the key that signed them, if the key is one of these.
    pub(crate) fn verify(self, keys: &[&Arc<PublicKey>]) -> Result<(JwtClaims, Arc<PublicKey>), JwtError> {
        let signed_by = |key: &&&Arc<PublicKey>| key.verify(self.algorithm, self.signed.as_bytes(), &self.signature);
        let key = keys.iter().find(signed_by).ok_or("the signature of the token is not valid")?;
        Ok((self.claims, Arc::clone(key)))
    }
}

impl JwtClaims {
    /// The claims in this JSON object; `None` if the text is not a JSON object.
    pub(crate) fn from_json(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).map(Self).ok()
    }

    /// Checks issuer, audience and time. Returns the end of the validity. Times are in seconds since 1970.
    pub(crate) fn check(&self, issuer: &str, audience: &str, now: f64) -> Result<f64, JwtError> {
        if self.text("iss") != Some(issuer) {
            return Err("the token is not from the issuer of this server (iss)");
        }
        if !self.texts("aud").any(|one| one == audience) {
            return Err("the token is not for this server (aud)");
        }
        let valid_until = self.time("exp")?.ok_or("the token has no time at which it expires (exp)")? + LEEWAY_S;
        if now >= valid_until {
            return Err("the token has expired (exp)");
        }
        if self.time("nbf")?.is_some_and(|begins| now + LEEWAY_S < begins) {
            return Err("the token is not valid yet (nbf)");
        }
        Ok(valid_until)
    }

    /// A claim that is a string.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// A claim as the value of a setting: a text, number or boolean as text, and a list of texts as JSON. A claim that
    /// is missing or null is empty.
    ///
    /// # Errors
    /// The end of a sentence about the claim.
    pub(crate) fn setting(&self, name: &str) -> Result<String, JwtError> {
        let text = match self.0.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
            Some(list @ Value::Array(items)) if items.iter().all(Value::is_string) => list.to_string(),
            Some(_) => return Err("is neither a text, a number, a boolean, nor a list of texts"),
        };
        if text.len() > MAX_CLAIM_BYTES {
            return Err("is longer than 1024 bytes");
        }
        if text.chars().any(char::is_control) {
            return Err("has control characters");
        }
        Ok(text)
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Bool(true))
    }

    /// A claim that is a string or a list of strings.
    pub(crate) fn texts<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let (one, many) = match self.0.get(name) {
            Some(Value::Array(many)) => (None, Some(many)),
            other => (other, None),
        };
        one.into_iter().chain(many.into_iter().flatten()).filter_map(Value::as_str)
    }

    /// The scopes: `scope` (RFC 9068), or `scp` as some issuers have it. Each is one text with spaces, or a list.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = &str> {
        self.texts("scope").chain(self.texts("scp")).flat_map(|text| text.split(' ')).filter(|scope| !scope.is_empty())
    }

    /// A NumericDate: seconds since 1970, possibly with a fraction.
    pub(crate) fn time(&self, name: &str) -> Result<Option<f64>, JwtError> {
        match self.0.get(name) {
            None => Ok(None),
            Some(value) => match value.as_f64().filter(|seconds| seconds.is_finite()) {
                Some(seconds) => Ok(Some(seconds)),
                None => Err("a time of the token is not a number (exp, nbf, iat, auth_time)"),
            },
        }
    }
}
