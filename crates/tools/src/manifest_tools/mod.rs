//! The tools that manifests declare.

pub(crate) mod executor;
pub(crate) mod read;
pub(crate) mod write;
