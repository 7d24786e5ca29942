//! MCP requests to the registry, envelopes to MCP results.

use std::sync::Arc;

use contract::{Envelope, Principal};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest, CustomResult, ErrorData,
    Implementation, ListToolsResult, MetaObject, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;
use tools::{Registry, ToolInfo};

/// Where the envelope stands in a tool result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Content {
    /// As JSON text only.
    Text,
    /// As structured content only.
    Structured,
    /// As both.
    #[default]
    Both,
}

/// Serves one registry to one principal.
#[derive(Debug, Clone)]
pub struct Server {
    registry: Arc<Registry>,
    principal: Principal,
    content: Content,
    tools: Arc<Vec<Tool>>,
}

const INSTRUCTIONS: &str = "A PostgreSQL database. See what is in it with describe_database, read with query_database, \
    look at a plan with explain_query. Write only with the write tools: each write is recorded, happens once however \
    often it is repeated, and its answer says in meta.rollback how to undo it. preview_mutation shows what a write would do. Keep meta.correlation_id: \
    get_mutation_detail finds the write by it. When a write's answer was lost, repeat the very same call.";

impl Server {
    /// A server for this principal.
    #[must_use]
    pub fn new(registry: Arc<Registry>, principal: Principal, content: Content) -> Self {
        let tools = Arc::new(registry.infos().map(tool).collect());
        Self { registry, principal, content, tools }
    }

    async fn call(&self, params: CallToolRequestParams) -> Result<CallToolResult, ErrorData> {
        let arguments = params.arguments.unwrap_or_default();
        let envelope = self.registry.call(&params.name, arguments, self.principal.clone()).await.ok_or_else(|| {
            let known: Vec<&str> = self.registry.infos().map(|info| info.name.as_str()).collect();
            let message = format!("Unknown tool: {}. This server has: {}", params.name, known.join(", "));
            ErrorData::invalid_params(message, None)
        })?;
        self.result(&envelope)
    }

    fn result(&self, envelope: &Envelope) -> Result<CallToolResult, ErrorData> {
        let unserializable = |error: serde_json::Error| ErrorData::internal_error(error.to_string(), None);
        let text = match self.content {
            Content::Structured => Vec::new(),
            Content::Text | Content::Both => {
                vec![ContentBlock::text(serde_json::to_string(envelope).map_err(unserializable)?)]
            }
        };
        let mut result =
            if envelope.is_success() { CallToolResult::success(text) } else { CallToolResult::error(text) };
        if self.content != Content::Text {
            result.structured_content = Some(serde_json::to_value(envelope).map_err(unserializable)?);
        }
        Ok(result)
    }
}

fn tool(info: &ToolInfo) -> Tool {
    let mut tool = Tool::new(info.name.clone(), info.description.clone(), Arc::new(info.input_schema.clone()));
    tool.title.clone_from(&info.title);
    tool.output_schema = Some(Arc::new(info.output_schema.clone()));
    tool.annotations = Some(
        ToolAnnotations::new()
            .read_only(info.hints.read_only)
            .destructive(info.hints.destructive)
            .idempotent(info.hints.idempotent)
            .open_world(false),
    );
    tool.meta = (!info.meta.is_empty()).then(|| MetaObject(info.meta.clone()));
    tool
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("countersign", env!("CARGO_PKG_VERSION")).with_title("countersign"))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.as_ref().clone()))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        tokio::select! {
            result = self.call(params) => result.map(CallToolResponse::from),
            // Dropping the call frees its backend; a write goes on to its recorded end.
            () = context.ct.cancelled() => Err(ErrorData::invalid_request("the call was cancelled", None)),
        }
    }

    /// rmcp hands a `tools/call` whose parameters it cannot read to this function.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method == "tools/call" {
            let message = "tools/call takes {\"name\": string, \"arguments\": object}";
            return Err(ErrorData::invalid_params(message, request.params.filter(Value::is_null)));
        }
        Err(ErrorData::new(rmcp::model::ErrorCode::METHOD_NOT_FOUND, request.method, None))
    }
}
