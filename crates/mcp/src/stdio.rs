//! MCP over standard input and output, which carry only the protocol.

use rmcp::ServiceExt;
use rmcp::service::{QuitReason, ServerInitializeError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::line_transport::LineTransport;
use crate::server::McpServer;

/// Why serving ended early.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The client's first messages are not the handshake of MCP.
    #[error("the client did not start an MCP session: {0}")]
    Handshake(String),
    /// The serving task ended by itself.
    #[error("serving ended: {0}")]
    Ended(String),
}

/// Standard input and output as rmcp opens them: without a thread in between if both are pipes. Front ends that are
/// not MCP use them too.
#[must_use]
pub fn standard_pipes() -> (impl AsyncRead + Send + Unpin + 'static, impl AsyncWrite + Send + Unpin + 'static) {
    enlarge_output_pipe();
    rmcp::transport::stdio_pipes()
}

/// Enlarges a pipe at standard output, so that it accepts an answer of usual size at once. With the 64 KiB of Linux,
/// server and client wake each other a dozen times for each MiB. If standard output is not a pipe, it is not changed.
fn enlarge_output_pipe() {
    #[cfg(target_os = "linux")]
    let _ = nix::fcntl::fcntl(std::io::stdout(), nix::fcntl::FcntlArg::F_SETPIPE_SZ(OUTPUT_PIPE_BYTES));
}

/// The largest size that an unprivileged process may request.
#[cfg(target_os = "linux")]
const OUTPUT_PIPE_BYTES: i32 = 1 << 20;

/// Serves on standard input and output until the client closes them or `stop` is cancelled.
pub async fn serve_stdio(server: McpServer, stop: CancellationToken) -> Result<(), ServeError> {
    let (input, output) = standard_pipes();
    let server = server.stopping_with(&stop);
    let transport = LineTransport::new(input, output, server.session());
    let running = match server.serve_with_ct(transport, stop).await {
        Ok(running) => running,
        // A client may close its end before the handshake.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
        Err(error) => return Err(ServeError::Handshake(error.to_string())),
    };
    match running.waiting().await {
        Ok(QuitReason::JoinError(error)) | Err(error) => Err(ServeError::Ended(error.to_string())),
        Ok(_) => Ok(()),
    }
}
