//! The limits for servers with small requests: the whole body is read before the handler runs.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::middleware::Next;
use http::{HeaderValue, Request, Response, StatusCode, header};

use crate::{BodyError, HttpConnection, read_body};

/// Reads a body of at most `max_bytes`, and marks the request as being answered. A connection may be evicted while
/// the body arrives.
pub async fn limit_requests(
    State(max_body_bytes): State<usize>,
    Extension(connection): Extension<Arc<HttpConnection>>,
    request: Request<Body>,
    next: Next,
) -> Response<Body> {
    if connection.is_for_health_checks() {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "all connections are in use");
    }
    let (parts, body) = request.into_parts();
    let bytes = match read_body(body, max_body_bytes).await {
        Ok(bytes) => bytes,
        Err(error) => {
            let status = match error {
                BodyError::TooSlow => StatusCode::REQUEST_TIMEOUT,
                BodyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
                BodyError::Broken => StatusCode::BAD_REQUEST,
            };
            return refusal(status, &error.to_string());
        }
    };
    connection.begin_request();
    let mut response = next.run(Request::from_parts(parts, Body::from(bytes))).await;
    if connection.end_request(response.status().is_client_error()) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Closes the connection after the response, since the rest of the body is not read.
fn refusal(status: StatusCode, why: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{why}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
