//! The end of a sign-in at the provider.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use auth::{AuthorizationResponse, IdToken};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use ledger::console::PendingSignIn;

use super::cookie::{browser, no_cookie};
use super::refusal::{Refusal, not_a_person, refused};
use crate::message;
use crate::oidc::Oidc;
use crate::return_path::ReturnPath;
use crate::session::new_cookie;
use crate::state::Console;

/// Signs in the person whom the provider has verified, if this browser began the sign-in.
pub(crate) async fn complete(
    State(console): State<Arc<Console>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let Some(oidc) = &console.oidc else { return message::not_found().await };
    let response = match AuthorizationResponse::parse(query.as_deref().unwrap_or_default()) {
        Ok(response) => response,
        Err(error) => {
            tracing::warn!(%error, "a response of the provider is refused");
            return Refusal::UNKNOWN.page(&ReturnPath::new("/"));
        }
    };
    let pending = match (&response.state, browser(&headers)) {
        (Some(state), Some(browser)) => console.take_sign_in(state, &browser).await,
        _ => Ok(None),
    };
    let pending = match pending {
        Ok(Some(pending)) => pending,
        Ok(None) => {
            tracing::warn!("a sign-in is refused that this browser has not begun within 10 minutes");
            return Refusal::UNKNOWN.page(&ReturnPath::new("/"));
        }
        Err(error) => return message::unusable(&error),
    };
    let return_to = ReturnPath::new(&pending.return_to);
    match oidc.provider.redeem(&response, &pending.nonce, &pending.verifier).await {
        Ok(id_token) => admit(&console, oidc, &pending, &return_to, &id_token, &headers).await,
        Err(error) => refused(&error, &oidc.name, &return_to),
    }
}

/// Creates a session for a verified person who may use the console.
async fn admit(
    console: &Console,
    oidc: &Oidc,
    pending: &PendingSignIn,
    return_to: &ReturnPath,
    id_token: &IdToken,
    headers: &HeaderMap,
) -> Response {
    let within = console.approve_within.filter(|_| pending.is_fresh);
    if within.is_some_and(|within| !is_within(id_token.auth_time(), within)) {
        tracing::warn!(auth_time = id_token.auth_time(), "the provider has not asked a person to sign in again");
        return Refusal::not_fresh(&oidc.name).page(return_to);
    }
    let signed_in = match oidc.rules.person(id_token) {
        Ok(signed_in) => signed_in,
        Err(error) => return not_a_person(&error, &oidc.name, return_to),
    };
    let Some((session, cookie)) = new_cookie() else { return message::unavailable(&"no random bytes") };
    if let Err(error) = console.log_in_with_oidc(&session, &signed_in, id_token.auth_time()).await {
        return message::unusable(&error);
    }
    let person = &signed_in.person;
    tracing::info!(person = person.name, role = person.role.as_str(), "signed in with the provider");
    console.end_session_before(headers).await;
    let cookies = AppendHeaders([(header::SET_COOKIE, cookie), (header::SET_COOKIE, no_cookie())]);
    // The origin precedes the path, so no path can lead to another host.
    (cookies, Redirect::to(&format!("{}{}", console.origin, return_to.as_str()))).into_response()
}

/// Whether a time, in seconds since 1970, is at most this long ago.
fn is_within(time: Option<f64>, within: Duration) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    time.is_some_and(|time| now - time <= within.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_not_known_is_long_ago() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let hour = Duration::from_secs(3600);
        for (time, expected) in [
            (Some(now), true),
            (Some(now - 3590.0), true),
            (Some(now - 3610.0), false),
            (Some(0.0), false),
            (None, false),
        ] {
            assert_eq!(is_within(time, hour), expected, "{time:?}");
        }
    }
}
