//! `/healthz` and `/readyz`: what a process supervisor and a load balancer ask.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;

use super::Site;

/// Whether the process answers at all.
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether calls can be answered now: 200, or 503 with the reason.
pub(crate) async fn readyz(State(site): State<Arc<Site>>) -> Response {
    match site.is_ready().await {
        Ok(()) => Json(json!({"status": "ready"})).into_response(),
        Err(reason) => {
            (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "unavailable", "reason": reason}))).into_response()
        }
    }
}

/// Who may tell clients where to get a token (RFC 9728).
pub(crate) async fn protected_resource(State(site): State<Arc<Site>>) -> Response {
    match site.metadata() {
        Some(metadata) => Json(metadata).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
