//! HTTP requests to servers that the operator has configured: the keys of an issuer, the witnesses of a log, an identity
//! provider.
//!
//! [`HttpClient`] uses hyper directly, so redirects and proxies are never followed, and [`HttpsUrl`] allows plain HTTP on
//! this machine only.

mod client;
mod url;

pub use client::{HttpClient, HttpResponse};
pub use url::{HttpsUrl, HttpsUrlError};
