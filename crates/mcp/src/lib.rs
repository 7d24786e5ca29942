//! The MCP side of the server, over rmcp: `server` answers requests from a [`tools::Registry`], those about
//! resources with `resources`; `reads` has those of an account take turns; `asking` puts questions to the client's user; `stdio` carries lines, `http` requests of clients on
//! the network, who say with `auth` who they are; `client` is the other side, for the demo and the tests.
//!
//! Nothing else knows MCP, and this crate knows nothing of PostgreSQL: it hands arguments to the registry and an
//! envelope back. A transport is a module that serves the same [`McpServer`].

pub mod auth;
mod client;
mod elicitation;
mod http;
mod in_flight;
mod line_transport;
mod list_changed;
mod message;
mod read_limiter;
mod resources;
mod result_encoding;
mod server;
mod state_codec;
mod stdio;

pub use self::http::{
    AccountQuotas, AppState, Backend, HttpOptions, ReadinessCheck, ReloadableTls, TlsError, anonymous_identity,
    parse_host, parse_origin, parse_proxy, read_tls, resource_uri, serve_http,
};
pub use auth::{AuthError, Authenticator, Identity};
#[cfg(feature = "client-http")]
pub use client::ProtocolGeneration;
pub use client::{Client, ClientError, ToolCallResult};
pub use elicitation::Elicitation;
pub use server::{McpServer, ResultContent};
pub use state_codec::{StateCodec, StateKey, StateKeyError};
pub use stdio::{ServeError, serve_stdio, standard_pipes};
pub use tools::UserAnswer;
