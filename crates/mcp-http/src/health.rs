//! Routes for people, supervisors, load balancers and monitoring, and the metadata of OAuth.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode, header};
use serde::Serialize;
use serde_json::json;
use tools::metrics::CONTENT_TYPE;
use tools::{DatabaseHealth, NotServed};
use types::DatabaseName;

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

/// `/readyz`: whether the server can answer calls, as status 200 or 503. If a database does not answer while others
/// do, or tools do not fit their database, the server is ready and `degraded`. The reasons may name the database, its
/// login and its tables, so only authenticated callers and programs on this machine see them.
pub(crate) async fn readyz(
    State(state): State<Arc<AppState>>,
    Extension(caller): Extension<ClientAddress>,
    headers: HeaderMap,
) -> Response {
    let checked = state.readiness.check().await;
    let active = state.readiness.current().ok();
    let not_served = active.map(|active| active.backend.registry.not_served()).unwrap_or_default();
    if checked.as_ref().is_ok_and(Vec::is_empty) && not_served.is_empty() {
        return Json(json!({"status": "ready"})).into_response();
    }
    let may_see_reason = caller.is_local(&state.proxies, &headers)
        || headers.contains_key(header::AUTHORIZATION)
            && state.requires_credentials()
            && state.authenticate(&caller, &headers).await.is_ok();
    let (status, body) = match &checked {
        Ok(databases) => (StatusCode::OK, Health::degraded(databases, &not_served)),
        Err(reason) => {
            (StatusCode::SERVICE_UNAVAILABLE, Health { reason: Some(reason.clone()), ..Health::new("unavailable") })
        }
    };
    let body = if may_see_reason { body } else { Health::new(body.status) };
    (status, Json(body)).into_response()
}

/// The state of a server that is not simply ready.
#[derive(Debug, Serialize)]
struct Health<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unavailable: Vec<UnavailableDatabase<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_served: Vec<NotServedTool<'a>>,
}

#[derive(Debug, Serialize)]
struct UnavailableDatabase<'a> {
    database: Option<&'a DatabaseName>,
    reason: &'a str,
}

#[derive(Debug, Serialize)]
struct NotServedTool<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<&'a DatabaseName>,
    tool: &'a str,
    reason: &'a str,
}

impl<'a> Health<'a> {
    const fn new(status: &'static str) -> Self {
        Self { status, reason: None, unavailable: Vec::new(), not_served: Vec::new() }
    }

    fn degraded(databases: &'a [DatabaseHealth], not_served: &'a [NotServed]) -> Self {
        let unavailable = databases.iter().map(|own| UnavailableDatabase {
            database: own.database.as_ref(),
            reason: own.error.as_deref().unwrap_or_default(),
        });
        let tool = |own: &'a NotServed| NotServedTool {
            database: own.database.as_ref(),
            tool: &own.tool,
            reason: &own.reason,
        };
        Self {
            unavailable: unavailable.collect(),
            not_served: not_served.iter().map(tool).collect(),
            ..Self::new("degraded")
        }
    }
}

/// `/metrics`. Metrics name tools, so the caller must be authenticated if the server requires credentials.
pub(crate) async fn metrics(
    State(state): State<Arc<AppState>>,
    Extension(caller): Extension<ClientAddress>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, HttpError> {
    state.authenticate(&caller, &headers).await?;
    let text = state.readiness.current()?.backend.registry.render_metrics(&state.metrics).await;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text))
}

/// The metadata that tells clients where to get a token (RFC 9728).
pub(crate) async fn protected_resource(State(state): State<Arc<AppState>>) -> Response {
    match state.metadata() {
        Some(metadata) => Json(metadata).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
