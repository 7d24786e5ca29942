//! The pages, each over a template.

pub(crate) mod inbox;
pub(crate) mod login;
pub(crate) mod proposal;
