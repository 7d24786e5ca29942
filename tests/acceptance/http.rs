//! MCP over HTTP: what stands before a tool, sessions and their ends, and what becomes of calls when something goes away.

mod asked;
mod encrypted;
mod ends;
mod fleet;
mod hostile;
mod limits;
mod load;
mod outage;
mod sessions;
mod sse;
mod standby;
mod tokens;
mod who;

const HANDSHAKE: &str = "2025-06-18";
