//! The agent-first front ends (agent-cli.md): `query`, `pipe` and `psql`. They orchestrate the protocol and nothing else: what
//! runs a statement is a [`pg::SqlExecutor`].
//!
//! [`parse`] makes an [`Invocation`] of a command line, and [`run`] takes it to its exit code. Environment, executor, input,
//! output and the signal to stop are given; this crate reads no variable and opens no connection. It knows nothing of tools,
//! manifests, the ledger or MCP, and takes no decision by looking at SQL text.
//!
//! Where things are: `args` and `psql` read command lines; `request` reads lines; `connection` finds out where to connect;
//! `query` runs one statement, for `one_shot` and for `pipe`, which has its requests in `in_flight` and its transactions in
//! `transactions`; `events` is all that is said, `output` its form, `writer` the one task that writes, `undelivered` what it could
//! not write.
//!
//! To add an option: its field in `options`, its key in `request`, its flag in `args`, a line of the golden files. To add a
//! command or an event: the heads of `request` and `events` say how.

pub mod args;
pub mod config;
pub mod connection;
pub mod error;
mod error_event;
pub mod events;
pub mod executor;
mod flags;
mod in_flight;
pub mod invocation;
pub mod log;
mod one_shot;
pub mod options;
pub mod output;
mod pipe;
mod psql;
mod redaction;
pub mod request;
mod run;
mod run_query;
mod transactions;
mod undelivered;
mod writer;

pub use args::{ParseExit, parse, refused_later as refused};
pub use invocation::{FrontEnd, Invocation};
pub use run::{Exit, run};
pub use run_query::StopSignals;
