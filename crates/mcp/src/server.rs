//! Answers MCP requests from the tool registry.
//!
//! ```text
//! call_tool      rmcp's handler: ends the call when its client cancels it or goes away
//!   answer_call  asks the user if the write needs a decision, then encodes the result
//!     run_tool   waits for a read permit, then runs the tool: `Registry::call`
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, CustomRequest, CustomResult,
    ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse, GetSkillRequestParams, GetSkillResult,
    Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, SubscriptionFilter,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use telemetry::{Operation, Outcome};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tools::{CallResult, Caller, ProfileView, Registry, UserDecision};
use types::{ClientInfo, Envelope, Failure, Principal, trace_id};

use crate::apps;
use crate::elicitation::{Elicitation, ElicitationMode};
use crate::list_changed::ChangeSubscriber;
use crate::message::SERVER_ERROR;
use crate::read_limiter::{self, ReadLimiter, ReadPermit};
use crate::resources;
use crate::result_encoding::{self, ResultContent, encode_result, encode_tool};
use crate::skills;
use crate::transport_context::TransportContext;

/// How long reads continue after the client has closed its end of a pipe, while others of its calls complete. A
/// script that pipes its requests in gets the quick answers, and a slow read does not occupy a backend for long.
const CLOSE_GRACE: Duration = Duration::from_millis(50);

/// How long reads continue after a shared server has been told to stop. A proxy sends the next requests elsewhere.
const STOP_GRACE: Duration = Duration::from_secs(5);

const CANCELLED: &str = "the call was cancelled";

/// The parameters of the methods that require some.
const PARAM_SHAPES: [(&str, &str); 5] = [
    ("tools/call", "{\"name\": string, \"arguments\": object}"),
    ("resources/read", "{\"uri\": string}"),
    ("prompts/get", "{\"name\": string}"),
    ("skills/get", "{\"uri\": string}"),
    (
        "completion/complete",
        "{\"ref\": {\"type\": \"ref/resource\", \"uri\": string}, \"argument\": {\"name\": string, \"value\": string}}",
    ),
];

/// Serves the tools of one profile to one principal, in one session.
#[derive(Debug, Clone)]
pub struct McpServer {
    tools: ProfileView,
    principal: Principal,
    /// The session in records; `None` if each request names its own, or if there are no sessions.
    session_id: Option<String>,
    content: ResultContent,
    elicitation: Elicitation,
    /// The read limit of the account; `None` if the client does not share the server.
    reads: Option<Arc<ReadLimiter>>,
    completed_calls: watch::Sender<u64>,
    /// Cancels `session` when the last clone is dropped.
    _end_of_session: Arc<DropGuard>,
    session: CancellationToken,
    /// Cancelled when the server stops. That ends the session too.
    stop: CancellationToken,
    /// Whether the session is subscribed to changes already.
    forwards_changes: Arc<AtomicBool>,
    /// How long reads continue after the end of the session while calls complete.
    grace: Duration,
}

impl McpServer {
    #[must_use]
    pub fn new(tools: ProfileView, principal: Principal, content: ResultContent, elicitation: Elicitation) -> Self {
        let session = CancellationToken::new();
        Self {
            tools,
            principal,
            session_id: Some(new_session_id()),
            content,
            elicitation,
            reads: None,
            completed_calls: watch::Sender::new(0),
            _end_of_session: Arc::new(session.clone().drop_guard()),
            session,
            stop: CancellationToken::new(),
            forwards_changes: Arc::default(),
            grace: CLOSE_GRACE,
        }
    }

    /// Ends the session when `stop` is cancelled, too.
    #[must_use]
    pub(crate) fn stopping_with(mut self, stop: &CancellationToken) -> Self {
        self.session = stop.child_token();
        self._end_of_session = Arc::new(self.session.clone().drop_guard());
        self.stop = stop.clone();
        self
    }

    /// Shares a server that ends with `stop` among the clients of several accounts. Each request names its own
    /// session.
    #[must_use]
    pub fn shared(self, reads: Arc<ReadLimiter>, stop: &CancellationToken) -> Self {
        Self { reads: Some(reads), session_id: None, grace: STOP_GRACE, ..self.stopping_with(stop) }
    }

