//! Who carries out what: executors by name. A module of its own, which whoever has an executor registers it with; what needs
//! one only looks it up here (promises C2).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::executor::Executor;

/// Two executors of one name: the second would silently take the place of the first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two executors have the name \"{0}\"")]
pub struct DuplicateExecutor(pub String);

/// Executors by name. Filled when a server starts, before anything is answered, and never changed afterwards.
#[derive(Clone, Default)]
pub struct Executors {
    by_name: BTreeMap<String, Arc<dyn Executor>>,
}

impl Executors {
    /// Makes an executor available.
    ///
    /// # Errors
    /// [`DuplicateExecutor`] if the name is taken.
    pub fn register(&mut self, name: impl Into<String>, executor: Arc<dyn Executor>) -> Result<(), DuplicateExecutor> {
        match self.by_name.entry(name.into()) {
            Entry::Vacant(free) => {
                free.insert(executor);
                Ok(())
            }
            Entry::Occupied(taken) => Err(DuplicateExecutor(taken.key().clone())),
        }
    }

    /// The executor of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Executor>> {
        self.by_name.get(name)
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

impl std::fmt::Debug for Executors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
