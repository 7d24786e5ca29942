//! MCP over HTTP: the axum application around the adapter of the crate `mcp`. [`serve_http`] is the entry point and
//! [`AppState`] the shared state. This crate must not depend on the ledger or on PostgreSQL.
//!
//! Each request passes these checks before a tool runs:
//!
//! ```text
//! connection     TLS, timeouts, limits in total and per address         crate `http-server`; `listener` drains it
//! address        Host, Origin, Sec-Fetch-Site                           `router` (every route), `client_address`,
//!                                                                       `host_check`
//! identity       bearer token or JWT                                    `state`, crates `auth`, `http-server`
//! quota          rate, memory, streams, sessions, reads of the account  `quota`
//! message        content type, size, time, one strict parser            `body`
//! scope          the scope for the called tool                          `scope_check`
//! transport      /mcp       `streamable`, over rmcp (`active_backend`) or `direct_call`; `sessions`, `session_ids`;
//!                           `accepted_types` of responses
//!                /sse, /message                                         `sse`, `sse_sessions`
//!                event streams end with their credential                `streams`
//!                other routes: health, metrics, OAuth metadata          `health`, `readiness`
//! rejection      an answer, and a line in the log                       `error_response`, `rejection_log`
//! ```
//!
//! rmcp does not pass the caller's identity to its session manager, so the identity travels in a task-local
//! (`request_context`). Memory and permits of a request are released when its response has been written or its client
//! has gone (`response_body`).

mod accepted_types;
mod active_backend;
mod body;
mod client_address;
mod direct_call;
mod error_response;
mod health;
mod host_check;
mod listener;
mod quota;
mod readiness;
mod rejection_log;
mod request_context;
mod response_body;
mod router;
mod scope_check;
mod session_ids;
mod sessions;
mod sse;
mod sse_sessions;
mod state;
mod streamable;
mod streams;

pub use host_check::{parse_host, parse_origin};
pub use listener::serve_http;
pub use quota::AccountQuotas;
pub use request_context::Backend;
pub use state::{AppState, HttpOptions, anonymous_identity, resource_uri};