    /// Gives all requests one new session id.
    #[must_use]
    pub fn with_session_id(self) -> Self {
        Self { session_id: Some(new_session_id()), ..self }
    }

    pub(crate) fn session(&self) -> CancellationToken {
        self.session.clone()
    }

    /// The tools of a request.
    fn registry(&self, transport: &TransportContext) -> Arc<Registry> {
        transport.tools.as_ref().unwrap_or(&self.tools).registry()
    }

    /// The client of a request. The request's own statements take precedence over those of the session.
    fn client_info(&self, context: &RequestContext<RoleServer>, transport: &TransportContext) -> ClientInfo {
        let client = context.client_info().map(|client| ClientInfo::new(&client.name, &client.version));
        let client = client.unwrap_or_else(|| transport.client.clone());
        let session_id = transport.client.session_id.clone().or_else(|| self.session_id.clone());
        let trace_id = trace_context(context, transport).0.and_then(trace_id).map(str::to_owned);
        ClientInfo { session_id, trace_id, ..client }
    }

    /// A request as telemetry reports it. Only over HTTP, clients share a server.
    fn operation<'r>(
        &'r self,
        method: &'static str,
        context: &'r RequestContext<RoleServer>,
        transport: &'r TransportContext,
    ) -> Operation<'r> {
        let (traceparent, tracestate) = trace_context(context, transport);
        Operation {
            method,
            request_id: context.id.to_string(),
            session_id: transport.client.session_id.as_deref().or(self.session_id.as_deref()),
            protocol_version: context.protocol_version().map(|version| version.to_string()),
            transport: if self.reads.is_some() { "tcp" } else { "pipe" },
            traceparent,
            tracestate,
            ..Operation::default()
        }
    }

    /// Answers a call, with a question to the user in between if the tool has one.
    async fn answer_call(
        &self,
        context: &RequestContext<RoleServer>,
        transport: &TransportContext,
        registry: &Arc<Registry>,
        params: &CallToolRequestParams,
    ) -> Result<CallToolResponse, ErrorData> {
        let mode = Elicitation::mode(context);
        let decision = self.elicitation.decision(params, &self.principal)?;
        let client = self.client_info(context, transport);
        let principal = Principal { client, ..self.principal.clone() };
        let (mut result, mut permit) = self.run_tool(registry, params, &principal, mode, decision).await?;
        if let Some(question) = result.question.take() {
            match mode {
                ElicitationMode::InputRequired => {
                    return self.elicitation.input_required(&question, &self.principal, &params.name).map(Into::into);
                }
                ElicitationMode::Inline => {
                    // The end of the session ends the wait.
                    let elicited = self.elicitation.elicit(&question, context);
                    let decision = self.session.run_until_cancelled(elicited).await.flatten();
                    if decision.is_some() {
                        (result, permit) = self.run_tool(registry, params, &principal, mode, decision).await?;
                    }
                }
                ElicitationMode::Unsupported => {}
            }
        }
        if let Some(page) = result.page.take()
            && Elicitation::opens_pages(context)
        {
            self.session.run_until_cancelled(self.elicitation.open(&page, context)).await;
        }
        if let Envelope::Failure { error, .. } = &result.envelope {
            telemetry::set_tool_error(error.code.as_str());
        }
        let mut encoded = encode_result(result.envelope, self.content, &result.number_fields)?;
        if transport.is_written_by_rmcp {
            result_encoding::expand(&mut encoded);
        }
        if let Some(response_permit) = result.permit {
            // Rows in memory count against the account's reads until they have been written.
            transport.response.keep_alive((response_permit, permit));
        }
        Ok(encoded.into())
    }

    /// Runs a tool. A call that may not start is a failed result.
    async fn run_tool(
        &self,
        registry: &Arc<Registry>,
        params: &CallToolRequestParams,
        principal: &Principal,
        mode: ElicitationMode,
        decision: Option<UserDecision>,
    ) -> Result<(CallResult, Option<ReadPermit>), ErrorData> {
        let name = &params.name;
        let Some(info) = registry.info(name) else {
            let arguments = params.arguments.clone().unwrap_or_default();
            if let Some(result) = registry.call_outdated(name, &arguments) {
                return Ok((result, None));
            }
            let known: Vec<&str> = registry.infos().map(|info| info.name.as_str()).collect();
            let message = format!("Unknown tool: {name}. This server has: {}", known.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        };
        let began = Instant::now();
        let reads = self.reads.as_deref().filter(|_| info.hints.read_only);
        let arguments = params.arguments.clone().unwrap_or_default();
        let asks_user = mode != ElicitationMode::Unsupported;
        let caller = Caller { principal: principal.clone(), asks_user, decision };
        let database = registry.database_of_call(name, &arguments);
        let (result, permit) = match read_limiter::run(reads, database, registry.call(name, arguments, caller)).await {
            Ok(answered) => answered,
            Err(failure) => (registry.refuse(name, database, failure, began), None),
        };
        Ok((result.ok_or_else(|| ErrorData::internal_error("no tool", None))?, permit))
    }

    /// Runs a request about resources, or about the one of this URI, until the client cancels it or goes away: dropping it frees its backend.
    async fn read_registry<T>(
        &self,
        context: &RequestContext<RoleServer>,
        uri: Option<&str>,
        read: impl AsyncFnOnce(&Registry) -> Result<T, ErrorData>,
    ) -> Result<T, ErrorData> {
        let transport = TransportContext::of(context);
        let registry = self.registry(&transport);
        let output = async {
            let database = uri.and_then(|uri| registry.database_of_resource(uri));
            let output = read_limiter::run(self.reads.as_deref(), database, read(&registry)).await;
            output.map_err(|failure: Failure| ErrorData::new(SERVER_ERROR, failure.message, None))?.0
        };
        tokio::select! {
            output = output => output,
            () = context.ct.cancelled() => Err(self.interrupted(CANCELLED)),
            () = transport.response.client_gone() => Err(self.interrupted(CANCELLED)),
            error = self.end_of_session() => Err(error),
        }
    }

    /// Waits until the session has ended and no call has completed for the grace period. Returns the error for the
    /// calls that still run.
    async fn end_of_session(&self) -> ErrorData {
        let mut completed = self.completed_calls.subscribe();
        self.session.cancelled().await;
        while tokio::time::timeout(self.grace, completed.changed()).await.is_ok_and(|changed| changed.is_ok()) {}
        self.interrupted("the call was cancelled: the client closed its end")
    }

    /// The error for a call that ends without a result: `reason`, unless the server is stopping. On standard input
    /// and output rmcp reports a stop as a cancelled request.
    fn interrupted(&self, reason: &'static str) -> ErrorData {
        if self.stop.is_cancelled() {
            let message = "the server is stopping, and this call was cut off before its answer: send the same call again \
                (a running write is not repeated)";
            return ErrorData::new(SERVER_ERROR, message, None);
        }
        ErrorData::invalid_request(reason, None)
    }
}

