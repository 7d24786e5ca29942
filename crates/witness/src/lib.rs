//! A witness of logs (c2sp.org/tlog-witness): it cosigns a checkpoint only if that goes on from the last one that it has
//! cosigned. The decision is [`tlog::judge`]; here are its memory ([`StateFile`]) and its HTTP interface ([`serve`]).

mod server;
mod state_file;

pub use server::serve;
pub use state_file::{StateFile, StateFileError};
