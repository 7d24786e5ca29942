//! The session cookie, and the person behind a request.

use std::sync::Arc;

use auth::generate_token;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use http_server::HttpConnection;
use ledger::console::{ConsolePerson, ConsoleSession};
use types::Secret;

use crate::message;
use crate::return_path::ReturnPath;
use crate::state::Console;

/// The prefix makes browsers bind the cookie to the host and send it only over TLS (or to loopback).
const COOKIE: &str = "__Host-countersign";

/// The person of a request. Without a session, a GET is redirected to the login, and a POST is refused.
pub(crate) struct LoggedIn(pub(crate) ConsolePerson);

/// The person, the way in which they signed in, and the token of the session.
pub(crate) struct CurrentSession {
    pub(crate) token: Secret,
    pub(crate) session: ConsoleSession,
}

impl FromRequestParts<Arc<Console>> for CurrentSession {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Response> {
        if let Some(token) = token(&parts.headers) {
            let found = console.sessions.find(&token).await.map_err(|error| message::unavailable(&error))?;
            if let Some(session) = found {
                if let Some(connection) = parts.extensions.get::<Arc<HttpConnection>>() {
                    connection.mark_authenticated();
                }
                return Ok(Self { token, session });
            }
        }
        if parts.method == axum::http::Method::GET {
            let wanted = parts.uri.path_and_query().map_or("/", |wanted| wanted.as_str());
            return Err(Redirect::to(&ReturnPath::new(wanted).after("/login")).into_response());
        }
        Err(ended())
    }
}

impl FromRequestParts<Arc<Console>> for LoggedIn {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Response> {
        CurrentSession::from_request_parts(parts, console).await.map(|current| Self(current.session.person))
    }
}

/// The answer to a POST without a session.
pub(crate) fn ended() -> Response {
    message::page(
        StatusCode::UNAUTHORIZED,
        "You are not logged in",
        "The session has ended, so nothing was changed. Log in and look at the page again.",
    )
}

pub(crate) fn token(headers: &HeaderMap) -> Option<Secret> {
    cookie(headers, COOKIE).map(|token| Secret::new(token.to_owned()))
}

/// Ends the previous session of a browser that gets a new one.
pub(crate) async fn end_session_before(console: &Console, headers: &HeaderMap) {
    if let Some(before) = token(headers)
        && let Err(error) = console.sessions.log_out(&before).await
    {
        tracing::warn!(%error, "the session before could not be ended");
    }
}

pub(crate) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(own, _)| *own == name).map(|(_, value)| value)
}

/// A new token, and the header that sets its cookie.
pub(crate) fn new_cookie() -> Option<(Secret, String)> {
    let token = generate_token().ok()?;
    let cookie = format!("{COOKIE}={}; Path=/; Secure; HttpOnly; SameSite=Lax", token.expose());
    Some((token, cookie))
}

/// The header that removes the cookie.
pub(crate) fn no_cookie() -> String {
    format!("{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0")
}