/// The caller's `traceparent` and `tracestate`. Those of the request go before those of its transport, which may carry
/// several requests.
fn trace_context<'r>(
    context: &'r RequestContext<RoleServer>,
    transport: &'r TransportContext,
) -> (Option<&'r str>, Option<&'r str>) {
    match context.meta.get_traceparent() {
        Some(parent) => (Some(parent), context.meta.get_tracestate()),
        None => (transport.trace.parent.as_deref(), transport.trace.state.as_deref()),
    }
}

fn outcome<T>(answer: &Result<T, ErrorData>) -> Outcome {
    answer.as_ref().map_or_else(|error| Outcome::Error(error.code.0), |_| Outcome::Answered)
}

/// Refuses a cursor for a list that has one page.
fn only_page(params: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    match params.and_then(|params| params.cursor) {
        Some(_) => Err(ErrorData::invalid_params("the cursor is unknown: this list has one page", None)),
        None => Ok(()),
    }
}

/// Generates the id of a session for records. It gives no access.
fn new_session_id() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_skills()
            // Prompts are not declared: there are none. Clients ask for the list anyway, and get an empty one.
            .enable_completions();
        ServerConfig::new(capabilities.build())
            .with_server_info(Implementation::new("countersign", env!("CARGO_PKG_VERSION")).with_title("countersign"))
            .with_instructions(self.tools.registry().instructions())
    }

    async fn list_tools(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        only_page(params)?;
        let transport = TransportContext::of(&context);
        let registry = self.registry(&transport);
        let answer = async {
            let views = apps::is_supported(context.client_capabilities().as_ref());
            let tools = registry.infos().map(|info| encode_tool(info, self.content, views)).collect();
            Ok(ListToolsResult::with_all_items(tools))
        };
        telemetry::observed(|| self.operation("tools/list", &context, &transport), answer, outcome).await
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let transport = TransportContext::of(&context);
        // Read once, so that the call ends with the tools that it began with.
        let registry = self.registry(&transport);
        let info = registry.info(&params.name);
        let is_read = info.is_some_and(|info| info.hints.read_only);
        let answer = async {
            tokio::select! {
                result = self.answer_call(&context, &transport, &registry, &params) => {
                    self.completed_calls.send_modify(|count| *count += 1);
                    result
                }
                // Dropping the call frees its backend. A write continues to its recorded end.
                () = context.ct.cancelled() => Err(self.interrupted(CANCELLED)),
                () = transport.response.client_gone(), if is_read => Err(self.interrupted(CANCELLED)),
                error = self.end_of_session(), if is_read => Err(error),
            }
        };
        let operation = || Operation {
            tool: info.map(|info| info.name.as_str()),
            database: params.arguments.as_ref().and_then(|own| registry.database_of_call(&params.name, own)),
            ..self.operation("tools/call", &context, &transport)
        };
        telemetry::observed(operation, answer, outcome).await
    }

    async fn list_resources(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = params.and_then(|params| params.cursor);
        self.read_registry(&context, None, async |registry| resources::list(registry, cursor.as_deref()).await).await
    }

    async fn list_resource_templates(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        only_page(params)?;
        Ok(resources::templates(&self.registry(&TransportContext::of(&context))))
    }

    async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if let Some(view) = apps::read(&params.uri) {
            return Ok(view.into());
        }
        let transport = TransportContext::of(&context);
        if let Some(skill) = skills::read(&self.registry(&transport), &params.uri) {
            return Ok(skill.into());
        }
        let client = self.client_info(&context, &transport);
        let principal = Principal { client, ..self.principal.clone() };
        let read = async |registry: &Registry| resources::read(registry, &params.uri, &principal).await;
        let operation =
            || Operation { resource_uri: Some(&params.uri), ..self.operation("resources/read", &context, &transport) };
        telemetry::observed(operation, self.read_registry(&context, Some(&params.uri), read), outcome)
            .await
            .map(Into::into)
    }

    async fn list_skills(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        Ok(skills::list(&self.registry(&TransportContext::of(&context))))
    }

    async fn get_skill(
        &self,
        params: GetSkillRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        skills::get(&self.registry(&TransportContext::of(&context)), &params.uri)
    }

    async fn complete(
        &self,
        params: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.read_registry(&context, None, async |registry| resources::complete(registry, params).await).await
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::default())
    }

    async fn get_prompt(
        &self,
        _: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Err(resources::no_prompts())
    }

    /// Subscribes a session with a handshake to every change, until the session ends.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // A client may send this notification more than once.
        if self.forwards_changes.swap(true, Ordering::Relaxed) {
            return;
        }
        let (mut tools, session, peer) = (self.tools.clone(), self.session.clone(), context.peer);
        tokio::spawn(async move {
            session.run_until_cancelled(ChangeSubscriber::Session(peer).forward_changes(&mut tools)).await;
        });
    }

    /// Protocol 2026-07-28 has no handshake: its clients open a subscription to be notified of changes.
    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().resources_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut tools = self.tools.clone();
        let subscriber = ChangeSubscriber::Subscription(context.sink());
        tokio::select! {
            () = subscriber.forward_changes(&mut tools) => {}
            () = context.cancelled() => {}
            // The end of the session does not wait for subscriptions.
            () = self.session.cancelled() => {}
        }
        Ok(())
    }

    /// rmcp passes requests with unreadable parameters to this handler.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        match PARAM_SHAPES.iter().find(|(method, _)| *method == request.method) {
            Some((method, shape)) => Err(ErrorData::invalid_params(format!("{method} takes {shape}"), None)),
            None => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None)),
        }
    }
}
