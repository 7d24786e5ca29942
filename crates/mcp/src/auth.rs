//! stub
use contract::Principal;
use http::{HeaderMap, HeaderValue, StatusCode};
/// Who a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// p
    pub principal: Principal,
    /// p
    pub profile: String,
}
/// a
#[derive(Debug, Default)]
pub struct Authenticator;
impl Authenticator {
    /// e
    pub fn is_empty(&self) -> bool {
        true
    }
    /// e
    /// # Errors
    /// e
    pub async fn identify(&self, _: &HeaderMap) -> Result<Identity, Refusal> {
        Err(Refusal)
    }
    /// e
    pub fn metadata(&self, _: &str) -> Option<serde_json::Value> {
        None
    }
}
/// e
#[derive(Debug)]
pub struct Refusal;
impl Refusal {
    /// e
    pub fn status(&self) -> StatusCode {
        StatusCode::UNAUTHORIZED
    }
    /// e
    pub fn challenge(&self, _: Option<&str>) -> Option<HeaderValue> {
        None
    }
    /// e
    pub fn message(&self) -> String {
        String::new()
    }
}
