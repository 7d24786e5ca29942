//! The baseline schema as plain SQL, on a real PostgreSQL: `migrations/baseline`. One binary, so that its tests share one cluster.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and says where"
)]

mod conflicts;
mod duplicates;
mod effects;
mod forgery;
mod generated;
mod generated_features;
mod generated_migrations;
mod generated_receipts;
mod generated_tables;
mod law;
mod loss;
mod people;
mod protocol;
mod random;
mod read_log;
mod receipts;
mod receipts_clocks;
mod receipts_kept;
mod receipts_migrations;
mod receipts_old_rows;
mod receipts_triggers;
mod retention;
mod server;
mod shapes;
mod single;
mod snapshot;
mod support;
mod trial;
