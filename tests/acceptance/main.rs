//! Black-box tests of the built binary. Each file tells what it proves; a test's name is the sentence.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and says where"
)]

mod apps;
mod architecture;
mod audit_order;
mod audit_prune;
mod audit_read;
mod audit_verify;
mod bounds;
mod cancel;
mod chaos;
mod check;
mod clients;
mod configuration;
mod connection_strings;
mod connections;
mod console;
mod console_oidc;
mod console_pages;
mod copied;
mod corrections;
mod deadlines;
mod demo;
mod deploy;
mod describe_database;
mod doctor;
mod drift;
mod duplicates;
mod durability;
mod effects;
mod elicitation;
mod envelopes;
mod execute_sql;
mod executors;
mod explain_query;
mod freezes;
mod front_ends;
mod hardening;
mod hostile_arguments;
mod http;
mod images;
mod layers;
mod ledger_records;
mod lost_commit;
mod manifest_read;
mod manifest_rules;
mod manifest_server;
mod masking;
mod metrics;
mod module_cycles;
mod notes;
mod notify;
mod pages;
mod partitioned;
mod pgbouncer;
mod policies;
mod preview;
mod profiles;
mod proposals;
mod proposals_cli;
mod protocol;
mod query_database;
mod read_log;
mod recovery;
mod reload;
mod resources;
mod roles;
mod samples;
mod scaffold;
mod sensitive;
mod shop;
mod skips;
mod standby;
mod startup;
mod studio;
mod tls;
mod tokens;
mod tool_list;
mod tracking;
mod transparency;
mod undo;
mod undo_cli;
mod undo_many;
mod undo_matrix;
mod unwritable_ledger;
mod values;
mod values_edges;
mod values_property;
mod writes;
