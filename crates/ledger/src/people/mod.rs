//! Decisions of people: proposals, schema changes and freezes, the console, and notices.

pub mod console;
pub(crate) mod freezes;
pub(crate) mod notices;
pub mod proposals;
pub mod schema_changes;
