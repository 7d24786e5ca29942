//! The MCP adapter, over rmcp. [`McpServer`] answers requests from a [`tools::Registry`], and [`Elicitation`] asks
//! users. [`serve_stdio`] serves standard input and output. The crate `mcp-http` serves the same [`McpServer`] over
//! HTTP, and attaches a [`TransportContext`] to each request. [`Client`] is an MCP client for the demo and the tests.
//! This crate knows neither an HTTP server nor PostgreSQL.
//!
//! ```text
//! transport  `stdio`, over `line_transport`; `message` parses JSON-RPC for every transport
//! request    `transport_context` is what the transport knows of it
//! server     `server` has the methods, `resources` and `skills` those of theirs; `read_limiter` limits an account's reads
//! question   `elicitation` asks the client's user; `state_codec` seals the state that the client carries meanwhile
//! answer     `result_encoding` makes rmcp's types, `message_writer` writes them; `apps`: a view, as HTML
//! changes    `list_changed` tells clients that tools or resources changed
//! client     `client`
//! ```
//!
//! To add a transport, serve an [`McpServer`] over it, and call [`expand_message`] just before a message is written.

mod apps;
mod client;
mod elicitation;
mod line_transport;
mod list_changed;
pub mod message;
mod message_writer;
mod read_limiter;
mod resources;
mod result_encoding;
mod server;
mod skills;
mod state_codec;
mod stdio;
mod transport_context;

#[cfg(feature = "client-http")]
pub use client::ProtocolGeneration;
pub use client::{Client, ClientError, ToolCallResult};
pub use elicitation::Elicitation;
pub use read_limiter::ReadLimiter;
pub use result_encoding::{ResultContent, expand_message};
pub use server::McpServer;
pub use state_codec::{StateCodec, StateKey, StateKeyError};
pub use stdio::{ServeError, serve_stdio, standard_pipes};
pub use tools::UserAnswer;
pub use transport_context::{ResponseScope, TraceContext, TransportContext};
