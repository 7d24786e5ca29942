//! The tools that a caller has.

/// Whether the caller has the tool of this name.
pub type ServedTools<'a> = &'a (dyn Fn(&str) -> bool + Send + Sync);
