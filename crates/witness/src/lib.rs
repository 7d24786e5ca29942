//! A witness of logs (c2sp.org/tlog-witness): it cosigns a checkpoint only if the checkpoint extends the last one
//! that it has cosigned. [`tlog::judge`] makes the decision; this crate has the persistent state ([`StateFile`]) and
//! the HTTP interface ([`serve`]). It knows no database, and no log but those that its operator names.
//!
//! ```text
//! request   `server`: one checkpoint of a log, with a proof
//! state     `state_file`: the key, and the last checkpoint of each log
//! ```

mod server;
mod state_file;

pub use server::serve;
pub use state_file::{StateFile, StateFileError};
