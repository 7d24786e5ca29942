//! The agent-first front ends (docs/topics/agent-cli.md): `query`, `pipe` and `psql` of the built binary, on
//! PostgreSQL. What needs no PostgreSQL is tested in the crate `agent-cli`, against a fake executor.

mod audited;
mod connecting;
mod ending;
mod one_shot;
mod pipe;
mod reading;
mod silent;
mod streaming;
mod transactions;
mod undelivered;
mod values;
mod writing;
