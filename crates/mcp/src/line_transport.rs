//! JSON-RPC messages as lines, in both directions.
//!
//! rmcp's own line transport drops a line that is not JSON. JSON-RPC 2.0 has error -32700 for it, and an agent
//! framework that waits for its answer needs one. This transport also answers lines that are too long, and limits the
//! memory of unanswered requests.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use rmcp::model::{ErrorData, GetExtensions, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::codec::FramedRead;
use tokio_util::sync::CancellationToken;
use types::{Line, LineCodec};

use crate::message::{self, MAX_ID_BYTES, MAX_IN_FLIGHT_BYTES, MAX_MESSAGE_BYTES, ParseError, SERVER_ERROR};
use crate::message_writer;
use crate::result_encoding;
use crate::transport_context::{ResponseScope, TransportContext};

pub(crate) struct LineTransport<R, W> {
    lines: FramedRead<R, LineCodec>,
    in_flight: InFlightRequests,
    output: Arc<tokio::sync::Mutex<W>>,
    /// Cancelled at the end of the input.
    session: CancellationToken,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> LineTransport<R, W> {
    pub(crate) fn new(input: R, output: W, session: CancellationToken) -> Self {
        let (lines, in_flight) =
            (FramedRead::new(input, LineCodec::new(MAX_MESSAGE_BYTES, MAX_ID_BYTES)), InFlightRequests::default());
        Self { lines, in_flight, output: Arc::new(tokio::sync::Mutex::new(output)), session }
    }
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let (output, in_flight, session) = (Arc::clone(&self.output), self.in_flight.clone(), self.session.clone());
        async move {
            // Serialized after the wait for the output: a line takes as much memory as the values that it is made of.
            let mut output = output.lock().await;
            result_encoding::expand_message(&mut item);
            let unwritten = message_writer::write_without_waiting(&mut *output, &item);
            let answered = message::answered_id(&item).cloned();
            drop(item);
            let written = async {
                output.write_all(&unwritten?).await?;
                output.flush().await
            };
            let written = written.await;
            if let Some(id) = answered {
                in_flight.remove(&id);
            }
            // The client has closed its end, so running calls have no reader.
            written.inspect_err(|_| session.cancel())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let parsed = match self.lines.next().await {
                Some(Ok(Line::Complete(line))) => self.in_flight.admit(line.trim_ascii()),
                Some(Ok(Line::TooLong(id))) => {
                    let id = id.and_then(|id| serde_json::from_value(id).ok());
                    let message = format!("the message is longer than {MAX_MESSAGE_BYTES} bytes");
                    Err(ParseError::new(ErrorData::invalid_request(message, None), id))
                }
                Some(Err(error)) => {
                    tracing::error!(%error, "standard input cannot be read");
                    return None;
                }
                None => {
                    self.session.cancel();
                    return None;
                }
            };
            match parsed {
                Ok(message) => return Some(message),
                Err(ParseError { error, id }) => {
                    // The error's text may quote the line, so only its code is logged.
                    tracing::warn!(code = error.code.0, "a line is not a message");
                    // In a separate task: `receive` may be cancelled, and half a line must not be written.
                    tokio::spawn(self.send(JsonRpcMessage::error(*error, id)));
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.output.lock().await.shutdown().await
    }
}

/// Requests without an answer, and their memory. A client may send any number of requests, so their memory must be
/// bounded.
#[derive(Clone, Default)]
struct InFlightRequests {
    requests: Arc<Mutex<HashMap<RequestId, InFlightRequest>>>,
}

#[derive(Default)]
struct InFlightRequest {
    /// Estimated memory of the request.
    bytes: usize,
    response: ResponseScope,
}

impl InFlightRequests {
    /// Parses a line and counts the request that it may be.
    fn admit(&self, line: &[u8]) -> Result<RxJsonRpcMessage<RoleServer>, ParseError> {
        let (mut message, values) = message::parse(line)?;
        let mut requests = self.requests();
        if let Some(id) = message::cancelled_id(&message)
            && let Some(request) = requests.remove(id)
        {
            request.response.finish(true);
        }
        if let JsonRpcMessage::Request(request) = &mut message {
            let bytes = message::request_bytes(line.len(), values);
            let others: usize = requests.values().map(|request| request.bytes).sum();
            if !requests.is_empty() && others + bytes > MAX_IN_FLIGHT_BYTES {
                let text = format!(
                    "{} requests of {others} bytes are unanswered, and this one exceeds the limit: \
                     wait for an answer, then send it again",
                    requests.len()
                );
                // Rejected instead of left unread: the server has to read a cancellation that follows.
                return Err(ParseError::new(ErrorData::new(SERVER_ERROR, text, None), Some(request.id.clone())));
            }
            let entry = requests.entry(request.id.clone()).or_default();
            entry.bytes += bytes;
            let context = TransportContext { response: entry.response.clone(), ..TransportContext::default() };
            request.request.extensions_mut().insert(context);
        }
        Ok(message)
    }

    /// Removes a request whose answer has been written.
    fn remove(&self, id: &RequestId) {
        let request = self.requests().remove(id);
        if let Some(request) = request {
            request.response.finish(true);
        }
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<RequestId, InFlightRequest>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
