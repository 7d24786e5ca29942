//! The console: a web page for people who decide on proposals, read the ledger and undo writes. A process, an origin and
//! database logins of its own; no server that agents talk to has its rights.
//!
//! ```text
//! request   Host, same-origin POST, headers of every response   `guard`
//! person    the session cookie                                  `session`
//! sign-in   an OpenID Connect provider, and its people          `oidc`, `return_path`
//! pages     each over a template of `templates/`                `pages`
//! ```
//! What counts as a decision is the ledger's: the pages show a digest and post it back.

mod assets;
mod conflicts;
mod guard;
mod health;
mod message;
mod oidc;
mod pages;
mod return_path;
mod router;
mod rows;
mod session;
mod state;
mod text;

pub use health::{HealthCheck, HealthFindings};
pub use oidc::{AccountClaims, CALLBACK_PATH, Oidc, PersonRules};
pub use router::serve;
pub use state::{APPROVE_WITHIN, Console, ConsoleParts, OriginError, read_origin};
