//! Metrics that an HTTP server reports. This crate does not depend on HTTP.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

types::text_enum! {
    /// Reason for the refusal of a request before it reached a tool.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum RefusalReason {
        /// The credentials are missing or invalid.
        Unauthenticated = "unauthenticated",
        /// The credentials are valid but do not permit the request.
        Forbidden = "forbidden",
        /// The Host header names another host.
        Host = "host",
        /// The Origin header names a page that may not send requests.
        Origin = "origin",
        /// The body exceeds the maximum size of a message.
        BodyTooLarge = "body_too_large",
        /// The request exceeds the rate limit.
        RateLimited = "rate_limited",
        /// The maximum number of sessions is reached.
        TooManySessions = "too_many_sessions",
        /// The maximum number of streams is reached.
        TooManyStreams = "too_many_streams",
        /// The maximum number of connections is reached, of all clients or of one.
        TooManyConnections = "too_many_connections",
        /// The client took too long to send or to read.
        TooSlow = "too_slow",
        /// The server is shutting down.
        Draining = "draining",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    reason: &'static str,
}

#[derive(Debug)]
pub struct HttpMetrics {
    requests: Family<RequestLabels, Counter>,
    sessions: Gauge,
    streams: Gauge,
    refused: Family<RefusedLabels, Counter>,
}

impl HttpMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            requests: Family::default(),
            sessions: Gauge::default(),
            streams: Gauge::default(),
            refused: Family::default(),
        };
        for reason in RefusalReason::ALL {
            this.refused.get_or_create_owned(&RefusedLabels { reason: reason.as_str() });
        }
        registry.register(
            "http_requests",
            "Requests that were answered, by route and HTTP status",
            this.requests.clone(),
        );
        registry.register("http_sessions", "Open MCP sessions", this.sessions.clone());
        registry.register("http_streams", "Open event streams", this.streams.clone());
        let help =
            "Requests that reached no tool. `too_many_connections` includes connections that were closed at once";
        registry.register("http_refused", help, this.refused.clone());
        this
    }

    /// Records the response status of a request. `route` is a route of the program, or one fixed word for all unknown
    /// paths, never the path of the request.
    pub fn answered(&self, route: &'static str, status: u16) {
        self.requests.get_or_create_owned(&RequestLabels { route, status }).inc();
    }

    /// Records a refused request. The caller must record its response as well.
    pub fn refused(&self, reason: RefusalReason) {
        self.refused.get_or_create_owned(&RefusedLabels { reason: reason.as_str() }).inc();
    }

    /// Records the start of a session; it ends when the returned guard is dropped.
    pub fn session(&self) -> GaugeGuard {
        GaugeGuard::new(&self.sessions)
    }

    /// Records the start of an event stream; it ends when the returned guard is dropped.
    pub fn stream(&self) -> GaugeGuard {
        GaugeGuard::new(&self.streams)
    }
}

/// A session or stream that is open until this guard is dropped.
#[derive(Debug)]
#[must_use = "what is dropped is closed"]
pub struct GaugeGuard {
    gauge: Gauge,
}

impl GaugeGuard {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self { gauge: gauge.clone() }
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}
