//! The claims of an ID token (OpenID Connect Core 1.0, section 3.1.3.7).

use crate::jwt::{JwtClaims, JwtError, LEEWAY_S};

/// The maximum age of an ID token when it arrives, in seconds. It is issued when the code is redeemed.
const MAX_AGE_S: f64 = 600.0;

/// The longest subject, in bytes: the limit of the standard.
const MAX_SUBJECT_BYTES: usize = 255;

/// A verified ID token: the provider's claims about the person.
#[derive(Debug)]
pub struct IdToken {
    claims: JwtClaims,
    auth_time: Option<f64>,
}

pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    /// Seconds since 1970.
    pub(super) now: f64,
}

impl IdToken {
    /// Checks the claims of a token whose signature has been verified.
    pub(super) fn check(claims: JwtClaims, expected: &Expected<'_>) -> Result<Self, JwtError> {
        let Expected { issuer, client_id, nonce, now } = *expected;
        claims.check(issuer, client_id, now)?;
        match claims.text("azp") {
            Some(party) if party != client_id => return Err("the token was issued to another client (azp)"),
            None if claims.texts("aud").count() > 1 => {
                return Err(
                    "the token is for several audiences, and does not name the client that it was issued to (azp)",
                );
            }
            _ => {}
        }
        let issued = claims.time("iat")?.ok_or("the token has no time at which it was issued (iat)")?;
        if issued > now + LEEWAY_S {
            return Err("the token was issued in the future (iat)");
        }
        if issued < now - MAX_AGE_S {
            return Err("the token was issued too long ago (iat)");
        }
        if claims.text("nonce") != Some(nonce) {
            return Err("the token is not of this sign-in (nonce)");
        }
        if !claims.text("sub").is_some_and(|subject| (1..=MAX_SUBJECT_BYTES).contains(&subject.len())) {
            return Err("the token names no subject (sub)");
        }
        let auth_time = claims.time("auth_time")?;
        if auth_time.is_some_and(|time| time > now + LEEWAY_S) {
            return Err("the person has signed in in the future (auth_time)");
        }
        Ok(Self { claims, auth_time })
    }

    /// A claim that is a text.
    #[must_use]
    pub fn text(&self, claim: &str) -> Option<&str> {
        self.claims.text(claim)
    }

    /// A claim that is a text or a list of texts.
    pub fn texts<'a>(&'a self, claim: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.claims.texts(claim)
    }

    /// Whether a claim is true. Some providers write it as a string.
    #[must_use]
    pub fn is_true(&self, claim: &str) -> bool {
        self.claims.is_true(claim) || self.claims.text(claim) == Some("true")
    }

    /// When the person signed in at the provider, in seconds since 1970; `None` if the token does not say.
    #[must_use]
    pub const fn auth_time(&self) -> Option<f64> {
        self.auth_time
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const EXPECTED: Expected<'_> =
        Expected { issuer: "https://login.example.com", client_id: "console", nonce: "n", now: 1_000_000.0 };

    /// Valid claims with these changed; `null` removes one.
    fn check(changes: &Value) -> Result<IdToken, JwtError> {
        let mut claims = json!({"iss": EXPECTED.issuer, "aud": "console", "sub": "1", "nonce": "n", "iat": 999_990,
            "exp": 1_000_300, "email_verified": true});
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        IdToken::check(JwtClaims::from_json(claims.to_string().as_bytes()).unwrap(), &EXPECTED)
    }

    #[test]
    fn claims_of_another_sign_in_are_refused() {
        for (changes, why) in [
            (json!({"iss": "https://evil.example.com"}), "(iss)"),
            (json!({"iss": ["https://login.example.com"]}), "(iss)"),
            (json!({"aud": "other"}), "(aud)"),
            (json!({"aud": []}), "(aud)"),
            (json!({"aud": null}), "(aud)"),
            (json!({"aud": ["console", "other"]}), "several audiences"),
            (json!({"aud": ["console", "other"], "azp": "other"}), "another client (azp)"),
            (json!({"azp": "other"}), "another client (azp)"),
            (json!({"exp": 999_969}), "expired"),
            (json!({"exp": null}), "(exp)"),
            (json!({"exp": "1000300"}), "not a number"),
            (json!({"nbf": 1_000_031}), "not valid yet"),
            (json!({"iat": null}), "(iat)"),
            (json!({"iat": "999990"}), "not a number"),
            (json!({"iat": 1_000_031}), "issued in the future"),
            (json!({"iat": 999_399}), "issued too long ago"),
            (json!({"nonce": "m"}), "(nonce)"),
            (json!({"nonce": ""}), "(nonce)"),
            (json!({"nonce": ["n"]}), "(nonce)"),
            (json!({"nonce": null}), "(nonce)"),
            (json!({"sub": null}), "(sub)"),
            (json!({"sub": ""}), "(sub)"),
            (json!({"sub": "x".repeat(256)}), "(sub)"),
            (json!({"auth_time": 1_000_031}), "(auth_time)"),
            (json!({"auth_time": "999000"}), "not a number"),
        ] {
            let said = check(&changes).unwrap_err();
            assert!(said.contains(why), "{changes}: {said}");
        }
    }

    #[test]
    fn claims_of_this_sign_in_are_accepted() {
        assert_eq!(check(&json!({})).unwrap().auth_time(), None);
        assert_eq!(check(&json!({"auth_time": 999_000})).unwrap().auth_time(), Some(999_000.0));
        for changes in [
            json!({"aud": ["console"]}),
            json!({"aud": ["console", "other"], "azp": "console"}),
            json!({"azp": "console"}),
            json!({"iat": 1_000_030, "exp": 999_971}),
        ] {
            assert!(check(&changes).is_ok(), "{changes}");
        }
        for (value, is_true) in [(json!(true), true), (json!("true"), true), (json!(false), false), (json!(1), false)] {
            assert_eq!(check(&json!({"email_verified": value})).unwrap().is_true("email_verified"), is_true, "{value}");
        }
    }
}
