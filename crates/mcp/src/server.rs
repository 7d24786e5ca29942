//! MCP requests to the registry, envelopes to MCP results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult, CustomRequest,
    CustomResult, ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, MetaObject, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
    ToolAnnotations,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tools::{Annotations, CallResult, Caller, ProfileView, Registry, ToolInfo, UserDecision};
use types::{ClientInfo, Envelope, Failure, Meta, Principal, trace_id};

use crate::elicitation::{Elicitation, ElicitationMode};
use crate::list_changed::ChangeSubscriber;
use crate::resources;

use crate::http::{AccountUsage, ReadPermit, RecordSessionId, ResponseScope};
use crate::in_flight::InFlightRequests;
use crate::read_limiter;
use crate::result_encoding;

/// Where the envelope stands in a tool result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResultContent {
    /// As JSON text only.
    Text,
    /// As structured content only.
    Structured,
    /// As both.
    #[default]
    Both,
}

/// Serves the tools of one profile to one principal, in one session.
#[derive(Debug, Clone)]
pub struct McpServer {
    tools: ProfileView,
    principal: Principal,
    /// Names the session in records; `None` where each request says it itself, or there are none.
    session_id: Option<String>,
    content: ResultContent,
    elicitation: Elicitation,
    /// What the account may take; `None` for a client that has the server for itself.
    account: Option<Arc<AccountUsage>>,
    /// The requests that the transport has taken in and not answered yet.
    pub(crate) in_flight: InFlightRequests,
    /// How many calls have ended.
    completed_calls: watch::Sender<u64>,
    /// Cancels `session` when the last clone is gone.
    _ended: Arc<DropGuard>,
    /// Cancelled at the end of the session.
    pub(crate) session: CancellationToken,
    /// Cancelled when the server stops, which is the end of the session as well.
    stop: CancellationToken,
    /// Whether the session is told of changes already.
    forwards_changes: Arc<AtomicBool>,
    /// How long reads go on after that while none of them ends.
    grace: Duration,
}

/// A client that has closed its end: a script that pipes its questions in and reads on gets the quick answers, and no backend
/// works for long for nobody.
const CLOSE_GRACE: Duration = Duration::from_millis(50);

/// A server that stops while its clients are there: a proxy in front sends the next requests elsewhere, and notices nothing of
/// those that end soon.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// JSON-RPC leaves -32000 to -32099 to servers.
const STOPPED: ErrorCode = ErrorCode(-32000);
const BUSY: ErrorCode = STOPPED;

const CANCELLED: &str = "the call was cancelled";

/// The parameters of the requests that need some.
const PARAM_SHAPES: [(&str, &str); 4] = [
    ("tools/call", "{\"name\": string, \"arguments\": object}"),
    ("resources/read", "{\"uri\": string}"),
    ("prompts/get", "{\"name\": string}"),
    (
        "completion/complete",
        "{\"ref\": {\"type\": \"ref/resource\", \"uri\": string}, \"argument\": {\"name\": string, \"value\": string}}",
    ),
];

impl McpServer {
    /// A server for this principal.
    #[must_use]
    pub fn new(tools: ProfileView, principal: Principal, content: ResultContent, elicitation: Elicitation) -> Self {
        let session = CancellationToken::new();
        let completed_calls = watch::Sender::new(0);
        Self {
            tools,
            principal,
            session_id: Some(new_session_id()),
            content,
            elicitation,
            account: None,
            in_flight: InFlightRequests::default(),
            completed_calls,
            _ended: Arc::new(session.clone().drop_guard()),
            session,
            stop: CancellationToken::new(),
            forwards_changes: Arc::default(),
            grace: CLOSE_GRACE,
        }
    }

    /// The same for a session that also ends when the server stops.
    #[must_use]
    pub(crate) fn stopping_with(mut self, stop: &CancellationToken) -> Self {
        self.session = stop.child_token();
        self._ended = Arc::new(self.session.clone().drop_guard());
        self.stop = stop.clone();
        self
    }

    /// The same for a client of this account that shares the server with others, and stays when it stops.
    #[must_use]
    pub(crate) fn for_account(mut self, account: Arc<AccountUsage>) -> Self {
        self.account = Some(account);
        self.session_id = None;
        self.grace = STOP_GRACE;
        self
    }

    /// The same for all requests of one session.
    #[must_use]
    pub(crate) fn with_session_id(mut self) -> Self {
        self.session_id = Some(new_session_id());
        self
    }

