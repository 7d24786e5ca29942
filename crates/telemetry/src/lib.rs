//! OpenTelemetry: spans of MCP requests, by the semantic conventions for MCP, over OTLP/HTTP. Entry points:
//! [`start`], [`observed`], [`shut_down`]. This crate knows neither MCP's messages nor tools.
//!
//! It is one for the process, as a collector is. Until [`start`] has been called, each function returns at once.
//!
//! ```text
//! settings     what is exported, and where: OTEL_* variables and the settings of this program
//! operation    one request: its span
//! export       sends to the collector, and logs an outage once
//! ```

mod export;
mod operation;
mod settings;

use std::sync::OnceLock;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;

use self::export::{Collector, ExportClient};
pub use self::operation::{Operation, Outcome, observed, set_statement, set_tool_error};
pub use self::settings::TelemetrySettings;

/// The name of the spans' source.
const SCOPE: &str = "countersign";

/// The time limit for the last spans. Clients kill a server some seconds after they have closed its input.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

static TELEMETRY: OnceLock<Telemetry> = OnceLock::new();

/// What is exported by this process.
#[derive(Debug)]
struct Telemetry {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
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
    let client = ExportClient::new(Collector::default(), Handle::current());
    let mut builder = SpanExporter::builder().with_http().with_http_client(client);
    if let Some(endpoint) = settings.endpoint_of_traces() {
        builder = builder.with_endpoint(endpoint);
    }
    let exporter = builder.build().map_err(|error| TelemetryError(error.to_string()))?;
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build();
    let tracer = provider.tracer(SCOPE);
    let namespace = namespace.map(str::to_owned);
    let started = Telemetry { provider, tracer, namespace, sql_text: settings.sql_text };
    TELEMETRY.set(started).map_err(|_| TelemetryError("it has been started before".to_owned()))
}

/// Sends what is left, within 2 s.
pub async fn shut_down() {
    let Some(telemetry) = TELEMETRY.get() else { return };
    let flushing = tokio::task::spawn_blocking(|| {
        // What cannot be sent is lost; the outage is in the log.
        let _ = telemetry.provider.shutdown_with_timeout(FLUSH_TIMEOUT);
    });
    if tokio::time::timeout(FLUSH_TIMEOUT, flushing).await.is_err() {
        tracing::warn!("the last spans were not sent: the collector does not answer");
    }
}

/// What the `OTEL_*` variables say of this process, with a name and a version.
fn resource() -> Resource {
    let resource = Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if settings::names_service() { resource.build() } else { resource.with_service_name(SCOPE).build() }
}
