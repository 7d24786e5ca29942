//! The one page for people who open the address in a browser.

/// Says what answers here. It holds nothing that a stranger may not know.
pub(crate) async fn root() -> &'static str {
    "This is countersign, an MCP server for PostgreSQL. It is for MCP clients, not for browsers.\n\
     \n\
     /mcp      streamable HTTP: the address to give to an MCP client\n\
     /sse      HTTP+SSE, for clients of protocol 2024-11-05\n\
     /healthz  whether the server runs\n\
     /readyz   whether it can answer calls\n"
}
