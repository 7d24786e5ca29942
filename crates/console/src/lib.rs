//! The console: a web page on which people decide on proposals, read the ledger and undo writes. [`serve`] serves a
//! [`Console`]. It has its own process, origin and database logins; no server that agents use has its privileges. This
//! crate must not depend on tools or MCP: it knows writes from the ledger only.
//!
//! ```text
//! request   its route, among all with their state               `router`, `state`; of one database: `database`
//!           Host, same-origin POST, headers of every response   `guard`
//! person    the session cookie                                  `session`
//! sign-in   an OpenID Connect provider, and its people          `oidc`, `return_path`
//! pages     each over a template of `templates/`                `pages`, in a `frame`; an error or notice: `message`
//! parts     rows before and after, reasons against an undo      `rows`, `conflicts`
//!           texts; findings of the server's check               `text`, `health`
//! files     style and script, named by their content            `assets`
//! ```
//! The ledger decides which decisions are valid: a page shows a digest, and its form posts the digest back.

mod assets;
mod conflicts;
mod database;
mod frame;
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

pub use database::{ConsoleDatabase, DatabaseError, DatabaseParts};
pub use health::{HealthCheck, HealthFindings};
pub use oidc::{AccountClaims, CALLBACK_PATH, Oidc, PersonRules};
pub use router::serve;
pub use state::{APPROVE_WITHIN, Console, OriginError, read_origin};
