//! Bytes of a server, read as its answers to statements.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| countersign_pg::fuzzing::read_server_messages(bytes));
