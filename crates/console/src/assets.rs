//! The static files, under names that change with their content.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// The paths of the files. Change the number when the file changes: browsers cache it for a year.
pub(crate) const STYLE_PATH: &str = "/static/console-9.css";
pub(crate) const SCRIPT_PATH: &str = "/static/console-3.js";

const STYLE: &str = include_str!("../static/console.css");
const SCRIPT: &str = include_str!("../static/console.js");

pub(crate) async fn style() -> Response {
    file("text/css; charset=utf-8", STYLE)
}

/// The script. Every page works without it.
pub(crate) async fn script() -> Response {
    file("text/javascript; charset=utf-8", SCRIPT)
}

fn file(content_type: &'static str, content: &'static str) -> Response {
    let headers =
        [(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, content).into_response()
}
