//! OpenTelemetry: spans and metrics of MCP requests, by the semantic conventions for MCP, over OTLP/HTTP. Entry points:
//! [`start`], [`observed`], [`shut_down`]. This crate knows neither MCP's messages nor tools.
//!
//! It is one for the process, as a collector is. Until [`start`] has been called, each function returns at once.
//!
//! ```text
//! settings     what is exported, and where: OTEL_* variables and the settings of this program
//! operation    one request: its span, its duration
//! export       sends to the collector, and logs an outage once
//! ```

mod export;
mod operation;
mod settings;

use std::sync::OnceLock;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, MeterProvider};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;

use self::export::{Collector, ExportClient};
pub use self::operation::{Operation, Outcome, observed, set_statement, set_tool_error};
use self::settings::Signal;
pub use self::settings::TelemetrySettings;

/// The name of the spans' and metrics' source.
const SCOPE: &str = "countersign";

/// The time limit for the last spans and metrics. Clients kill a server some seconds after they have closed its input.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The bounds that the conventions recommend, in seconds.
const BUCKETS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

static TELEMETRY: OnceLock<Telemetry> = OnceLock::new();

/// What is exported by this process.
#[derive(Debug)]
struct Telemetry {
    traces: Option<(SdkTracerProvider, SdkTracer)>,
    metrics: Option<(SdkMeterProvider, Histogram<f64>)>,
    /// The database of the server; `None` if it has several.
    namespace: Option<String>,
    sql_text: bool,
}

/// Why nothing can be exported.
#[derive(Debug, thiserror::Error)]
#[error("OpenTelemetry cannot be used: {0}")]
pub struct TelemetryError(String);

/// Starts to export, if the settings or `OTEL_*` variables say where to. `namespace` is the name of the only database.
///
/// # Errors
/// [`TelemetryError`] if they are wrong. A collector that does not answer is no error.
pub fn start(settings: &TelemetrySettings, namespace: Option<&str>) -> Result<(), TelemetryError> {
    if !settings.is_on() {
        return Ok(());
    }
    let wrong = |error: &dyn std::fmt::Display| TelemetryError(error.to_string());
    let (collector, runtime) = (Collector::default(), Handle::current());
    let client = || ExportClient::new(collector.clone(), runtime.clone());
    let resource = resource();
    let mut started =
        Telemetry { traces: None, metrics: None, namespace: namespace.map(str::to_owned), sql_text: settings.sql_text };
    if settings.exports(Signal::Traces) {
        let mut builder = SpanExporter::builder().with_http().with_http_client(client());
        if let Some(endpoint) = settings.endpoint_of(Signal::Traces) {
            builder = builder.with_endpoint(endpoint);
        }
        let exporter = builder.build().map_err(|error| wrong(&error))?;
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.clone()).build();
        let tracer = provider.tracer(SCOPE);
        started.traces = Some((provider, tracer));
    }
    if settings.exports(Signal::Metrics) {
        let mut builder = MetricExporter::builder().with_http().with_http_client(client());
        if let Some(endpoint) = settings.endpoint_of(Signal::Metrics) {
            builder = builder.with_endpoint(endpoint);
        }
        let exporter = builder.build().map_err(|error| wrong(&error))?;
        let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter).with_resource(resource).build();
        let meter = provider.meter(SCOPE);
        let histogram = meter
            .f64_histogram("mcp.server.operation.duration")
            .with_unit("s")
            .with_description("MCP request duration as observed on the receiver")
            .with_boundaries(BUCKETS.to_vec())
            .build();
        started.metrics = Some((provider, histogram));
    }
    TELEMETRY.set(started).map_err(|_| TelemetryError("it has been started before".to_owned()))
}

/// Sends what is left, within 2 s.
pub async fn shut_down() {
    let Some(telemetry) = TELEMETRY.get() else { return };
    let flushing = tokio::task::spawn_blocking(|| {
        // What cannot be sent is lost; the outage is in the log.
        let _ = telemetry.traces.as_ref().map(|(provider, _)| provider.shutdown_with_timeout(FLUSH_TIMEOUT));
        let _ = telemetry.metrics.as_ref().map(|(provider, _)| provider.shutdown_with_timeout(FLUSH_TIMEOUT));
    });
    if tokio::time::timeout(FLUSH_TIMEOUT, flushing).await.is_err() {
        tracing::warn!("the last spans and metrics were not sent: the collector does not answer");
    }
}

/// What the `OTEL_*` variables say of this process, with a name and a version.
fn resource() -> Resource {
    let resource = Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if settings::names_service() { resource.build() } else { resource.with_service_name(SCOPE).build() }
}
