//! The session cookie, and the person behind a request. Each database has its own session of the cookie's token.

use std::sync::Arc;

use auth::generate_token;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use futures_util::future::join_all;
use http_server::HttpConnection;
use ledger::console::{ConsolePerson, ConsoleSession, PendingSignIn};
use types::Secret;

use crate::database::{ConsoleDatabase, DatabaseError};
use crate::message;
use crate::oidc::SignedIn;
use crate::return_path::ReturnPath;
use crate::state::{Console, DatabaseState};

/// The prefix makes browsers bind the cookie to the host and send it only over TLS (or to loopback).
const COOKIE: &str = "__Host-countersign";

/// The person of a request. Without a session, a GET is redirected to the login, and a POST is refused.
pub(crate) struct LoggedIn(pub(crate) ConsolePerson);

/// The person, the way in which they signed in, and the token of the session.
pub(crate) struct CurrentSession {
    pub(crate) token: Secret,
    pub(crate) session: ConsoleSession,
}

impl FromRequestParts<DatabaseState> for CurrentSession {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &DatabaseState) -> Result<Self, Response> {
        let DatabaseState { console, database } = state;
        if let Some(token) = token(&parts.headers) {
            database.open().await.map_err(|error| message::unusable(&error))?;
            let found = database.sessions.find(&token).await.map_err(|error| message::unavailable(&error))?;
            if let Some(session) = found {
                if let Some(connection) = parts.extensions.get::<Arc<HttpConnection>>() {
                    connection.mark_authenticated();
                }
                console.keep_sessions(&token, database);
                return Ok(Self { token, session });
            }
        }
        if parts.method == Method::GET { Err(to_login(&parts.uri)) } else { Err(ended()) }
    }
}

impl FromRequestParts<DatabaseState> for LoggedIn {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &DatabaseState) -> Result<Self, Response> {
        CurrentSession::from_request_parts(parts, state).await.map(|current| Self(current.session.person))
    }
}

/// Redirects to the login, and from there back to this page.
pub(crate) fn to_login(page: &Uri) -> Response {
    let wanted = page.path_and_query().map_or("/", |wanted| wanted.as_str());
    Redirect::to(&ReturnPath::new(wanted).after("/login")).into_response()
}

impl Console {
    /// What each database answers, all asked at once.
    pub(crate) async fn ask_each<'a, T, E: Into<DatabaseError>, F: Future<Output = Result<T, E>>>(
        &'a self,
        question: impl Fn(&'a ConsoleDatabase) -> F,
    ) -> Vec<Result<T, DatabaseError>> {
        join_all(self.databases.iter().map(|database| database.ask(question(database)))).await
    }

    /// Logs in with a link, wherever it was made. Returns the person's name, or `None` if the link is unknown, used or
    /// expired.
    pub(crate) async fn log_in(&self, link: &Secret, session: &Secret) -> Result<Option<String>, DatabaseError> {
        found(self.ask_each(|database| database.sessions.log_in(link, session)).await)
    }

    /// Stores a sign-in that begins, in one database.
    pub(crate) async fn begin_sign_in(
        &self,
        state: &Secret,
        browser: &Secret,
        pending: &PendingSignIn,
    ) -> Result<(), DatabaseError> {
        let mut outcome = Ok(());
        for database in &self.databases {
            outcome = database.ask(database.sessions.begin_sign_in(state, browser, pending)).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Takes the sign-in with this state, wherever it is.
    pub(crate) async fn take_sign_in(
        &self,
        state: &Secret,
        browser: &Secret,
    ) -> Result<Option<PendingSignIn>, DatabaseError> {
        found(self.ask_each(|database| database.sessions.take_sign_in(state, browser)).await)
    }

    /// Logs in a person whom the provider has verified, wherever that is possible.
    pub(crate) async fn log_in_with_oidc<'a>(
        &'a self,
        session: &'a Secret,
        signed_in: &'a SignedIn,
        signed_in_at: Option<f64>,
    ) -> Result<(), DatabaseError> {
        let SignedIn { person, accounts } = signed_in;
        let log_in = |database: &'a ConsoleDatabase| async move {
            database.sessions.log_in_with_oidc(session, person, accounts, signed_in_at).await.map(Some)
        };
        let outcomes = self.ask_each(log_in).await;
        found(outcomes).map(|_| ())
    }

    /// Ends the session in every database.
    pub(crate) async fn log_out(&self, session: &Secret) -> Result<(), DatabaseError> {
        let outcomes = self.ask_each(|database| database.sessions.log_out(session)).await;
        outcomes.into_iter().collect()
    }

    /// Ends the previous session of a browser that gets a new one.
    pub(crate) async fn end_session_before(&self, headers: &HeaderMap) {
        if let Some(before) = token(headers) {
            // The log has the reason if it could not be ended.
            drop(self.log_out(&before).await);
        }
    }

    /// A request to one database counts as one to the others: a session ends without requests.
    fn keep_sessions(&self, token: &Secret, current: &Arc<ConsoleDatabase>) {
        for database in self.databases.iter().filter(|database| !Arc::ptr_eq(database, current)) {
            let (database, token) = (Arc::clone(database), token.clone());
            tokio::spawn(async move { drop(database.ask(database.sessions.find(&token)).await) });
        }
    }
}

/// What one of the databases has. Without it, the first error.
fn found<T>(outcomes: Vec<Result<Option<T>, DatabaseError>>) -> Result<Option<T>, DatabaseError> {
    let mut none = Ok(None);
    for outcome in outcomes {
        match outcome {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            Err(error) => none = none.and(Err(error)),
        }
    }
    none
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