    /// Where a call came from: what the request says goes before what the session said.
    fn client(&self, context: &RequestContext<RoleServer>) -> ClientInfo {
        let client = context.client_info().map(|client| ClientInfo::new(&client.name, &client.version));
        let session_id = RecordSessionId::of(context).or_else(|| self.session_id.clone());
        let trace_id = context.meta.get_traceparent().and_then(trace_id).map(str::to_owned);
        ClientInfo { session_id, trace_id, ..client.unwrap_or_default() }
    }

    async fn call(
        &self,
        context: &RequestContext<RoleServer>,
        params: CallToolRequestParams,
    ) -> Result<CallToolResponse, ErrorData> {
        // Taken once: the call ends with the tools that it began with.
        let registry = self.tools.registry();
        let mode = Elicitation::mode(context);
        let decision = self.elicitation.decision(&params, &self.principal)?;
        let principal = Principal { client: self.client(context), ..self.principal.clone() };
        let (mut reply, mut permit) = self.reply(&registry, &params, &principal, mode, decision).await?;
        if let Some(question) = reply.question.take() {
            match mode {
                ElicitationMode::InputRequired => {
                    return self.elicitation.input_required(&question, &self.principal, &params.name).map(Into::into);
                }
                ElicitationMode::Inline => {
                    let asked = self.elicitation.elicit(&question, context);
                    // At the end of the session nobody answers any more.
                    let decision = self.session.run_until_cancelled(asked).await.flatten();
                    if decision.is_some() {
                        (reply, permit) = self.reply(&registry, &params, &principal, mode, decision).await?;
                    }
                }
                ElicitationMode::Unsupported => {}
            }
        }
        let mut result = self.encode(&reply.envelope)?;
        match ResponseScope::of(context) {
            Some(scope) => {
                // rmcp writes it.
                result_encoding::expand(&mut result);
                if reply.room.is_some() {
                    // Other reads wait for the room as they do for a session.
                    scope.keep_alive(permit);
                }
                scope.keep_alive_room(reply.room);
            }
            None => self.in_flight.attach_room(&context.id, reply.room),
        }
        Ok(result.into())
    }

