//! A witness of logs (c2sp.org/tlog-witness): it cosigns a checkpoint only if the checkpoint extends the last one
//! that it has cosigned. [`tlog::judge`] makes the decision; this crate has the persistent state ([`StateFile`]) and
//! the HTTP interface ([`serve`]).

mod server;
mod state_file;

pub use server::serve;
pub use state_file::{StateFile, StateFileError};
