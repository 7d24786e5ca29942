//! The agent-first front ends (agent-cli.md): `query`, `pipe` and `psql`. They implement the wire protocol; a
//! [`pg::SqlExecutor`] runs the statements.
//!
//! [`parse`] makes an [`Invocation`] of a command line, and [`run`] runs it to its exit code. Environment, executor,
//! input, output and the stop signal are arguments; this crate reads no variable and opens no connection. It has no
//! notion of tools, manifests, the ledger or MCP, and takes no decision by looking at SQL text.
//!
//! `args` and `psql` parse command lines, `request` parses lines, `connection` finds the database. `run_query` runs
//! one statement, for `one_shot` and for `pipe`, which has its requests in `in_flight` and its transactions in
//! `transactions`. `events` has all events, `output` their form, `writer` the one task that writes them, `undelivered`
//! those that it could not write.
//!
//! To add an option: its field in `options`, its key in `request`, its flag in `args`, a line of the golden files. To
//! add a command or an event: see the head docs of `request` and `events`.

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

pub use args::{ParseExit, command, parse, refused_later as refused};
pub use invocation::{FrontEnd, Invocation};
pub use run::{Exit, run};
pub use run_query::StopSignals;
