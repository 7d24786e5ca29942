//! Everybody who must be let in, and everybody who must not, with real keys and a real server for the issuer's.

mod jwts;
mod lookups;
mod recognized;
mod support;
mod tls;
mod tokens;
