//! One request of a client: a span of kind `server`.

use std::sync::{Mutex, PoisonError};

use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Span, SpanKind, Status, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracer;
use tokio::task_local;

use crate::{TELEMETRY, Telemetry};

/// The longest text of a client in an attribute, in characters.
const MAX_TEXT: usize = 256;

/// The longest statement in an attribute, in characters.
const MAX_STATEMENT: usize = 8192;

/// A request, in the words of the conventions.
#[derive(Debug, Clone, Default)]
pub struct Operation<'r> {
    /// The MCP method.
    pub method: &'static str,
    /// The tool that it calls, if the server has it: names of spans come from a fixed list.
    pub tool: Option<&'r str>,
    pub resource_uri: Option<&'r str>,
    /// The database that the request names, of a server with several.
    pub database: Option<&'r str>,
    pub request_id: String,
    pub session_id: Option<&'r str>,
    pub protocol_version: Option<String>,
    /// `tcp` for HTTP, `pipe` for standard input and output.
    pub transport: &'static str,
    /// The caller's trace context (W3C Trace Context).
    pub traceparent: Option<&'r str>,
    pub tracestate: Option<&'r str>,
}

/// How a request has ended, if not with an error of a tool ([`set_tool_error`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Answered,
    /// The code of a JSON-RPC error.
    Error(i32),
}

/// What becomes known while a request is answered.
#[derive(Debug, Default)]
struct Progress {
    tool_error: Option<&'static str>,
    statement: Option<String>,
}

task_local! {
    static PROGRESS: Mutex<Progress>;
}

/// Answers a request, and reports it. The closures are not called if nothing is exported.
pub async fn observed<'r, T>(
    operation: impl FnOnce() -> Operation<'r>,
    answer: impl Future<Output = T>,
    outcome: impl FnOnce(&T) -> Outcome,
) -> T {
    let Some(telemetry) = TELEMETRY.get() else { return answer.await };
    let observation = Observation::begin(telemetry, &operation());
    let (answer, progress) = PROGRESS
        .scope(Mutex::default(), async {
            let answer = answer.await;
            (
                answer,
                PROGRESS.with(|progress| std::mem::take(&mut *progress.lock().unwrap_or_else(PoisonError::into_inner))),
            )
        })
        .await;
    observation.end(outcome(&answer), progress);
    answer
}

/// Notes that the tool of this request has failed, with the code of the envelope.
pub fn set_tool_error(code: &'static str) {
    update(|progress| progress.tool_error = Some(code));
}

/// Notes the text of the statement that this request runs, if texts are exported.
pub fn set_statement(sql: &str) {
    if TELEMETRY.get().is_some_and(|telemetry| telemetry.sql_text) {
        update(|progress| progress.statement = Some(bounded(sql, MAX_STATEMENT)));
    }
}

/// Outside of a request, nothing is noted.
fn update(change: impl FnOnce(&mut Progress)) {
    let _ = PROGRESS.try_with(|progress| change(&mut progress.lock().unwrap_or_else(PoisonError::into_inner)));
}

struct Observation {
    span: <SdkTracer as Tracer>::Span,
}

impl Observation {
    fn begin(telemetry: &'static Telemetry, operation: &Operation<'_>) -> Self {
        let Operation { method, tool, transport, .. } = *operation;
        let mut attributes =
            vec![KeyValue::new("mcp.method.name", method), KeyValue::new("network.transport", transport)];
        if let Some(tool) = tool {
            attributes.push(KeyValue::new("gen_ai.tool.name", tool.to_owned()));
            attributes.push(KeyValue::new("gen_ai.operation.name", "execute_tool"));
        }
        if let Some(version) = &operation.protocol_version {
            attributes.push(KeyValue::new("mcp.protocol.version", bounded(version, MAX_TEXT)));
        }
        let name = tool.map_or_else(|| method.to_owned(), |tool| format!("{method} {tool}"));
        attributes.push(KeyValue::new("jsonrpc.request.id", bounded(&operation.request_id, MAX_TEXT)));
        attributes.push(KeyValue::new("db.system.name", "postgresql"));
        let namespace = operation.database.or(telemetry.namespace.as_deref());
        attributes.extend(namespace.map(|name| KeyValue::new("db.namespace", name.to_owned())));
        let texts = [("mcp.session.id", operation.session_id), ("mcp.resource.uri", operation.resource_uri)];
        let texts = texts.into_iter().filter_map(|(key, text)| Some(KeyValue::new(key, bounded(text?, MAX_TEXT))));
        attributes.extend(texts);
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &Caller(operation));
        let span = telemetry.tracer.span_builder(name).with_kind(SpanKind::Server).with_attributes(attributes);
        Self { span: span.start_with_context(&telemetry.tracer, &parent) }
    }

    fn end(mut self, outcome: Outcome, progress: Progress) {
        let error = match (outcome, progress.tool_error) {
            (Outcome::Error(code), _) => Some(KeyValue::new("error.type", code.to_string())),
            (Outcome::Answered, Some(_)) => Some(KeyValue::new("error.type", "tool_error")),
            (Outcome::Answered, None) => None,
        };
        let span = &mut self.span;
        if let Some(error) = error {
            span.set_attribute(error);
            // Messages of errors may contain values.
            span.set_status(Status::error(""));
        }
        if let Outcome::Error(code) = outcome {
            span.set_attribute(KeyValue::new("rpc.response.status_code", code.to_string()));
        }
        if let Some(code) = progress.tool_error {
            span.set_attribute(KeyValue::new("countersign.error.code", code));
        }
        if let Some(statement) = progress.statement {
            span.set_attribute(KeyValue::new("db.query.text", statement));
        }
        span.end();
    }
}

/// The trace context of a request, as OpenTelemetry's propagator reads it.
struct Caller<'r>(&'r Operation<'r>);

impl Extractor for Caller<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => self.0.traceparent,
            "tracestate" => self.0.tracestate,
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

/// The beginning of a text of a client, in which nothing is hidden.
fn bounded(text: &str, characters: usize) -> String {
    let end = text.char_indices().nth(characters).map_or(text.len(), |(end, _)| end);
    types::visible(text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_a_client_is_short_and_hides_nothing() {
        assert_eq!(bounded("a\u{1b}[2Jb", 256), "a\\u001b[2Jb");
        assert_eq!(bounded(&"ü".repeat(1000), 256), "ü".repeat(256));
    }

    #[tokio::test]
    async fn without_a_collector_a_request_is_only_answered() {
        let never = || -> Operation<'_> { panic!("nobody asks") };
        let answer = observed(never, async { 7 }, |_| panic!("nobody asks")).await;
        set_tool_error("sql_error");
        set_statement("select 1");
        assert_eq!(answer, 7);
    }
}
