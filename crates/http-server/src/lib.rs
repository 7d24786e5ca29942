//! Serves HTTP/1.1 to clients that may be slow or hostile. All servers of countersign have the same limits.
//! This crate depends on no other of the workspace and knows no MCP.
//!
//! ```text
//! connection  accepted and served, in total and per address,                          `server`, `connections`
//!             behind trusted proxies as well                                          `trusted_proxies`
//!             TLS, time for the first request and for each head, size of a head       `tls`, `connection`
//!             slow readers                                                            `min_throughput`
//! body        size and time; read before the handler of a server with small requests  `body`, `limit_requests`
//! attempts    what a client may try, such as signing in                               `attempt_limits`
//! ```
//!
//! [`serve`] is the entry point. Each request has its [`HttpConnection`] as an extension. A server reports to it
//! which requests it answers, and which of them are authenticated. [`limit_requests`] does this for servers with
//! small request bodies.

mod attempt_limits;
mod body;
mod connection;
mod connections;
mod limit_requests;
mod min_throughput;
mod server;
mod tls;
mod trusted_proxies;

pub use attempt_limits::{AttemptLimitError, AttemptLimits};
pub use body::{BodyError, read_body};
pub use connections::{ConnectionLimitError, ConnectionLimits, HttpConnection};
pub use limit_requests::limit_requests;
pub use server::{HttpServer, serve};
pub use tls::{ReloadableTls, TlsError, read_tls};
pub use trusted_proxies::{ClientNetwork, PROXY_HEADERS, TrustedProxies, parse_proxy};
