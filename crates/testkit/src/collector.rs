//! A collector of OpenTelemetry: it takes spans over OTLP/HTTP, and shows them to the test.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::poll;

/// What the collector has received.
#[derive(Debug, Default, Clone)]
pub struct Observed {
    pub spans: Vec<Span>,
    /// The attributes of the process.
    pub resource: BTreeMap<String, String>,
    /// The bytes of all requests.
    pub bytes: Vec<u8>,
    /// The heads of all requests.
    pub heads: Vec<String>,
}

impl Observed {
    /// The attributes of a span, as text.
    pub fn attributes(span: &Span) -> BTreeMap<String, String> {
        texts(&span.attributes)
    }
}

/// The collector. It ends with this value.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    observed: Arc<Mutex<Observed>>,
    task: tokio::task::JoinHandle<()>,
}

impl Collector {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let observed = Arc::<Mutex<Observed>>::default();
        let shared = Arc::clone(&observed);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(receive(stream, Arc::clone(&shared)));
            }
        });
        Self { address, observed, task }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets a server export to this collector, soon after each request.
    pub fn apply(&self, command: &mut Command) {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", self.endpoint()).env("OTEL_BSP_SCHEDULE_DELAY", "20");
    }

    pub fn observed(&self) -> Observed {
        self.observed.lock().expect("no panic").clone()
    }

    /// Waits for a span of this name, and returns it with what else has been received.
    pub async fn span(&self, name: &str) -> (Span, Observed) {
        let found = async || {
            let observed = self.observed();
            Some((observed.spans.iter().find(|span| span.name == name)?.clone(), observed))
        };
        poll::until_some(&format!("a span {name}"), found).await
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn receive(mut stream: TcpStream, observed: Arc<Mutex<Observed>>) {
    let mut bytes = Vec::new();
    let (head, body) = loop {
        let mut part = [0; 65_536];
        let Ok(length @ 1..) = stream.read(&mut part).await else { return };
        bytes.extend_from_slice(&part[..length]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let wanted =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if bytes.len() >= end + 4 + wanted.unwrap_or(0_usize) {
            break (head, bytes.split_off(end + 4));
        }
    };
    {
        let mut observed = observed.lock().expect("no panic");
        if head.starts_with("POST /v1/traces ") {
            let request = ExportTraceServiceRequest::decode(body.as_slice()).expect("spans");
            for spans in request.resource_spans {
                observed.resource = texts(&spans.resource.unwrap_or_default().attributes);
                observed.spans.extend(spans.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        observed.bytes.extend(body);
        observed.heads.push(head);
    }
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}
