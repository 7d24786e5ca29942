//! The MCP side of the server, over rmcp: `server` answers requests from a [`tools::Registry`], those about
//! resources with `resources`; `reads` has those of an account take turns; `asking` puts questions to the client's user; `stdio` carries lines, `http` requests of clients on
//! the network, who say with `auth` who they are; `client` is the other side, for the demo and the tests.
//!
//! Nothing else knows MCP, and this crate knows nothing of PostgreSQL: it hands arguments to the registry and an
//! envelope back. A transport is a module that serves the same [`Server`].

mod asking;
pub mod auth;
mod changes;
mod client;
mod http;
mod in_flight;
mod lines;
mod message;
mod packed;
mod reads;
mod resources;
mod server;
mod state_codec;
mod stdio;

pub use self::http::{
    Allowances, Check, HttpOptions, Offer, Site, Tls, TlsError, anonymous, host, origin, proxy, read_tls, resource,
    serve_http,
};
pub use asking::Asking;
pub use auth::{Authenticator, Identity, Refusal};
#[cfg(feature = "client-http")]
pub use client::Era;
pub use client::{Client, ClientError, ToolAnswer};
pub use server::{Content, Server};
pub use state_codec::{StateCodec, StateKey, StateKeyError};
pub use stdio::{ServeError, serve_stdio, standard_pipes};
pub use tools::UserAnswer;
