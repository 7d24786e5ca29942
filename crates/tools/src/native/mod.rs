//! Executors in Rust, for what a manifest's statements cannot do: a manifest names one with `executor = ".."`.
//!
//! To add one: a file here with a type that implements [`ledger::WriteExecutor`], and one line in [`executors`]. It
//! gets the gate's transaction and nothing else; what `before` and `after` of the manifest capture, and how the write
//! is undone, the manifest says. It checks itself whatever it relies on: its parameters may come from a proposal that
//! was stored long ago, and its account is that of the principal, whatever the parameters say.

mod delete_package_photo;

use std::sync::Arc;

use ledger::{DuplicateExecutor, ExecutorRegistry};

/// All executors that manifests of this server can name.
///
/// # Errors
/// [`DuplicateExecutor`] if two executors have the same name.
pub fn executors() -> Result<ExecutorRegistry, DuplicateExecutor> {
    let mut executors = ExecutorRegistry::default();
    executors.register(delete_package_photo::NAME, Arc::new(delete_package_photo::DeletePackagePhoto))?;
    Ok(executors)
}
