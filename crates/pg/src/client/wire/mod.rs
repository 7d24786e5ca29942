//! The frontend side of PostgreSQL's protocol, version 3 (PostgreSQL manual, "Frontend/Backend Protocol"), over the
//! messages of the `postgres-protocol` crate.
//!
//! tokio-postgres, the client of tests, does not replace this module. It requests every result in binary
//! form: types without a binary send function (`aclitem`, types of many extensions) cannot be read that way, and the
//! binary form of `regclass`, `money` or `record` lacks what only the server knows. It also holds a whole row in
//! memory, however large, and puts a Sync after every statement, so that a pipeline cannot stop at its first error.
//! See docs/adr/0001-own-postgresql-client.md.

mod authentication;
mod channel_binding;
mod connection;
mod socket;
mod startup;
mod tls;
mod transport;

pub use authentication::scram_verifier;
pub use connection::OtherEngine;
pub use connection::rows::FieldDescription;
pub(crate) use connection::rows::{owned_row, row_texts};
pub(crate) use connection::{
    CancelKey, Connection, Event, EventConsumer, Failure, MAX_MESSAGE_BYTES, Purpose, StatementId, TransactionStatus,
    other_encoding,
};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use socket::{Endpoint, Socket};
pub(crate) use startup::{cancel, connect};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use transport::Transport;
