//! The parameters with which the provider sends the browser back (RFC 6749, section 4.1.2, and RFC 9207).

use types::Secret;

/// The longest query that is read, in bytes. Codes of some providers have 2 KB.
const MAX_BYTES: usize = 16 * 1024;

/// An authorization response, not verified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorizationResponse {
    /// The state, which must be the one that was sent.
    pub state: Option<Secret>,
    pub(super) code: Option<Secret>,
    pub(super) issuer: Option<String>,
    pub(super) error: Option<String>,
    pub(super) error_description: Option<String>,
}

/// The query does not have the form of an authorization response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthorizationResponseError {
    /// The query is too long.
    #[error("it has more than {MAX_BYTES} bytes")]
    Long,
    /// A parameter occurs twice, so its value is ambiguous.
    #[error("it has a parameter twice")]
    Repeated,
}

impl AuthorizationResponse {
    /// Parses a query. Unknown parameters are ignored, as the RFC requires.
    pub fn parse(query: &str) -> Result<Self, AuthorizationResponseError> {
        if query.len() > MAX_BYTES {
            return Err(AuthorizationResponseError::Long);
        }
        let mut response = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            let was_set = match name.as_ref() {
                "state" => response.state.replace(Secret::new(value)).is_some(),
                "code" => response.code.replace(Secret::new(value)).is_some(),
                "iss" => response.issuer.replace(value).is_some(),
                "error" => response.error.replace(value).is_some(),
                "error_description" => response.error_description.replace(value).is_some(),
                _ => false,
            };
            if was_set {
                return Err(AuthorizationResponseError::Repeated);
            }
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_occurs_twice_is_refused() {
        let response =
            AuthorizationResponse::parse("code=a%2Bb&state=s+t&iss=https%3A%2F%2Fx&session_state=1").unwrap();
        assert_eq!(response.code.unwrap().expose(), "a+b");
        assert_eq!(response.state.unwrap().expose(), "s t");
        assert_eq!(response.issuer.as_deref(), Some("https://x"));
        for twice in ["state=a&state=a", "code=a&code=b", "iss=a&iss=a", "error=a&error=a", "state=&state="] {
            assert_eq!(AuthorizationResponse::parse(twice), Err(AuthorizationResponseError::Repeated), "{twice}");
        }
        let long = format!("state={}", "x".repeat(MAX_BYTES));
        assert_eq!(AuthorizationResponse::parse(&long), Err(AuthorizationResponseError::Long));
    }
}
