//! The front ends over a scripted executor: whole sessions, command lines, order, pressure, and ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod command_line;
mod fake;
mod flow;
mod golden;
mod harness;
mod line;
mod one_shot;
mod transactions;
