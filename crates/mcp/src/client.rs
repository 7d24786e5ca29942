//! A real MCP client over a server's standard input and output, and for tests over HTTP: for the demo and the tests.

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
pub struct ToolCallResult {
    /// MCP's own flag.
    pub is_error: bool,
    /// The envelope, from the structured content.
    pub envelope: Value,
    /// The text content, as it came.
    pub text: String,
}

/// What somebody says to a question; `None` is no answer, ever.
type AnswerFn = dyn Fn(&str) -> Option<UserAnswer> + Send + Sync;

/// A user whom the server may ask (MCP elicitation).
struct SimulatedUser(Box<AnswerFn>);

impl fmt::Debug for SimulatedUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User")
    }
}

/// Takes in what a server says by itself.
#[derive(Debug)]
struct SessionHandler {
    /// How often the server has said that its tools have changed.
    tool_changes: watch::Sender<u64>,
    /// Who answers questions. Without anybody the client does not say that it can ask.
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
                return Err(ErrorData::invalid_request("the question was taken back", None));
            }
        };
        Ok(ElicitResult::new(action))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tool_changes.send_modify(|count| *count += 1);
    }
}

/// Which protocols a client speaks.
#[cfg(feature = "client-http")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolGeneration {
    /// Those to 2025-11-25: a session begins with `initialize`.
    Handshake,
    /// 2026-07-28: every request stands for itself.
    Stateless,
}

/// A session with a server: one that this client started, or over HTTP one that was there.
#[derive(Debug)]
pub struct Client {
    session: RunningService<RoleClient, SessionHandler>,
    pid: Option<u32>,
}

impl Client {
    /// Starts `command` and opens a session on its standard input and output.
    ///
    /// # Errors
    /// [`ClientError::Start`] or [`ClientError::Session`].
    pub async fn start(command: Command) -> Result<Self, ClientError> {
        Self::open(command, None).await
    }

    /// The same with a user who is shown the server's questions and answers them; `None` is no answer, ever.
    ///
    /// # Errors
    /// As [`Client::start`].
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

    /// Opens a session over streamable HTTP with the server at `url`, which ends in `/mcp`, with a bearer token and a user as
    /// [`Client::start_with_user`] has.
    ///
    /// # Errors
    /// [`ClientError::Session`].
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

    /// Closes the session and waits for the server to end.
    ///
    /// # Errors
    /// [`ClientError::Lost`] if it does not end well.
    pub async fn close(self) -> Result<(), ClientError> {
        self.session.cancel().await.map(drop).map_err(|error| ClientError::Lost(error.to_string()))
    }
}

/// Why there is no session over HTTP, to the last cause: what the server says of the token.
#[cfg(feature = "client-http")]
fn initialize_error(error: &rmcp::service::ClientInitializeError) -> ClientError {
    let mut said = error.to_string();
    if let rmcp::service::ClientInitializeError::TransportError { error, .. } = error {
        let mut cause = error.error.source();
        while let Some(error) = cause {
            said = format!("{said}: {error}");
            cause = error.source();
        }
    }
    ClientError::Session(said)
}

fn client_error(error: rmcp::ServiceError) -> ClientError {
    match error {
        rmcp::ServiceError::McpError(error) => {
            ClientError::Protocol { code: error.code.0, message: error.message.into_owned() }
        }
        other => ClientError::Lost(other.to_string()),
    }
}
