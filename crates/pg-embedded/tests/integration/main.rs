//! The crate against real PostgreSQL: starts, ends, leftovers, and which programs are used.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod leftovers;
mod lifetime;
mod programs;
mod support;

#[test]
#[ignore = "not a test: other tests run it as a process of its own"]
fn another_process() {
    support::be_another_process();
}
