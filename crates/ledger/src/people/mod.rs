//! What people decide: proposals, freezes, the console, notices.

pub mod console;
pub(crate) mod freezes;
pub(crate) mod notices;
pub mod proposals;
