//! Credentials that must be accepted or rejected, with real keys and a real HTTP server for the issuer's keys.

mod discovery;
mod issuers;
mod jwts;
mod lookups;
mod recognized;
mod support;
mod tokens;
