//! Executors in Rust, for writes that SQL statements of a manifest cannot express. A manifest names one with
//! `executor = ".."`.
//!
//! To add one, add a file here with a type that implements [`ledger::WriteExecutor`], and one line to [`executors`].
//! The executor gets only the gate's transaction. The manifest declares what `before` and `after` capture and how the
//! write is undone. The executor must check everything that it relies on, because its parameters may come from a
//! proposal that was stored long ago. It must take the account from the principal, never from a parameter.

mod delete_package_photo;

use std::sync::Arc;

use ledger::{DuplicateExecutor, ExecutorRegistry};

/// All executors that manifests of this server can name.
pub fn executors() -> Result<ExecutorRegistry, DuplicateExecutor> {
    let mut executors = ExecutorRegistry::default();
    executors.register(delete_package_photo::NAME, Arc::new(delete_package_photo::DeletePackagePhoto))?;
    Ok(executors)
}
