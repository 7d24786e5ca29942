//! An MCP client for the demo and the tests, over a server's standard input and output, and over HTTP in tests.

use std::fmt;

use rmcp::ServiceExt;
use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, ErrorData,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient, RunningService};
use rmcp::transport::TokioChildProcess;
use serde_json::{Map, Value};
use tokio::process::Command;
use tokio::sync::watch;
use tools::UserAnswer;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the server cannot be started: {0}")]
    Start(std::io::Error),
    /// The server started, but no session was opened. The server's standard error has the reason.
    #[error("the server opened no MCP session: {0}")]
    Session(String),
    /// The server returned a JSON-RPC error instead of a result.
    #[error("{message} ({code})")]
    Protocol {
        /// The JSON-RPC error code.
        code: i32,
        message: String,
    },
    /// The connection ended, or the response is not one of MCP.
    #[error("{0}")]
    Lost(String),
}

#[derive(Debug, Clone)]
pub struct ToolCallResult {
    /// The `isError` member of the result.
    pub is_error: bool,
    /// The envelope, from the structured content.
    pub envelope: Value,
    /// The text content, unchanged.
    pub text: String,
}

/// Answers a question; `None` leaves the question unanswered.
type AnswerFn = dyn Fn(&str) -> Option<UserAnswer> + Send + Sync;

/// A user whom the server may ask (MCP elicitation).
struct SimulatedUser(Box<AnswerFn>);

impl fmt::Debug for SimulatedUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User")
    }
}

#[derive(Debug)]
struct SessionHandler {
    /// Number of notifications that the tools have changed.
    tool_changes: watch::Sender<u64>,
    /// Answers questions. Without a user, the client does not declare elicitation.
    user: Option<SimulatedUser>,
}

impl SessionHandler {
    fn new(user: Option<SimulatedUser>) -> Self {
        Self { tool_changes: watch::Sender::new(0), user }
    }
}

impl ClientHandler for SessionHandler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = self.user.is_some().then(ElicitationCapability::default);
        let mut config = ClientConfig::default();
        config.capabilities = capabilities;
        config
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let (Some(SimulatedUser(ask)), ElicitRequestParams::FormElicitationParams { message, .. }) =
            (&self.user, request)
        else {
            return Err(ErrorData::invalid_params("this client shows forms only", None));
        };
        let action = match ask(&message) {
            Some(UserAnswer::Accept) => ElicitationAction::Accept,
            Some(UserAnswer::Decline) => ElicitationAction::Decline,
            Some(UserAnswer::Cancel) => ElicitationAction::Cancel,
            None => {
                context.ct.cancelled().await;
                return Err(ErrorData::invalid_request("the question was withdrawn", None));
            }
        };
        Ok(ElicitResult::new(action))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tool_changes.send_modify(|count| *count += 1);
    }
}

#[cfg(feature = "client-http")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolGeneration {
    /// Versions up to 2025-11-25: a session begins with `initialize`.
    Handshake,
    /// Version 2026-07-28: every request is self-contained.
    Stateless,
}

/// A session with a server that this client started, or, over HTTP, with a running server.
#[derive(Debug)]
pub struct Client {
    session: RunningService<RoleClient, SessionHandler>,
    pid: Option<u32>,
}

impl Client {
    /// Starts `command` and opens a session on its standard input and output.
    pub async fn start(command: Command) -> Result<Self, ClientError> {
        Self::open(command, None).await
    }

    /// Starts a server, and answers its questions with `user`; `None` leaves a question unanswered.
    pub async fn start_with_user(
        command: Command,
        user: impl Fn(&str) -> Option<UserAnswer> + Send + Sync + 'static,
    ) -> Result<Self, ClientError> {
        Self::open(command, Some(SimulatedUser(Box::new(user)))).await
    }

    async fn open(command: Command, user: Option<SimulatedUser>) -> Result<Self, ClientError> {
        let transport = TokioChildProcess::new(command).map_err(ClientError::Start)?;
        let pid = transport.id();
        let session = SessionHandler::new(user).serve(transport).await;
        Ok(Self { session: session.map_err(|error| ClientError::Session(error.to_string()))?, pid })
    }

    /// Opens a session over streamable HTTP with the server at `url`, which ends in `/mcp`. `token` is its bearer
    /// token, and `user` answers questions as in [`Client::start_with_user`].
    #[cfg(feature = "client-http")]
    pub async fn connect_with_user(
        url: &str,
        token: &str,
        generation: ProtocolGeneration,
        user: impl Fn(&str) -> Option<UserAnswer> + Send + Sync + 'static,
    ) -> Result<Self, ClientError> {
        use rmcp::service::{ClientLifecycleMode, ClientServiceExt};
        use rmcp::transport::StreamableHttpClientTransport;
        use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

        let config = StreamableHttpClientTransportConfig::with_uri(url).auth_header(token);
        let transport = StreamableHttpClientTransport::from_config(config);
        let lifecycle = match generation {
            ProtocolGeneration::Handshake => ClientLifecycleMode::Initialize,
            ProtocolGeneration::Stateless => {
                ClientLifecycleMode::Discover { preferred_versions: vec![rmcp::model::ProtocolVersion::V_2026_07_28] }
            }
        };
        let handler = SessionHandler::new(Some(SimulatedUser(Box::new(user))));
        let session = handler.serve_with_lifecycle(transport, lifecycle).await;
        Ok(Self { session: session.map_err(|error| initialize_error(&error))?, pid: None })
    }

    /// Number of notifications that the tools have changed. The receiver can wait for the next one.
    #[must_use]
    pub fn tool_changes(&self) -> watch::Receiver<u64> {
        self.session.service().tool_changes.subscribe()
    }

    /// The process id of the server, unless the server had ended before the session was open.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Lists the tools as whole MCP `Tool` objects.
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
    pub async fn call(&self, tool: &str, arguments: Map<String, Value>) -> Result<ToolCallResult, ClientError> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let result: CallToolResult = self.session.call_tool(params).await.map_err(client_error)?;
        let text: String =
            result.content.iter().filter_map(|block| block.as_text()).map(|text| text.text.as_str()).collect();
        Ok(ToolCallResult {
            is_error: result.is_error.unwrap_or_default(),
            envelope: result.structured_content.unwrap_or_default(),
            text,
        })
    }

    /// Closes the session and waits for the server to exit.
    ///
    /// # Errors
    /// [`ClientError::Lost`] if the session does not end cleanly.
    pub async fn close(self) -> Result<(), ClientError> {
        self.session.cancel().await.map(drop).map_err(|error| ClientError::Lost(error.to_string()))
    }
}

/// The error of a session over HTTP, with all of its causes: the last one is the server's reason to reject the token.
#[cfg(feature = "client-http")]
fn initialize_error(error: &rmcp::service::ClientInitializeError) -> ClientError {
    let mut message = error.to_string();
    if let rmcp::service::ClientInitializeError::TransportError { error, .. } = error {
        let mut cause = error.error.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
    }
    ClientError::Session(message)
}

fn client_error(error: rmcp::ServiceError) -> ClientError {
    match error {
        rmcp::ServiceError::McpError(error) => {
            ClientError::Protocol { code: error.code.0, message: error.message.into_owned() }
        }
        other => ClientError::Lost(other.to_string()),
    }
}
