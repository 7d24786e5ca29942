//! Sign-in at the provider: its beginning, its end, and the pages for failures.

mod begin;
mod complete;
mod cookie;
mod refusal;

use std::time::Duration;

use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ledger::console::ConsoleSession;

use crate::frame::Frame;
use crate::message::render;
use crate::return_path::ReturnPath;
use crate::state::Console;

pub(crate) use begin::begin;
pub(crate) use complete::complete;

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage<'a> {
    frame: Frame<'a>,
    title: &'a str,
    text: &'a str,
    /// The text of a link, and its target.
    link: Option<(&'a str, &'a str)>,
}

/// What a person must do if their sign-in is too long ago for an approval.
pub(crate) struct SignInAgain<'a> {
    pub(crate) text: String,
    /// The name of the provider, and the address where the person signs in again.
    pub(crate) provider: Option<(&'a str, String)>,
}

impl<'a> SignInAgain<'a> {
    /// What the person must do before they approve on this page; `None` if they may approve now.
    pub(crate) fn needed(console: &'a Console, session: &ConsoleSession, path: &str) -> Option<Self> {
        let within = console.approve_within?;
        let is_late = session.sign_in_age.is_none_or(|age| age > within);
        is_late.then(|| Self::new(console, path))
    }

    /// What the person must do after the ledger has refused their approval on this page.
    pub(crate) fn new(console: &'a Console, path: &str) -> Self {
        let within = console.approve_within.map(words).unwrap_or_default();
        let provider =
            console.oidc.as_ref().map(|oidc| (oidc.name.as_str(), ReturnPath::new(path).after("/login/oidc?again=1")));
        let way = match provider {
            Some(_) => "You come back to this proposal.",
            None => "An administrator of the ledger makes another link that logs you in.",
        };
        Self { text: format!("To approve, you must have signed in within the last {within}. {way}"), provider }
    }

    pub(crate) fn page(&self) -> Response {
        let (title, text) = ("Sign in again to approve", format!("Nothing was approved. {}", self.text));
        let words = self.provider.as_ref().map(|(name, address)| (format!("Sign in again with {name}"), address));
        let link = words.as_ref().map(|(words, address)| (words.as_str(), address.as_str()));
        let page = SignInPage { frame: Frame::default(), title, text: &text, link };
        (StatusCode::FORBIDDEN, render(&page)).into_response()
    }
}

/// `1 hour`, `90 minutes`.
fn words(time: Duration) -> String {
    let minutes = time.as_secs().div_ceil(60);
    let (count, unit) = if minutes.is_multiple_of(60) { (minutes / 60, "hour") } else { (minutes, "minute") };
    if count == 1 { unit.to_owned() } else { format!("{count} {unit}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_words() {
        for (minutes, expected) in
            [(60, "hour"), (120, "2 hours"), (90, "90 minutes"), (1, "minute"), (15, "15 minutes")]
        {
            assert_eq!(words(Duration::from_secs(minutes * 60)), expected);
        }
    }
}
