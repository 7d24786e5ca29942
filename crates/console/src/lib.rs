//! The console: a web page on which people decide on proposals, read the ledger and undo writes. It has its own
//! process, origin and database logins; no server that agents use has its privileges.
//!
//! ```text
//! request   Host, same-origin POST, headers of every response   `guard`
//! person    the session cookie                                  `session`
//! sign-in   an OpenID Connect provider, and its people          `oidc`, `return_path`
//! pages     each over a template of `templates/`                `pages`
//! ```
//! The ledger decides which decisions are valid: a page shows a digest, and its form posts the digest back.

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
