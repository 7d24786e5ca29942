//! The style sheet, under a name that changes with its content.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Its path. Change the number with the file: browsers keep it for a year.
pub(crate) const STYLE_PATH: &str = "/static/console-1.css";

const STYLE: &str = include_str!("../static/console.css");

pub(crate) async fn style() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/css; charset=utf-8"),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    (headers, STYLE).into_response()
}
