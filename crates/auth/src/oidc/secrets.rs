//! The secrets of one sign-in.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use types::Secret;

use crate::{RandomnessError, generate_token};

/// The secrets that tie the parts of one sign-in together. Each has 256 random bits.
#[derive(Debug, Clone)]
pub struct SignInSecrets {
    /// The provider returns it with the browser.
    pub state: Secret,
    /// The ID token must contain it.
    pub nonce: Secret,
    /// Redeems the code (RFC 7636). The provider receives only its hash before that.
    pub verifier: Secret,
}

impl SignInSecrets {
    pub fn generate() -> Result<Self, RandomnessError> {
        Ok(Self { state: generate_token()?, nonce: generate_token()?, verifier: generate_token()? })
    }

    /// The challenge for the verifier, by the method S256.
    pub(super) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest(&SHA256, self.verifier.expose().as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_that_of_the_rfc() {
        let [state, nonce] = ["s", "n"].map(Secret::new);
        let verifier = Secret::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        let challenge = SignInSecrets { state, nonce, verifier }.challenge();
        assert_eq!(challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM", "RFC 7636, appendix B");
        let generated = SignInSecrets::generate().unwrap();
        let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let verifier = generated.verifier.expose();
        assert!((43..=128).contains(&verifier.len()) && verifier.bytes().all(is_unreserved), "{verifier}");
        assert!(generated.state != generated.nonce && generated.nonce != generated.verifier);
    }
}
