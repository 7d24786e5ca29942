//! Checks and headers for every request and response: the host, the origin of a POST, and the response headers.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::message;
use crate::state::Console;

const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    ),
    // With no-referrer browsers send `Origin: null`.
    (header::REFERRER_POLICY, "same-origin"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "interest-cohort=()"),
];

/// Refuses requests for other hosts, and requests from other origins that change something.
pub(crate) async fn check(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let mut response = match refusal(&console, request.method(), request.headers()) {
        Some((status, why)) => message::page(status, "Refused", why),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn refusal(console: &Console, method: &Method, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
    let (Ok(host), Ok(site), Ok(origin)) =
        (only(headers, &header::HOST), only(headers, &SEC_FETCH_SITE), only(headers, &header::ORIGIN))
    else {
        return Some((
            StatusCode::BAD_REQUEST,
            "The request has a header twice that says where it comes from or goes to.",
        ));
    };
    if !host.is_some_and(|host| host.eq_ignore_ascii_case(&console.host)) {
        let why = "The console is reached at another address than this one: --url names it.";
        return Some((StatusCode::MISDIRECTED_REQUEST, why));
    }
    if [Method::GET, Method::HEAD].contains(method) {
        return None;
    }
    // Browsers without Sec-Fetch-Site send Origin.
    let is_own = match (site, origin) {
        (Some(site), None) => site == "same-origin",
        (site, Some(origin)) => origin == console.origin && site.is_none_or(|site| site == "same-origin"),
        (None, None) => false,
    };
    let why = "The request does not come from a page of the console. Nothing was changed.";
    (!is_own).then_some((StatusCode::FORBIDDEN, why))
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// A header was sent more than once. A proxy and the console could use different values.
struct RepeatedHeaderError;

/// The value of a header that may occur only once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, RepeatedHeaderError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(RepeatedHeaderError),
        (value, None) => Ok(value.map(|value| value.to_str().unwrap_or_default())),
    }
}
