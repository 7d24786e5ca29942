//! A log as a folder: `checkpoint`, `tile/`, `parts/`.

mod files;
mod folder;
mod report;
mod verify;
mod write;

use std::io;
use std::path::{Path, PathBuf};

pub use folder::INCOMPLETE_CHECKPOINT;
pub use report::{Finding, FindingCode, Report};
pub use verify::{verify_bundle, verify_proof};
pub use write::BundleWriter;

pub(crate) const SALT_BYTES: usize = 16;

/// A bundle cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub struct BundleError {
    pub path: PathBuf,
    #[source]
    pub error: io::Error,
}

impl BundleError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { path: path.to_owned(), error }
    }
}
