//! The cookie that ties a sign-in to the browser that began it.

use auth::generate_token;
use axum::http::HeaderMap;
use types::Secret;

use crate::session::cookie;

/// `SameSite=Lax`, so that browsers send it when the provider redirects them back.
const COOKIE: &str = "__Host-countersign-sign-in";

/// The maximum duration of a sign-in, in seconds.
const MAX_AGE_S: u32 = 600;

/// The longest value that is accepted as a token, in bytes.
const MAX_BYTES: usize = 64;

/// The token of the browser, if it has a sign-in in progress.
pub(super) fn browser(headers: &HeaderMap) -> Option<Secret> {
    let token = cookie(headers, COOKIE).filter(|token| !token.is_empty() && token.len() <= MAX_BYTES);
    token.map(|token| Secret::new(token.to_owned()))
}

/// The token of the browser, or a new one, and the header that sets it. A browser may have several sign-ins in
/// progress with one token.
pub(super) fn browser_or_new(headers: &HeaderMap) -> Option<(Secret, String)> {
    let token = browser(headers).or_else(|| generate_token().ok())?;
    let cookie = format!("{COOKIE}={}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={MAX_AGE_S}", token.expose());
    Some((token, cookie))
}

/// The header that removes the cookie.
pub(super) fn no_cookie() -> String {
    format!("{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0")
}
