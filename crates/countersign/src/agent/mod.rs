//! `countersign query`, `pipe` and `psql`: the front ends are the crate `agent-cli`; here is what they run statements with.

mod audited;
mod executor;
