//! Lines for `countersign pipe`, one after the other.

#![no_main]
#![allow(clippy::panic, clippy::unwrap_used, reason = "what does not hold ends the run")]

#[path = "../../crates/agent-cli/tests/front_ends/line.rs"]
mod line;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| line::holds(bytes));
