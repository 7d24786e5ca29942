//! MCP over HTTP: what stands before a tool, sessions and their ends, and what becomes of calls when something goes away.

mod asked;
mod crowded;
mod encrypted;
mod ends;
mod fleet;
mod hostile;
mod limits;
mod load;
mod outage;
mod raw;
mod refusals;
mod revoked;
mod sessions;
mod sse;
mod standby;
mod starting;
mod tokens;
mod who;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::HttpServer;

const HANDSHAKE: &str = "2025-06-18";

fn signal(server: &HttpServer, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(server.pid()).unwrap()), signal).unwrap();
}