    async fn reply(
        &self,
        registry: &Arc<Registry>,
        params: &CallToolRequestParams,
        principal: &Principal,
        mode: ElicitationMode,
        decision: Option<UserDecision>,
    ) -> Result<(CallResult, Option<ReadPermit>), ErrorData> {
        let name = &params.name;
        let Some(info) = registry.info(name) else {
            let known: Vec<&str> = registry.infos().map(|info| info.name.as_str()).collect();
            let message = format!("Unknown tool: {name}. This server has: {}", known.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        };
        let began = Instant::now();
        let refused = |failure| {
            let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let envelope = Envelope::Failure { error: failure, meta: Meta::new(info.version.clone(), elapsed_ms) };
            Ok((CallResult { envelope, room: None, question: None }, None))
        };
        let account = self.account.as_deref().filter(|_| info.hints.read_only);
        let permit = match read_limiter::acquire(account).await {
            Ok(permit) => permit,
            Err(failure) => return refused(failure),
        };
        let arguments = params.arguments.clone().unwrap_or_default();
        let caller =
            Caller { principal: principal.clone(), asks_user: mode != ElicitationMode::Unsupported, said: decision };
        let calling = registry.call(name, arguments, caller);
        match read_limiter::within_deadline(permit.as_ref(), calling).await {
            Some(reply) => reply.map(|reply| (reply, permit)).ok_or_else(|| ErrorData::internal_error("no tool", None)),
            None => refused(read_limiter::timed_out()),
        }
    }

    /// Ends when the client has closed its end, or the server stops, and no call has ended for a while: what those are told that
    /// are cut off.
    async fn client_closed(&self) -> ErrorData {
        let mut completed_calls = self.completed_calls.subscribe();
        self.session.cancelled().await;
        while tokio::time::timeout(self.grace, completed_calls.changed()).await.is_ok_and(|sent| sent.is_ok()) {}
        self.cancelled_error("the call was cancelled: the client closed its end")
    }

    /// What a call is told that ends without its own answer: this, unless it is the server that ends. rmcp takes that for a cancel
    /// on standard input and output.
    fn cancelled_error(&self, otherwise: &'static str) -> ErrorData {
        if self.stop.is_cancelled() {
            let message = "the server is stopping, and this call was cut off before its answer: send the same call again \
                (a write that was under way is not made twice)";
            return ErrorData::new(STOPPED, message, None);
        }
        ErrorData::invalid_request(otherwise, None)
    }

    /// Asks the registry, unless the client takes the request back or goes away: dropping it frees its backend.
    async fn ask_registry<T>(
        &self,
        context: &RequestContext<RoleServer>,
        question: impl AsyncFnOnce(&Registry) -> Result<T, ErrorData>,
    ) -> Result<T, ErrorData> {
        let registry = self.tools.registry();
        let answered = async {
            let refused = |failure: Failure| ErrorData::new(BUSY, failure.message, None);
            let permit = read_limiter::acquire(self.account.as_deref()).await.map_err(refused)?;
            let answer = read_limiter::within_deadline(permit.as_ref(), question(&registry)).await;
            answer.unwrap_or_else(|| Err(refused(read_limiter::timed_out())))
        };
        tokio::select! {
            answer = answered => answer,
            () = context.ct.cancelled() => Err(self.cancelled_error(CANCELLED)),
            () = client_gone(ResponseScope::of(context)) => Err(self.cancelled_error(CANCELLED)),
            ended = self.client_closed() => Err(ended),
        }
    }

    fn encode(&self, envelope: &Envelope) -> Result<CallToolResult, ErrorData> {
        let text =
            serde_json::to_string(envelope).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(result_encoding::encode_result(text, envelope.is_success(), self.content))
    }
}

/// Names a session in records, and opens none.
pub(crate) fn new_session_id() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// Ends when whoever waits for this answer has gone. Clients of a pipe say so.
async fn client_gone(scope: Option<&ResponseScope>) {
    match scope {
        Some(scope) => scope.client_gone().await,
        None => std::future::pending().await,
    }
}

/// A client refuses an answer without structured content where there is an output schema.
fn describe_tool(info: &ToolInfo, content: ResultContent) -> Tool {
    let mut tool = Tool::new(info.name.clone(), info.full_description(), Arc::new(info.input_schema.clone()));
    tool.title.clone_from(&info.title);
    tool.output_schema = (content != ResultContent::Text).then(|| Arc::new(info.output_schema.clone()));
    let annotations = ToolAnnotations::new().read_only(info.hints.read_only).open_world(false);
    // The others mean nothing of a tool that changes nothing.
    tool.annotations = Some(match info.hints {
        Annotations { read_only: true, .. } => annotations,
        Annotations { destructive, idempotent, .. } => annotations.destructive(destructive).idempotent(idempotent),
    });
    tool.meta = Some(info.full_meta()).filter(|meta| !meta.is_empty()).map(MetaObject);
    tool
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_completions()
            // There are none. Clients ask all the same, and whatever is answered has to be declared.
            .enable_prompts();
        ServerConfig::new(capabilities.build())
            .with_server_info(Implementation::new("countersign", env!("CARGO_PKG_VERSION")).with_title("countersign"))
            .with_instructions(self.tools.registry().instructions())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let registry = self.tools.registry();
        Ok(ListToolsResult::with_all_items(registry.infos().map(|info| describe_tool(info, self.content)).collect()))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let scope = ResponseScope::of(&context).cloned();
        let only_reads = self.tools.registry().info(&params.name).is_some_and(|info| info.hints.read_only);
        tokio::select! {
            result = self.call(&context, params) => {
                self.completed_calls.send_modify(|count| *count += 1);
                result
            }
            // Dropping the call frees its backend; a write goes on to its recorded end.
            () = context.ct.cancelled() => Err(self.cancelled_error(CANCELLED)),
            () = client_gone(scope.as_ref()), if only_reads => Err(self.cancelled_error(CANCELLED)),
            ended = self.client_closed(), if only_reads => Err(ended),
        }
    }

    async fn list_resources(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = params.and_then(|params| params.cursor);
        self.ask_registry(&context, async |registry| resources::list(registry, cursor.as_deref()).await).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates(&self.tools.registry()))
    }

    async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.ask_registry(&context, async |registry| resources::read(registry, &params.uri).await).await.map(Into::into)
    }

    async fn complete(
        &self,
        params: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.ask_registry(&context, async |registry| resources::complete(registry, params).await).await
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

    /// A session with a handshake is told of every change until it ends.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // A client may say that it is ready as often as it likes.
        if self.forwards_changes.swap(true, Ordering::Relaxed) {
            return;
        }
        let (mut tools, ended, peer) = (self.tools.clone(), self.session.clone(), context.peer);
        tokio::spawn(async move {
            ended.run_until_cancelled(ChangeSubscriber::Session(peer).forward_changes(&mut tools)).await;
        });
    }

    /// Protocol 2026-07-28 has no handshake: whoever wants to be told of changes opens a subscription.
    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().resources_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut tools = self.tools.clone();
        let subscriber = ChangeSubscriber::Subscription(context.sink());
        tokio::select! {
            () = subscriber.forward_changes(&mut tools) => {}
            () = context.cancelled() => {}
            // Nothing waits for a subscription at the end.
            () = self.session.cancelled() => {}
        }
        Ok(())
    }

    /// rmcp hands requests whose parameters it cannot read to this function.
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
