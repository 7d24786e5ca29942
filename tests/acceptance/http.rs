//! MCP over HTTP: the checks before a tool, sessions and their ends, and calls whose client or server stops.

mod accepted_types;
mod asked;
mod crowded;
mod direct;
mod encrypted;
mod ends;
mod fleet;
mod hostile;
mod issuers;
mod limits;
mod load;
mod nginx;
mod outage;
mod raw;
mod refusals;
mod revoked;
mod sessions;
pub(crate) mod sse;
mod standby;
mod starting;
mod step_up;
mod tokens;
mod who;

const HANDSHAKE: &str = "2025-06-18";
