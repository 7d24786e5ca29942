//! The MCP adapter, over rmcp.
//!
//! [`McpServer`] answers requests from a [`tools::Registry`]; `resources` answers requests about resources, and
//! [`Elicitation`] asks users. [`serve_stdio`] serves standard input and output. The crate `mcp-http` serves the same
//! [`McpServer`] over HTTP, and attaches a [`TransportContext`] to each request. [`Client`] is an MCP client for the
//! demo and the tests.
//!
//! This crate knows neither an HTTP server nor PostgreSQL. To add a transport, serve an [`McpServer`] over it, and
//! call [`expand_message`] just before a message is written.

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
pub use transport_context::{ResponseScope, TransportContext};
