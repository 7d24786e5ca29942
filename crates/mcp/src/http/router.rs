//! The routes, and what every request passes on all of them: its caller is noted, its address is checked, and its answer is
//! counted and, if it is a refusal, logged.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware::{self, Next};
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use http::{HeaderName, HeaderValue, Method, Request, Response, header};
use tower_http::cors::{AllowHeaders, CorsLayer};

use super::client_address::Caller;
use super::connections::Connection;
use super::refusal::{Refusal, RefusalReport};
use super::refusal_log::Refused;
use super::{METADATA, Site, pages, probes, sse, streamable};

/// Routes that are answered over connections that are kept for probes.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

impl Site {
    pub(super) fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/", get(pages::root))
            .route("/mcp", any(streamable::handle))
            .route("/sse", get(sse::open))
            .route("/message", post(sse::message))
            .route("/healthz", get(probes::healthz))
            .route("/readyz", get(probes::readyz))
            .route("/metrics", get(probes::metrics))
            .route(METADATA, get(probes::protected_resource))
            .route(&format!("{METADATA}/mcp"), get(probes::protected_resource))
            .layer(self.cross_origin())
            .layer(middleware::from_fn_with_state(Arc::clone(self), on_every_route))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(self))
    }

    /// What lets pages of the allowed origins read answers.
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
    State(site): State<Arc<Site>>,
    Extension(connection): Extension<Arc<Connection>>,
    mut request: Request<Body>,
    next: Next,
) -> Response<Body> {
    connection.begin_request();
    if site.proxies.is_unlisted_proxy(connection.peer(), request.headers())
        && !site.has_warned_of_proxy.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(
            peer = %connection.peer(),
            "a request carries X-Forwarded-For, which counts only from trusted_proxies: if a proxy of yours is at this address, \
             list it there; until then all of its clients have the limits of one"
        );
    }
    let caller = Caller::new(Arc::clone(&connection), &site.proxies, request.headers());
    request.extensions_mut().insert(caller.clone());
    let path = request.uri().path().to_owned();
    let mut response = match site.addresses.check(request.uri(), request.headers()) {
        Err(misaddressed) => Refusal::Misaddressed(misaddressed).response(),
        Ok(()) if connection.is_for_probes() && !PROBES.contains(&path.as_str()) => Refusal::NoConnection.response(),
        Ok(()) => next.run(request).await,
    };
    let http = site.metrics.http();
    http.answered(route(&path), response.status().as_u16());
    let report = response.extensions_mut().remove::<RefusalReport>();
    if let Some(RefusalReport { reason, message }) = &report {
        reason.iter().for_each(|reason| http.refused(*reason));
        site.refusals.report(caller.address, Refused::Request { status: response.status(), path: &path, message });
    }
    if connection.end_request(report.is_some()) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A path as a metric's label: never a client's own text.
fn route(path: &str) -> &'static str {
    ["/", "/mcp", "/sse", "/message", "/healthz", "/readyz", "/metrics"]
        .into_iter()
        .find(|route| *route == path)
        .unwrap_or(if path.starts_with(METADATA) { METADATA } else { "other" })
}
