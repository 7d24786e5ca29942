//! `/healthz` and `/readyz`: what a process supervisor and a load balancer ask.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use serde_json::json;
use tools::metrics::CONTENT_TYPE;

use super::refusal::Refusal;
use super::{Phase, Site};

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

/// What monitoring asks. It names tools, so whoever asks has to say who they are, where anybody has to.
pub(crate) async fn metrics(State(site): State<Arc<Site>>, headers: HeaderMap) -> Response {
    if let Err(refusal) = site.identity(&headers).await {
        return refusal.response();
    }
    match site.phase() {
        Phase::Open(open) => {
            let text = site.metrics.render(&open.offer.backends).await;
            ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
        }
        Phase::Starting(reason) => Refusal::Unavailable(reason).response(),
        Phase::Stopping => Refusal::Stopping.response(),
    }
}

/// Who may tell clients where to get a token (RFC 9728).
pub(crate) async fn protected_resource(State(site): State<Arc<Site>>) -> Response {
    match site.metadata() {
        Some(metadata) => Json(metadata).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
