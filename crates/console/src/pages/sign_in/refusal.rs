//! The pages for a sign-in that failed. The log has the reason.

use std::borrow::Cow;

use auth::OidcError;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use types::{quoted, visible};

use super::SignInPage;
use crate::frame::Frame;
use crate::message::render;
use crate::oidc::PersonError;
use crate::return_path::ReturnPath;

/// A page that ends a sign-in.
pub(super) struct Refusal {
    status: StatusCode,
    title: Cow<'static, str>,
    text: Cow<'static, str>,
}

impl Refusal {
    /// The browser has not begun this sign-in, has already completed it, or took too long.
    pub(super) const UNKNOWN: Self = Self {
        status: StatusCode::UNAUTHORIZED,
        title: Cow::Borrowed("The sign-in cannot be completed"),
        text: Cow::Borrowed(
            "It took more than 10 minutes, it was completed already, or another browser has begun it. Nobody was signed in.",
        ),
    };

    /// The provider has not asked the person to sign in again.
    pub(super) fn not_fresh(provider: &str) -> Self {
        let text = format!(
            "{provider} was asked to let you sign in again, and has not done so, or does not say when you did (auth_time). Nobody \
             was signed in."
        );
        Self::new(StatusCode::FORBIDDEN, "You were not asked to sign in again", text)
    }

    fn new(status: StatusCode, title: impl Into<Cow<'static, str>>, text: impl Into<Cow<'static, str>>) -> Self {
        Self { status, title: title.into(), text: text.into() }
    }

    /// The page, with a link to try again and return to the wanted page.
    pub(super) fn page(&self, return_to: &ReturnPath) -> Response {
        let login = return_to.after("/login");
        let link = Some(("Sign in", login.as_str()));
        let page = SignInPage { frame: Frame::default(), title: &self.title, text: &self.text, link };
        (self.status, render(&page)).into_response()
    }
}

/// The page for a protocol error.
pub(super) fn refused(error: &OidcError, provider: &str, return_to: &ReturnPath) -> Response {
    tracing::warn!(%error, "nobody was signed in");
    refusal(error, provider).page(return_to)
}

fn refusal(error: &OidcError, provider: &str) -> Refusal {
    let broken = "The sign-in cannot be completed";
    match error {
        OidcError::Unavailable(_) => {
            let text = "Nobody was signed in. Try again in a few seconds; the log of the console has the reason.";
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("{provider} cannot be asked"), text)
        }
        OidcError::Configuration(_) => {
            let text = "Nobody was signed in. An administrator finds the reason in the log of the console.";
            Refusal::new(StatusCode::BAD_GATEWAY, format!("{provider} and the console do not work together"), text)
        }
        OidcError::Issuer(_) => {
            let text = format!("The answer does not say that it is from {provider}. Nobody was signed in.");
            Refusal::new(StatusCode::UNAUTHORIZED, broken, text)
        }
        OidcError::Denied { code, .. } => {
            let text = match code.as_str() {
                "access_denied" => "The sign-in was declined there.".to_owned(),
                code => format!("Its answer is {}.", quoted(code)),
            };
            Refusal::new(StatusCode::FORBIDDEN, format!("{provider} has not signed you in"), text)
        }
        OidcError::Code(_) => {
            let text = format!("{provider} does not accept the code of this sign-in. Nobody was signed in.");
            Refusal::new(StatusCode::UNAUTHORIZED, broken, text)
        }
        OidcError::IdToken(_) => {
            let text = format!("What {provider} says is not for this sign-in. Nobody was signed in.");
            Refusal::new(StatusCode::UNAUTHORIZED, broken, text)
        }
    }
}

/// The page for a verified person who may not use the console.
pub(super) fn not_a_person(error: &PersonError, provider: &str, return_to: &ReturnPath) -> Response {
    let text = match error {
        PersonError::NoName(reason) => {
            tracing::warn!(reason, "a person whom the provider has verified has no name");
            format!(
                "{provider} does not say who you are in the way that the console needs. The log of the console has the reason."
            )
        }
        PersonError::NoRole(name) => {
            tracing::warn!(person = name, "a person whom the provider has verified has no role");
            format!("{provider} knows you as {}, who is neither a reviewer nor an auditor here.", visible(name))
        }
    };
    Refusal::new(StatusCode::FORBIDDEN, "You may not use the console", text).page(return_to)
}
