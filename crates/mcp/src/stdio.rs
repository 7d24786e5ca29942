//! MCP over standard input and output: one JSON-RPC message a line.
//!
//! rmcp's own line transport drops a line that is not JSON without a word; JSON-RPC 2.0 has -32700 for it, and an agent
//! framework that waits for its answer should get one. Standard output carries the protocol and nothing else.

use std::io;
use std::sync::Arc;

use rmcp::ServiceExt;
use rmcp::model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{QuitReason, RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{Server, packed, strict_json};

/// Why serving ended early.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The client did not open the session as MCP asks.
    #[error("the client did not start an MCP session: {0}")]
    Handshake(String),
    /// The task that serves ended by itself.
    #[error("serving ended: {0}")]
    Ended(String),
}

/// Serves on standard input and output until the client closes them or `stop` is cancelled.
///
/// # Errors
/// [`ServeError`] if no session came about or the serving task died.
pub async fn serve_stdio(server: Server, stop: CancellationToken) -> Result<(), ServeError> {
    let (input, output) = rmcp::transport::stdio_pipes();
    let session = server.session.clone();
    let transport = Lines::new(input, output, session.clone());
    let stopped = stop.clone();
    tokio::spawn(async move {
        stopped.cancelled().await;
        session.cancel();
    });
    let running = match server.serve_with_ct(transport, stop).await {
        Ok(running) => running,
        // A client that goes away before it says anything has done nothing wrong.
        Err(
            rmcp::service::ServerInitializeError::ConnectionClosed(_) | rmcp::service::ServerInitializeError::Cancelled,
        ) => return Ok(()),
        Err(error) => return Err(ServeError::Handshake(error.to_string())),
    };
    match running.waiting().await {
        Ok(QuitReason::JoinError(error)) | Err(error) => Err(ServeError::Ended(error.to_string())),
        Ok(_) => Ok(()),
    }
}

/// The longest line that is read, in bytes: a query of 1 MiB with its parameters fits many times.
const MAX_LINE_BYTES: usize = 16 << 20;

struct Lines<R, W> {
    input: BufReader<R>,
    /// The line so far. Lives here because `receive` may be cancelled in the middle of one.
    line: Vec<u8>,
    /// Whether the rest of the line is to be passed over.
    too_long: bool,
    output: Arc<Mutex<W>>,
    /// Cancelled at the end of the input.
    session: CancellationToken,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Lines<R, W> {
    fn new(input: R, output: W, session: CancellationToken) -> Self {
        let (input, output) = (BufReader::new(input), Arc::new(Mutex::new(output)));
        Self { input, line: Vec::new(), too_long: false, output, session }
    }

    /// Reads up to the end of a line. `None` at the end of the input; `Some(false)` for a line over the limit.
    async fn read_line(&mut self) -> io::Result<Option<bool>> {
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                return Ok(None);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let take = end.map_or(available.len(), |end| end + 1);
            if self.line.len() + take > MAX_LINE_BYTES {
                self.too_long = true;
                self.line = Vec::new();
            }
            if !self.too_long {
                self.line.extend_from_slice(available.get(..take).unwrap_or_default());
            }
            self.input.consume(take);
            if end.is_some() {
                return Ok(Some(!std::mem::take(&mut self.too_long)));
            }
        }
    }
}

/// What a line that is no message is answered with.
struct Unreadable {
    error: Box<ErrorData>,
    /// The line's own id, as far as it has one.
    id: Option<RequestId>,
}

fn parse(line: &[u8]) -> Result<RxJsonRpcMessage<RoleServer>, Unreadable> {
    let message = strict_json::check(line).and_then(|()| serde_json::from_slice(line));
    message.map_err(|error| {
        let Ok(value) = serde_json::from_slice::<Value>(line) else {
            return unreadable(ErrorData::new(ErrorCode::PARSE_ERROR, format!("Parse error: {error}"), None), None);
        };
        let id = value.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
        match value.get("method").and_then(Value::as_str) {
            Some(method) if id.is_some() => unreadable(
                ErrorData::invalid_params(format!("the params of {method} cannot be read: {error}"), None),
                id,
            ),
            _ => unreadable(ErrorData::invalid_request(format!("not a JSON-RPC message of MCP: {error}"), None), id),
        }
    })
}

fn unreadable(error: ErrorData, id: Option<RequestId>) -> Unreadable {
    Unreadable { error: Box::new(error), id }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let output = Arc::clone(&self.output);
        async move {
            // Not before it is this answer's turn: a line takes as much room as all that it is made of.
            let mut output = output.lock().await;
            let line = packed::line(item)?;
            output.write_all(&line).await?;
            output.flush().await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let parsed = match self.read_line().await {
                Ok(Some(true)) => {
                    let line = self.line.trim_ascii();
                    if line.is_empty() {
                        self.line.clear();
                        continue;
                    }
                    parse(line)
                }
                Ok(Some(false)) => {
                    let message = format!("the message is longer than {MAX_LINE_BYTES} bytes");
                    Err(unreadable(ErrorData::invalid_request(message, None), None))
                }
                Ok(None) => {
                    self.session.cancel();
                    return None;
                }
                Err(error) => {
                    tracing::error!(%error, "standard input cannot be read");
                    return None;
                }
            };
            self.line.clear();
            match parsed {
                Ok(message) => return Some(message),
                Err(Unreadable { error, id }) => {
                    // Not its words: they may quote the line.
                    tracing::warn!(code = error.code.0, "a line is not a message");
                    // In a task of its own: `receive` may be cancelled, and half a line must not go out.
                    tokio::spawn(self.send(JsonRpcMessage::error(*error, id)));
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.output.lock().await.shutdown().await
    }
}
