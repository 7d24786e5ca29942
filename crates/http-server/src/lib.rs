//! Serving HTTP/1.1 to clients that may be slow or hostile.
//!
//! [`serve_router`] serves an axum router; [`accept`] and [`serve_connection`] are its parts, for servers that count
//! their connections themselves.

mod connection;
mod min_throughput;
mod router;
mod tls;

pub use connection::{accept, serve_connection};
pub use router::serve_router;
pub use tls::{ReloadableTls, TlsError, read_tls};
