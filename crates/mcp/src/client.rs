//! A real MCP client over a server's standard input and output: for the demo and the tests.

use rmcp::ServiceExt;
use rmcp::handler::client::ClientHandler;
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::{NotificationContext, RoleClient, RunningService};
use rmcp::transport::TokioChildProcess;
use serde_json::{Map, Value};
use tokio::process::Command;
use tokio::sync::watch;

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server could not be started.
    #[error("the server cannot be started: {0}")]
    Start(std::io::Error),
    /// The server started and no session came about; what it wrote to standard error says why.
    #[error("the server gave no MCP session: {0}")]
    Session(String),
    /// An MCP error instead of a result.
    #[error("{message} ({code})")]
    Protocol {
        /// JSON-RPC's code.
        code: i32,
        /// The server's message.
        message: String,
    },
    /// The connection ended, or the answer was none that MCP knows.
    #[error("{0}")]
    Lost(String),
}

/// What a tool answered.
#[derive(Debug, Clone)]
pub struct ToolAnswer {
    /// MCP's own flag.
    pub is_error: bool,
    /// The envelope, from the structured content.
    pub envelope: Value,
    /// The text content, as it came.
    pub text: String,
}

/// Takes in what a server says by itself.
#[derive(Debug)]
struct Listener {
    /// How often the server has said that its tools have changed.
    tool_changes: watch::Sender<u64>,
}

impl ClientHandler for Listener {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tool_changes.send_modify(|count| *count += 1);
    }
}

/// A session with a server that this client started.
#[derive(Debug)]
pub struct Client {
    session: RunningService<RoleClient, Listener>,
    pid: Option<u32>,
}

impl Client {
    /// Starts `command` and opens a session on its standard input and output.
    ///
    /// # Errors
    /// [`ClientError::Start`] or [`ClientError::Session`].
    pub async fn start(command: Command) -> Result<Self, ClientError> {
        let transport = TokioChildProcess::new(command).map_err(ClientError::Start)?;
        let pid = transport.id();
        let listener = Listener { tool_changes: watch::Sender::new(0) };
        let session = listener.serve(transport).await.map_err(|error| ClientError::Session(error.to_string()))?;
        Ok(Self { session, pid })
    }

    /// How often the server has said that its tools have changed; the receiver can wait for the next time.
    #[must_use]
    pub fn tool_changes(&self) -> watch::Receiver<u64> {
        self.session.service().tool_changes.subscribe()
    }

    /// The server's process, if it had not ended before the session was there.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// The tools as the server lists them: whole MCP `Tool` objects.
    ///
    /// # Errors
    /// [`ClientError`] if the server does not answer.
    pub async fn list_tools(&self) -> Result<Vec<Value>, ClientError> {
        let tools = self.session.list_all_tools().await.map_err(client_error)?;
        tools
            .iter()
            .map(|tool| serde_json::to_value(tool).map_err(|error| ClientError::Lost(error.to_string())))
            .collect()
    }

    /// Calls a tool.
    ///
    /// # Errors
    /// [`ClientError`] if there is no result; an error envelope is a result.
    pub async fn call(&self, tool: &str, arguments: Map<String, Value>) -> Result<ToolAnswer, ClientError> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let result: CallToolResult = self.session.call_tool(params).await.map_err(client_error)?;
        let text: String =
            result.content.iter().filter_map(|block| block.as_text()).map(|text| text.text.as_str()).collect();
        Ok(ToolAnswer {
            is_error: result.is_error.unwrap_or_default(),
            envelope: result.structured_content.unwrap_or_default(),
            text,
        })
    }

    /// Closes the session and waits for the server to end.
    ///
    /// # Errors
    /// [`ClientError::Lost`] if it does not end well.
    pub async fn close(self) -> Result<(), ClientError> {
        self.session.cancel().await.map(drop).map_err(|error| ClientError::Lost(error.to_string()))
    }
}

fn client_error(error: rmcp::ServiceError) -> ClientError {
    match error {
        rmcp::ServiceError::McpError(error) => {
            ClientError::Protocol { code: error.code.0, message: error.message.into_owned() }
        }
        other => ClientError::Lost(other.to_string()),
    }
}
