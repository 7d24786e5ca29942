//! The headers of a notice, as specified by Standard Webhooks (standardwebhooks.com).

use anyhow::ensure;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, header};
use ring::hmac;
use types::Secret;

/// The prefix of a secret in text form.
const PREFIX: &str = "whsec_";

/// The lengths of a secret, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 24..=64;

/// A secret that is shared with the receiver, in text form. `Debug` does not show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SigningSecret(Secret);

impl SigningSecret {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let bytes = decoded(text);
        ensure!(
            bytes.is_some_and(|bytes| LENGTHS.contains(&bytes.len())),
            "it is not {PREFIX} and {} to {} bytes in base64",
            LENGTHS.start(),
            LENGTHS.end()
        );
        Ok(Self(Secret::new(text)))
    }

    /// `v1,` and the HMAC-SHA-256 over id, time and body.
    fn signature(&self, id: &str, timestamp: i64, body: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &decoded(self.0.expose()).unwrap_or_default());
        let tag = hmac::sign(&key, format!("{id}.{timestamp}.{body}").as_bytes());
        format!("v1,{}", STANDARD.encode(tag))
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text.strip_prefix(PREFIX)?).ok()
}

/// The headers of an attempt at this time, in seconds since 1970.
pub(super) fn headers(
    id: &str,
    timestamp: i64,
    body: &str,
    secret: Option<&SigningSecret>,
) -> Result<HeaderMap, String> {
    let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
    let mut headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    headers.insert("webhook-id", value(id)?);
    headers.insert("webhook-timestamp", value(&timestamp.to_string())?);
    if let Some(secret) = secret {
        headers.insert("webhook-signature", value(&secret.signature(id, timestamp, body))?);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_specification() {
        // The example of the libraries of Standard Webhooks.
        let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let headers = headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, "{\"test\": 2432232314}", Some(&secret));
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(headers.unwrap()["webhook-signature"], expected);
        for wrong in ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_MfKQ", "whsec_!"] {
            assert!(SigningSecret::parse(wrong).is_err(), "{wrong}");
        }
        assert!(!format!("{secret:?}").contains("MfKQ"));
    }
}
