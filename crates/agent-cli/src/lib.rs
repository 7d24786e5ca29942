//! The agent-first front ends (agent-cli.md): `query`, `pipe` and `psql`. They orchestrate the protocol and nothing else: what
//! runs a statement is a [`pg::DbExecutor`].

pub mod executor;
