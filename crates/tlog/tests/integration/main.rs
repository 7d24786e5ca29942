//! The formats of the log, against their specifications and against changes of every kind.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and says where"
)]

mod bundle;
mod cross_check;
mod mutations;
mod notes;
mod readers;
mod tree;
