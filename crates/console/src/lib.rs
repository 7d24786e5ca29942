//! The console: a web page for people who decide on proposals. A process, an origin and a database login of its own; no
//! server that agents talk to has its rights.
//!
//! ```text
//! request   Host, same-origin POST, headers of every response   `guard`
//! person    the session cookie                                  `session`
//! pages     login, inbox, a proposal and the decision on it     `pages`, over `templates/`
//! ```
//! What counts as a decision is the ledger's: the pages show a digest and post it back.

mod assets;
mod guard;
mod message;
mod pages;
mod router;
mod rows;
mod session;
mod state;
mod text;

pub use router::serve;
pub use state::{Console, OriginError};
