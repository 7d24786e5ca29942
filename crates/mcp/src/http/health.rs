//! `/healthz` and `/readyz`: what a process supervisor and a load balancer ask.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode, header};
use serde_json::json;
use tools::metrics::CONTENT_TYPE;

use super::AppState;
use super::client_address::ClientAddress;

/// Whether the process answers at all.
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether calls can be answered now: 200 or 503. The reason may name the database and its login, so it is for callers with a
/// token and for programs on this machine.
pub(crate) async fn readyz(
    State(state): State<Arc<AppState>>,
    Extension(caller): Extension<ClientAddress>,
    headers: HeaderMap,
) -> Response {
    let Err(reason) = state.readiness.check().await else { return Json(json!({"status": "ready"})).into_response() };
    let may_know = caller.is_local(&state.proxies, &headers)
        || headers.contains_key(header::AUTHORIZATION)
            && state.requires_credentials()
            && state.authenticate(&caller, &headers).await.is_ok();
    let body = match may_know {
        true => json!({"status": "unavailable", "reason": reason}),
        false => json!({"status": "unavailable"}),
    };
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

/// What monitoring asks. It names tools, so whoever asks has to say who they are, where anybody has to.
pub(crate) async fn metrics(
    State(state): State<Arc<AppState>>,
    Extension(caller): Extension<ClientAddress>,
    headers: HeaderMap,
) -> Response {
    if let Err(error) = state.authenticate(&caller, &headers).await {
        return error.response();
    }
    match state.readiness.current() {
        Ok(open) => {
            let text = state.metrics.render(&open.backend.services).await;
            ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
        }
        Err(error) => error.response(),
    }
}

/// Who may tell clients where to get a token (RFC 9728).
pub(crate) async fn protected_resource(State(state): State<Arc<AppState>>) -> Response {
    match state.metadata() {
        Some(metadata) => Json(metadata).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
