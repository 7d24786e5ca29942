//! The formats of the log, each by the first byte.

#![no_main]
#![allow(clippy::panic, reason = "what does not hold ends the run")]

#[path = "../../crates/tlog/tests/integration/readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::holds(bytes));
