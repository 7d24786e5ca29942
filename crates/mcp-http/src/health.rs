//! Routes for people, supervisors, load balancers and monitoring, and the metadata of OAuth.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode, header};
use serde_json::json;
use tools::metrics::CONTENT_TYPE;

use crate::client_address::ClientAddress;
use crate::error_response::HttpError;
use crate::state::AppState;

/// `/`: a page for people who open the address in a browser. It discloses nothing.
pub(crate) async fn root() -> &'static str {
    "This is countersign, an MCP server for PostgreSQL. It is for MCP clients, not for browsers.\n\
     \n\
     /mcp      streamable HTTP: the address to give to an MCP client\n\
     /sse      HTTP+SSE, for clients of protocol 2024-11-05\n\
     /healthz  whether the server runs\n\
     /readyz   whether it can answer calls\n"
}

/// `/healthz`: whether the process answers.
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// `/readyz`: whether the server can answer calls, as status 200 or 503. If tools do not fit the database, the server
/// is ready and `degraded`. The reasons may name the database, its login and its tables, so only authenticated
/// callers and programs on this machine see them.
pub(crate) async fn readyz(
    State(state): State<Arc<AppState>>,
    Extension(caller): Extension<ClientAddress>,
    headers: HeaderMap,
) -> Response {
    let checked = state.readiness.check().await;
    let outdated = state.readiness.current().map(|active| active.backend.registry.outdated()).unwrap_or_default();
    if checked.is_ok() && outdated.is_empty() {
        return Json(json!({"status": "ready"})).into_response();
    }
    let may_see_reason = caller.is_local(&state.proxies, &headers)
        || headers.contains_key(header::AUTHORIZATION)
            && state.requires_credentials()
            && state.authenticate(&caller, &headers).await.is_ok();
    let tools = || outdated.iter().map(|(tool, reason)| json!({"tool": tool, "reason": reason})).collect::<Vec<_>>();
    let (status, body) = match (checked, may_see_reason) {
        (Ok(()), true) => (StatusCode::OK, json!({"status": "degraded", "not_served": tools()})),
        (Ok(()), false) => (StatusCode::OK, json!({"status": "degraded"})),
        (Err(reason), true) => (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "unavailable", "reason": reason})),
        (Err(_), false) => (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "unavailable"})),
    };
    (status, Json(body)).into_response()
}

/// `/metrics`. Metrics name tools, so the caller must be authenticated if the server requires credentials.
pub(crate) async fn metrics(
    State(state): State<Arc<AppState>>,
    Extension(caller): Extension<ClientAddress>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, HttpError> {
    state.authenticate(&caller, &headers).await?;
    let text = state.readiness.current()?.backend.services.render_metrics().await;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text))
}

/// The metadata that tells clients where to get a token (RFC 9728).
pub(crate) async fn protected_resource(State(state): State<Arc<AppState>>) -> Response {
    match state.metadata() {
        Some(metadata) => Json(metadata).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
