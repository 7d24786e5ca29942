//! A page with a title and a sentence: errors, and things that have expired.

use askama::Template;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use http_server::AttemptLimitError;
use ledger::read::Error;
use types::{ErrorCode, Failure};

use crate::database::DatabaseError;
use crate::frame::Frame;

const CANNOT_BE_ASKED: &str = "The ledger cannot be asked";
const NO_ANSWER: &str = "The database does not answer. Nothing was changed that this page does not show; try again.";

#[derive(Template)]
#[template(path = "message.html")]
struct Message<'a> {
    frame: Frame<'a>,
    title: &'a str,
    text: &'a str,
}

/// The page that says why a request is not answered as wanted.
#[derive(Debug)]
pub(crate) struct ErrorPage(Box<Response>);

pub(crate) type PageResult<T = Response> = Result<T, ErrorPage>;

impl IntoResponse for ErrorPage {
    fn into_response(self) -> Response {
        *self.0
    }
}

impl From<Response> for ErrorPage {
    fn from(page: Response) -> Self {
        Self(Box::new(page))
    }
}

impl From<Error> for ErrorPage {
    fn from(error: Error) -> Self {
        unavailable(&error).into()
    }
}

impl From<DatabaseError> for ErrorPage {
    fn from(error: DatabaseError) -> Self {
        unusable(&error).into()
    }
}

impl From<Failure> for ErrorPage {
    fn from(failure: Failure) -> Self {
        refused(&failure).into()
    }
}

pub(crate) fn render(template: &impl Template) -> Response {
    match template.render() {
        Ok(html) => Html(html).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page cannot be written");
            (StatusCode::INTERNAL_SERVER_ERROR, "The page cannot be written.").into_response()
        }
    }
}

pub(crate) fn page(status: StatusCode, title: &str, text: &str) -> Response {
    (status, render(&Message { frame: Frame::default(), title, text })).into_response()
}

pub(crate) async fn not_found() -> Response {
    page(StatusCode::NOT_FOUND, "Not found", "The console has no such page.")
}

/// Answers a GET of a form's address: browsers send it when the result of a form is reloaded.
pub(crate) async fn not_a_page() -> Response {
    let text = "This address takes a form and shows no page. Nothing was changed.";
    page(StatusCode::METHOD_NOT_ALLOWED, "Not a page", text)
}

/// The answer to a client that has begun too many sign-ins.
pub(crate) fn too_many_sign_ins() -> Response {
    let text = "Too many sign-ins were begun from this address, and nobody was signed in. Try again in a few seconds.";
    let wait = [(header::RETRY_AFTER, AttemptLimitError::retry_after_s().to_string())];
    (wait, page(StatusCode::TOO_MANY_REQUESTS, "Too many sign-ins", text)).into_response()
}

/// The answer if the database is unavailable. The reason is logged for the operator.
pub(crate) fn unavailable(error: &dyn std::fmt::Display) -> Response {
    tracing::warn!(%error, "the ledger cannot be asked");
    page(StatusCode::SERVICE_UNAVAILABLE, CANNOT_BE_ASKED, NO_ANSWER)
}

/// The answer if the console cannot use the database. The reason was logged for the operator.
pub(crate) fn unusable(error: &DatabaseError) -> Response {
    if let DatabaseError::Refused(failure) = error {
        return refused(failure);
    }
    let other =
        "The console does not use this database as it is; the log of the console has the reason. Nothing was changed.";
    let text = if error.is_silence() { NO_ANSWER } else { other };
    page(StatusCode::SERVICE_UNAVAILABLE, CANNOT_BE_ASKED, text)
}

/// The answer to an action that the ledger refuses.
pub(crate) fn refused(failure: &Failure) -> Response {
    let status = match failure.code {
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::NotPermitted => StatusCode::FORBIDDEN,
        ErrorCode::InvalidParams => StatusCode::BAD_REQUEST,
        ErrorCode::DbError => return unavailable(&failure.message),
        _ => StatusCode::CONFLICT,
    };
    let text = review::sentences::refused_decision(failure);
    page(status, "Not done", &format!("{}.", text.trim_end_matches('.')))
}
