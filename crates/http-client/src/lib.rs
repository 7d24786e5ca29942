//! HTTP requests to servers that the operator has configured: the keys of an issuer, the witnesses of a log, an
//! identity provider, a collector. [`HttpClient`] uses hyper directly, so redirects and proxies are never followed, and
//! [`HttpsUrl`] allows plain HTTP on this machine only. This crate depends on no other of the workspace.
//!
//! ```text
//! url       the address, checked when the configuration is read
//! client    one request, on a connection of its own
//! ```

mod client;
mod url;

pub use client::{HttpClient, HttpResponse};
pub use url::{HttpUrl, HttpsUrl, HttpsUrlError};
