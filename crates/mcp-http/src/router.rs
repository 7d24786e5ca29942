//! The routes, and the middleware of all routes: it determines the client's address, checks the host, counts
//! responses, and logs rejections.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use http::{HeaderName, HeaderValue, Method, Request, Response, header};
use http_server::HttpConnection;
use tower_http::cors::{AllowHeaders, CorsLayer};

use crate::client_address::ClientAddress;
use crate::error_response::{HttpError, RejectionReport};
use crate::rejection_log::Rejection;
use crate::state::{AppState, METADATA_PATH};
use crate::{health, sse, streamable};

/// The routes that reserved connections serve.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

impl AppState {
    pub(super) fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/", get(health::root))
            .route("/mcp", any(streamable::handle))
            .route("/mcp/", any(streamable::handle))
            .route("/sse", get(sse::open))
            .route("/sse/", get(sse::open))
            .route("/message", post(sse::message))
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::readyz))
            .route("/metrics", get(health::metrics))
            .route(METADATA_PATH, get(health::protected_resource))
            .route(&format!("{METADATA_PATH}/mcp"), get(health::protected_resource))
            .layer(self.cross_origin())
            .layer(middleware::from_fn_with_state(Arc::clone(self), on_every_route))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(self))
    }

    /// Allows pages of the allowed origins to read responses.
    fn cross_origin(&self) -> CorsLayer {
        let session = HeaderName::from_static("mcp-session-id");
        CorsLayer::new()
            .allow_origin(self.origins.clone())
            .allow_methods([Method::GET, Method::POST, Method::DELETE])
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers([session, header::WWW_AUTHENTICATE, header::RETRY_AFTER])
    }
}

async fn on_every_route(
    State(state): State<Arc<AppState>>,
    Extension(connection): Extension<Arc<HttpConnection>>,
    mut request: Request<Body>,
    next: Next,
) -> Response<Body> {
    connection.begin_request();
    if state.proxies.is_unlisted_proxy(connection.peer(), request.headers())
        && !state.has_warned_of_proxy.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(
            peer = %connection.peer(),
            "a request has X-Forwarded-For, which is trusted only from trusted_proxies: if your proxy has this address, \
             list it there; until then all of its clients share the limits of one"
        );
    }
    let caller = ClientAddress::new(Arc::clone(&connection), &state.proxies, request.headers());
    request.extensions_mut().insert(caller.clone());
    let path = request.uri().path().to_owned();
    let mut response = match state.hosts.check(request.uri(), request.headers()) {
        Err(error) => HttpError::Host(error).into_response(),
        Ok(()) if connection.is_for_health_checks() && !PROBES.contains(&path.as_str()) => {
            HttpError::NoConnection.into_response()
        }
        Ok(()) => next.run(request).await,
    };
    let http = state.metrics.http();
    http.answered(route(&path), response.status().as_u16());
    let report = response.extensions_mut().remove::<RejectionReport>();
    if let Some(RejectionReport { reason, message }) = &report {
        reason.iter().for_each(|reason| http.refused(*reason));
        state.rejections.report(caller.address, Rejection::Request { status: response.status(), path: &path, message });
    }
    if connection.end_request(report.is_some()) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The metric label of a path. It never contains text of a client.
fn route(path: &str) -> &'static str {
    ["/", "/mcp", "/sse", "/message", "/healthz", "/readyz", "/metrics"]
        .into_iter()
        .find(|route| *route == path || path.strip_suffix('/').is_some_and(|path| !path.is_empty() && path == *route))
        .unwrap_or(if path.starts_with(METADATA_PATH) { METADATA_PATH } else { "other" })
}
