//! The login page, with a link to the provider or the button of a link that was made on the command line; and logging
//! out.

use std::sync::Arc;

use askama::Template;
use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use types::Secret;

use crate::frame::Frame;
use crate::message::{self, PageResult, render};
use crate::return_path::{NextQuery, ReturnPath};
use crate::session::{new_cookie, no_cookie, token};
use crate::state::Console;

#[derive(Template)]
#[template(path = "login.html")]
struct Login<'a> {
    frame: Frame<'a>,
    /// The token of a link. The button uses it up.
    link: Option<&'a str>,
    /// The name of the provider, and the address where a sign-in begins.
    provider: Option<(&'a str, String)>,
}

#[derive(Deserialize)]
pub(crate) struct LinkForm {
    link: String,
}

pub(crate) async fn explain(State(console): State<Arc<Console>>, Query(query): Query<NextQuery>) -> Response {
    let address = ReturnPath::new(&query.next).after("/login/oidc");
    let provider = console.oidc.as_ref().map(|oidc| (oidc.name.as_str(), address));
    render(&Login { frame: Frame::default(), link: None, provider })
}

/// Opening a link does not log anybody in: chat programs open links to show a preview.
pub(crate) async fn ask(Path(link): Path<String>) -> Response {
    render(&Login { frame: Frame::default(), link: Some(&link), provider: None })
}

/// Logs a person in with a link. The previous session of the browser ends, whoever it belonged to.
pub(crate) async fn log_in(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    Form(form): Form<LinkForm>,
) -> PageResult {
    let Some((session, cookie)) = new_cookie() else { return Ok(message::unavailable(&"no random bytes")) };
    Ok(match console.log_in(&Secret::new(form.link), &session).await? {
        Some(person) => {
            tracing::info!(person, "logged in");
            console.end_session_before(&headers).await;
            ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
        }
        None => message::page(
            StatusCode::UNAUTHORIZED,
            "The link cannot be used",
            "It was used already, it is older than 5 minutes, or it was never made. Make another one on the command line.",
        ),
    })
}

pub(crate) async fn log_out(State(console): State<Arc<Console>>, headers: HeaderMap) -> PageResult {
    if let Some(session) = token(&headers) {
        console.log_out(&session).await?;
    }
    Ok(([(header::SET_COOKIE, no_cookie())], Redirect::to("/login")).into_response())
}
