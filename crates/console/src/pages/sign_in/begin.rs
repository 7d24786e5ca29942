//! The beginning of a sign-in at the provider.

use std::sync::Arc;

use auth::{SignInRequest, SignInSecrets};
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Redirect, Response};
use http_server::{ClientNetwork, HttpConnection};
use ledger::console::PendingSignIn;
use serde::Deserialize;

use super::cookie::browser_or_new;
use super::refusal::refused;
use crate::message;
use crate::return_path::ReturnPath;
use crate::state::Console;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BeginQuery {
    next: String,
    /// If not empty, the person must sign in again, however recently they did.
    again: String,
}

/// Ties the sign-in to the browser, and redirects the browser to the provider.
pub(crate) async fn begin(
    State(console): State<Arc<Console>>,
    Query(query): Query<BeginQuery>,
    Extension(connection): Extension<Arc<HttpConnection>>,
    headers: HeaderMap,
) -> Response {
    let Some(oidc) = &console.oidc else { return message::not_found().await };
    // The ledger keeps a limited number of sign-ins in progress, so one client must not use them all up.
    let client = ClientNetwork::of(console.proxies.client(connection.peer(), &headers));
    if let Err(error) = console.begun_sign_ins.check(client) {
        tracing::warn!(%error, "a sign-in was not begun");
        return message::too_many_sign_ins();
    }
    console.begun_sign_ins.count(client);
    let return_to = ReturnPath::new(&query.next);
    let (Ok(secrets), Some((browser, cookie))) = (SignInSecrets::generate(), browser_or_new(&headers)) else {
        return message::unavailable(&"no random bytes");
    };
    let within = console.approve_within.filter(|_| !query.again.is_empty());
    let request = SignInRequest { secrets: &secrets, fresh_within_s: within.map(|within| within.as_secs()) };
    let url = match oidc.provider.authorization_url(request).await {
        Ok(url) => url,
        Err(error) => return refused(&error, &oidc.name, &return_to),
    };
    let pending = PendingSignIn {
        nonce: secrets.nonce.clone(),
        verifier: secrets.verifier.clone(),
        return_to: return_to.as_str().to_owned(),
        is_fresh: within.is_some(),
    };
    match console.begin_sign_in(&secrets.state, &browser, &pending).await {
        Ok(()) => ([(header::SET_COOKIE, cookie)], Redirect::to(&url)).into_response(),
        Err(error) => message::unusable(&error),
    }
}
