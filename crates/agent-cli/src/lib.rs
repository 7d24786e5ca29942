//! The agent-first front ends (agent-cli.md): `query`, `pipe` and `psql`. They implement the wire protocol; a
//! [`pg::SqlExecutor`] runs the statements. [`parse`] turns a command line into an [`Invocation`], and [`run`] runs it
//! and returns the exit code. Environment, executor, input, output and the stop signal are arguments; this crate reads
//! no variable and opens no connection. It has no notion of tools, manifests, the ledger or MCP, and makes no decision
//! based on SQL text.
//!
//! ```text
//! command line  `args`, or `psql` with psql's flags                                 -> `invocation`
//! start         `run`, then `one_shot` (`query`, `psql`) or `pipe` (lines of commands)
//! command       `request` parses a line of a pipe; `in_flight` has the requests that have not ended
//! session       `config` has its defaults, `options` those of a query; `connection` finds its database
//! statement     `run_query`, on an `executor`; `transactions` are shared by the queries of a session
//! events        `events` defines them; a failure's: `error_event`, `error`; `log` filters log events, without secrets
//!               (`redaction`)
//! output        `writer` is the one task that writes events, in a format of `output`; `undelivered` lists the results
//!               that it could not write
//! ```
//!
//! To add an option: a field in `options`, which is its key and its flag, and a line in the golden files. To add a
//! command or an event, see the module docs of `request` and `events`.

pub mod args;
pub mod config;
pub mod connection;
pub mod error;
mod error_event;
pub mod events;
pub mod executor;
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

pub use args::{ParseExit, command, error_exit, parse};
pub use invocation::{FrontEnd, Invocation};
pub use run::{Exit, run};
pub use run_query::StopSignals;
