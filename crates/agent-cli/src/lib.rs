//! The agent-first front ends (agent-cli.md): `query`, `pipe` and `psql`. They orchestrate the protocol and nothing else: what
//! runs a statement is a [`pg::DbExecutor`].

pub mod args;
pub mod config;
pub mod connection;
pub mod events;
pub mod executor;
mod failure;
mod in_flight;
pub mod invocation;
mod lines;
pub mod log;
mod one_shot;
pub mod options;
pub mod output;
mod pipe;
pub mod problem;
mod psql;
mod query;
mod redaction;
pub mod request;
mod run;
mod transactions;
mod writer;

pub use args::{ParseExit, parse, refused_later as refused};
pub use invocation::{FrontEnd, Invocation};
pub use run::run;
