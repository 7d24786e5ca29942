//! One JWT of the issuer (RFC 7515, RFC 7519, RFC 9068): its parts, its signature, its claims.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::jwk::{Algorithm, PublicKey};

/// How far the issuer's clock may be from ours.
const LEEWAY_S: f64 = 30.0;

/// A token whose signature nobody has looked at: only its header may be read, and only to find the key.
pub(super) struct UnverifiedJwt<'t> {
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
    /// Header and claims as they were signed.
    signed: &'t str,
    claims: &'t str,
    signature: Vec<u8>,
}

/// What counts in a header. A key in it (`jwk`, `jku`, `x5c`, `x5u`) is whoever's who made the token.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// Claims behind a signature that holds.
#[derive(Debug)]
pub(super) struct JwtClaims(Map<String, Value>);

/// Why a token does not count; a sentence for whoever wrote the client.
pub(super) type JwtError = &'static str;

/// Three parts with a dot between them; whether they are anything is another question.
pub(super) fn looks_like_jwt(token: &str) -> bool {
    token.split('.').count() == 3
}

impl<'t> UnverifiedJwt<'t> {
    pub(super) fn parse(token: &'t str) -> Result<Self, JwtError> {
        const NO_JWT: JwtError = "the token is no signed JWT";
        let (signed, signature) = token.rsplit_once('.').ok_or(NO_JWT)?;
        let (header, claims) = signed.split_once('.').ok_or(NO_JWT)?;
        let header = URL_SAFE_NO_PAD.decode(header).map_err(|_| NO_JWT)?;
        let header: Header = serde_json::from_slice(&header).map_err(|_| NO_JWT)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| NO_JWT)?;
        if header.crit.is_some() {
            return Err("the header of the token has crit, and nothing that it could name is known here");
        }
        let algorithm = Algorithm::from_name(&header.alg)
            .ok_or("the token is signed with another algorithm than RS, PS, ES256, ES384 or EdDSA")?;
        Ok(Self { algorithm, key_id: header.kid, signed, claims, signature })
    }

    /// The claims and the key that signed them, if it is one of these.
    pub(super) fn verify(&self, keys: &[&Arc<PublicKey>]) -> Result<(JwtClaims, Arc<PublicKey>), JwtError> {
        let signed_by = |key: &&&Arc<PublicKey>| key.verify(self.algorithm, self.signed.as_bytes(), &self.signature);
        let key = keys.iter().find(signed_by).ok_or("the signature of the token does not hold")?;
        const NO_CLAIMS: JwtError = "the claims of the token are no JSON object";
        let claims = URL_SAFE_NO_PAD.decode(self.claims).map_err(|_| NO_CLAIMS)?;
        let claims = serde_json::from_slice(&claims).map(JwtClaims).map_err(|_| NO_CLAIMS)?;
        Ok((claims, Arc::clone(key)))
    }
}

impl JwtClaims {
    /// Checks that it is from this issuer, for us, and valid now; until when it is (both in seconds since 1970).
    pub(super) fn check(&self, issuer: &str, audience: &str, now: f64) -> Result<f64, JwtError> {
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
            return Err("the token does not count yet (nbf)");
        }
        Ok(valid_until)
    }

    /// A claim that is a string.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// A claim that is a string, or a list of them.
    fn texts<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let (one, many) = match self.0.get(name) {
            Some(Value::Array(many)) => (None, Some(many)),
            other => (other, None),
        };
        one.into_iter().chain(many.into_iter().flatten()).filter_map(Value::as_str)
    }

    /// `scope` (RFC 9068), and `scp` as some issuers have it: one text with spaces, or a list.
    pub(super) fn scopes(&self) -> impl Iterator<Item = &str> {
        self.texts("scope").chain(self.texts("scp")).flat_map(|text| text.split(' ')).filter(|scope| !scope.is_empty())
    }

    /// A NumericDate: seconds since 1970, perhaps with a fraction.
    fn time(&self, name: &str) -> Result<Option<f64>, JwtError> {
        match self.0.get(name) {
            None => Ok(None),
            Some(value) => match value.as_f64().filter(|seconds| seconds.is_finite()) {
                Some(seconds) => Ok(Some(seconds)),
                None => Err("a time of the token is no number (exp, nbf)"),
            },
        }
    }
}
