//! JSON-RPC messages as lines.
//!
//! rmcp's own line transport drops a line that is not JSON without a word; JSON-RPC 2.0 has -32700 for it, and an agent
//! framework that waits for its answer should get one. The same goes for what is too long or too much.

use std::io;
use std::sync::Arc;

use rmcp::model::{ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use types::IdFinder;

use crate::in_flight::{InFlightRequests, answered_id};
use crate::message::{self, MAX_MESSAGE_BYTES, ParseError};
use crate::result_encoding;

/// How much room is kept for the next line, in bytes.
const IDLE_LINE_BYTES: usize = 64 << 10;

/// The longest id that is looked for in a line that is too long, in bytes.
const MAX_ID_BYTES: usize = 256;

/// One JSON-RPC message a line, both ways.
pub(crate) struct LineTransport<R, W> {
    input: BufReader<R>,
    /// The line so far. Lives here because `receive` may be cancelled in the middle of one.
    line: Vec<u8>,
    /// Looks for the id of a line that is too long, of which nothing else is kept.
    too_long: Option<IdFinder>,
    in_flight: InFlightRequests,
    output: Arc<Mutex<W>>,
    /// Cancelled at the end of the input.
    session: CancellationToken,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> LineTransport<R, W> {
    pub(crate) fn new(input: R, output: W, in_flight: InFlightRequests, session: CancellationToken) -> Self {
        let (input, output) = (BufReader::new(input), Arc::new(Mutex::new(output)));
        Self { input, line: Vec::new(), too_long: None, in_flight, output, session }
    }

    /// Reads up to the end of a line. `None` at the end of the input.
    async fn read_line(&mut self) -> io::Result<Option<Read>> {
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                return Ok(None);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let take = end.map_or(available.len(), |end| end + 1);
            let piece = available.get(..take).unwrap_or_default();
            if self.too_long.is_none() && self.line.len() + take > MAX_MESSAGE_BYTES {
                let finder = self.too_long.insert(IdFinder::new(MAX_ID_BYTES));
                finder.read(&std::mem::take(&mut self.line));
            }
            match &mut self.too_long {
                Some(finder) => finder.read(piece),
                None => self.line.extend_from_slice(piece),
            }
            self.input.consume(take);
            if end.is_some() {
                return Ok(Some(self.too_long.take().map_or(Read::Line, |finder| {
                    Read::TooLong(finder.id().and_then(|id| serde_json::from_value(id).ok()))
                })));
            }
        }
    }

    /// Makes room for the next line.
    fn clear_line(&mut self) {
        self.line.clear();
        self.line.shrink_to(IDLE_LINE_BYTES);
    }
}

/// What was read.
enum Read {
    /// A line, in the buffer.
    Line,
    /// A line over the limit, with its id if it has one.
    TooLong(Option<RequestId>),
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
            let answered = answered_id(&item);
            // Not before it is this answer's turn: a line takes as much room as all that it is made of.
            let mut output = output.lock().await;
            result_encoding::expand_message(&mut item);
            let mut line = serde_json::to_vec(&item)?;
            drop(item);
            line.push(b'\n');
            let written = async {
                output.write_all(&line).await?;
                output.flush().await
            };
            let written = written.await;
            if let Some(id) = answered {
                in_flight.remove(&id);
            }
            // Nobody hears what is under way any more.
            written.inspect_err(|_| session.cancel())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let parsed = match self.read_line().await {
                Ok(Some(Read::Line)) if self.line.trim_ascii().is_empty() => {
                    self.line.clear();
                    continue;
                }
                Ok(Some(Read::Line)) => message::parse(self.line.trim_ascii()).and_then(|(message, values)| match self
                    .in_flight
                    .admit(&message, self.line.len(), values)
                {
                    Ok(()) => Ok(message),
                    Err(error) => Err(ParseError { error, id: message::request_id(&message) }),
                }),
                Ok(Some(Read::TooLong(id))) => {
                    let message = format!("the message is longer than {MAX_MESSAGE_BYTES} bytes");
                    Err(ParseError::new(ErrorData::invalid_request(message, None), id))
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
            self.clear_line();
            match parsed {
                Ok(message) => return Some(message),
                Err(ParseError { error, id }) => {
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
