//! MCP over standard input and output, which carries the protocol and nothing else.

use rmcp::ServiceExt;
use rmcp::service::QuitReason;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::McpServer;
use crate::line_transport::LineTransport;

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

/// Standard input and output as rmcp opens them: without a thread in between where both are pipes. Also for front ends that are
/// not MCP.
#[must_use]
pub fn standard_pipes() -> (impl AsyncRead + Send + Unpin + 'static, impl AsyncWrite + Send + Unpin + 'static) {
    rmcp::transport::stdio_pipes()
}

/// Serves on standard input and output until the client closes them or `stop` is cancelled.
///
/// # Errors
/// [`ServeError`] if no session came about or the serving task died.
pub async fn serve_stdio(server: McpServer, stop: CancellationToken) -> Result<(), ServeError> {
    let (input, output) = standard_pipes();
    let server = server.stopping_with(&stop);
    let transport = LineTransport::new(input, output, server.in_flight.clone(), server.session.clone());
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
