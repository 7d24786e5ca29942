//! Sends to the collector, with the HTTP client that this program has anyway.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use http::{Request, Response, Uri};
use http_client::{HttpClient, HttpUrl};
use opentelemetry_http::{Bytes, HttpClient as ExportHttpClient, HttpError};
use tokio::runtime::Handle;

/// Whether the collector took the last export. An outage is logged once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Collector {
    is_down: Arc<AtomicBool>,
}

impl Collector {
    fn failed(&self, reason: &str) {
        if !self.is_down.swap(true, Ordering::Relaxed) {
            tracing::warn!(reason, "spans are lost: the collector of OpenTelemetry does not take them");
        }
    }

    fn answered(&self) {
        if self.is_down.swap(false, Ordering::Relaxed) {
            tracing::info!("the collector of OpenTelemetry takes spans again");
        }
    }
}

/// The client of one exporter, which has one URL.
#[derive(Debug)]
pub(crate) struct ExportClient {
    collector: Collector,
    /// Exporters have threads of their own, outside of the runtime.
    runtime: Handle,
    client: OnceLock<HttpClient>,
}

impl ExportClient {
    pub(crate) fn new(collector: Collector, runtime: Handle) -> Self {
        Self { collector, runtime, client: OnceLock::new() }
    }

    fn client(&self, uri: &Uri) -> Result<HttpClient, HttpError> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let client = HttpClient::new(uri.to_string().parse::<HttpUrl>()?)?;
        Ok(self.client.get_or_init(|| client).clone())
    }

    async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client(request.uri())?;
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).parse()?;
        *request.uri_mut() = path;
        let answer = self.runtime.spawn(async move { client.send(request).await }).await??;
        Ok(Response::builder().status(answer.status).body(answer.body)?)
    }
}

#[async_trait]
impl ExportHttpClient for ExportClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.send(request).await;
        match &answer {
            Ok(answer) if answer.status().is_success() => self.collector.answered(),
            Ok(answer) => self.collector.failed(&format!("its status is {}", answer.status())),
            Err(error) => self.collector.failed(&types::visible(&error.to_string())),
        }
        answer
    }
}
