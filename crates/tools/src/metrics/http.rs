//! What a server over HTTP tells: this crate knows no HTTP.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Why a request was refused before any tool was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// No credentials, or not good ones.
    Unauthenticated,
    /// Good credentials, which may not do this.
    Forbidden,
    /// The Host header names another host.
    Host,
    /// The Origin header names a page that may not call.
    Origin,
    /// The body is larger than a message may be.
    BodyTooLarge,
    /// Too many requests in too short a time.
    RateLimited,
    /// As many sessions as there may be.
    TooManySessions,
    /// As many streams as there may be.
    TooManyStreams,
    /// As many connections as there may be, of all clients or of one.
    TooManyConnections,
    /// The client took too long to send or to read.
    TooSlow,
    /// The server is about to end.
    Draining,
}

impl RefusalReason {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Unauthenticated,
        Self::Forbidden,
        Self::Host,
        Self::Origin,
        Self::BodyTooLarge,
        Self::RateLimited,
        Self::TooManySessions,
        Self::TooManyStreams,
        Self::TooManyConnections,
        Self::TooSlow,
        Self::Draining,
    ];

    /// The word of the label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::Host => "host",
            Self::Origin => "origin",
            Self::BodyTooLarge => "body_too_large",
            Self::RateLimited => "rate_limited",
            Self::TooManySessions => "too_many_sessions",
            Self::TooManyStreams => "too_many_streams",
            Self::TooManyConnections => "too_many_connections",
            Self::TooSlow => "too_slow",
            Self::Draining => "draining",
        }
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

/// What is counted of HTTP.
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

    /// A request was answered with this status. `route` is a route of the program, and one word for all that there are not:
    /// never the path that was sent.
    pub fn answered(&self, route: &'static str, status: u16) {
        self.requests.get_or_create_owned(&RequestLabels { route, status }).inc();
    }

    /// A request was refused. Its answer is to be told as well.
    pub fn refused(&self, reason: RefusalReason) {
        self.refused.get_or_create_owned(&RefusedLabels { reason: reason.as_str() }).inc();
    }

    /// A session has begun; it has ended when what this returns is dropped.
    pub fn session(&self) -> GaugeGuard {
        GaugeGuard::new(&self.sessions)
    }

    /// The same of a stream of events.
    pub fn stream(&self) -> GaugeGuard {
        GaugeGuard::new(&self.streams)
    }
}

/// Something that is open until this is dropped.
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
