//! Executors by name. Modules that implement executors register them here.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::fingerprint::sha256_hex;
use crate::write::executor::WriteExecutor;

/// Two executors have the same name: the second one would silently replace the first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two executors have the name \"{0}\"")]
pub struct DuplicateExecutor(pub String);

/// Executors by name. It is filled when a server starts, before the server answers calls, and does not change
/// afterwards.
#[derive(Clone, Default)]
pub struct ExecutorRegistry {
    by_name: BTreeMap<String, Registered>,
}

#[derive(Clone)]
struct Registered {
    executor: Arc<dyn WriteExecutor>,
    definition: String,
}

/// The definition of the executor as the ledger stores it.
pub(crate) fn definition(executor: &dyn WriteExecutor) -> String {
    sha256_hex(&executor.definition())
}

impl ExecutorRegistry {
    pub fn register(
        &mut self,
        name: impl Into<String>,
        executor: Arc<dyn WriteExecutor>,
    ) -> Result<(), DuplicateExecutor> {
        match self.by_name.entry(name.into()) {
            Entry::Vacant(free) => {
                free.insert(Registered { definition: definition(executor.as_ref()), executor });
                Ok(())
            }
            Entry::Occupied(taken) => Err(DuplicateExecutor(taken.key().clone())),
        }
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn WriteExecutor>> {
        self.by_name.get(name).map(|registered| &registered.executor)
    }

    /// All names, sorted, with the definitions of their executors as the ledger stores them.
    pub(crate) fn definitions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.by_name.iter().map(|(name, registered)| (name.as_str(), registered.definition.as_str()))
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

impl std::fmt::Debug for ExecutorRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::executor::{WriteFuture, WriteRequest};
    use crate::write::write_tx::WriteTx;

    struct Idle;

    impl WriteExecutor for Idle {
        fn execute<'a>(&'a self, _: &'a mut WriteTx<'_>, _: &'a WriteRequest) -> WriteFuture<'a> {
            unreachable!("it is only looked up")
        }

        fn definition(&self) -> String {
            "idle".to_owned()
        }
    }

    #[test]
    fn what_is_registered_is_found_what_is_not_is_none_and_a_second_one_of_a_name_is_refused() {
        let mut executors = ExecutorRegistry::default();
        executors.register("idle", Arc::new(Idle)).unwrap();
        assert_eq!(executors.get("idle").map(|executor| executor.definition()).as_deref(), Some("idle"));
        assert!(executors.get("Idle").is_none());
        assert_eq!(executors.register("idle", Arc::new(Idle)), Err(DuplicateExecutor("idle".to_owned())));
        assert_eq!(executors.names().collect::<Vec<_>>(), ["idle"]);
    }
}
