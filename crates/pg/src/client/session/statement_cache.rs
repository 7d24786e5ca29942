//! The statements of agents that a session has prepared, and how long their inspections are valid
//! (`query::read::function_policy`).
//!
//! A statement keeps the meaning that it had when it was parsed: `'now'` is the time of parsing, and CASE omits
//! branches that this time rules out. So an inspection is valid for one statement in one session, and every other
//! session inspects the text itself. PostgreSQL silently parses a prepared statement anew when an object that it uses
//! has changed (a view is replaced, a table is analyzed), so an inspection expires.
//!
//! The names cannot be guessed: SQL's EXECUTE reaches prepared statements, and one that executes itself crashes
//! PostgreSQL 15. `pg_prepared_statements` shows their texts, so those of other agents are closed before a query reads
//! that view; the query finds itself and statements of the server.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of statements that a session keeps. PostgreSQL holds a plan for each, some ten kilobytes.
const MAX_STATEMENTS: usize = 32;

/// How long the inspection of a statement is valid.
pub(crate) const SEEN_FOR: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Known {
    metadata: Arc<dyn Any + Send + Sync>,
    name: String,
    seen: Instant,
}

/// The statements of one session, by their text.
#[derive(Debug)]
pub(crate) struct StatementCache {
    /// Whether the session keeps statements. It keeps none if the next transaction may have another backend.
    is_on: bool,
    secret: RandomState,
    count: u64,
    by_text: HashMap<String, Known>,
    /// The texts, the oldest first.
    order: VecDeque<String>,
    /// Names of statements that can be closed.
    obsolete: Vec<String>,
}

impl StatementCache {
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            secret: RandomState::new(),
            count: 0,
            by_text: HashMap::new(),
            order: VecDeque::new(),
            obsolete: Vec::new(),
        }
    }

    /// A name that this session has not used yet.
    pub(crate) fn new_name(&mut self) -> String {
        self.count += 1;
        let mut hasher = self.secret.build_hasher();
        hasher.write_u64(self.count);
        format!("agent_{:016x}", hasher.finish())
    }

    /// The metadata and the name of a text that this session has prepared; `None` if the text must be inspected
    /// again.
    pub(crate) fn get<T: Any + Send + Sync>(&mut self, text: &str) -> Option<(Arc<T>, String)> {
        let known = self.by_text.get(text)?;
        if known.seen.elapsed() >= SEEN_FOR {
            self.forget(text);
            return None;
        }
        let metadata = Arc::clone(&known.metadata).downcast().ok()?;
        Some((metadata, known.name.clone()))
    }

    /// Keeps a statement that was inspected at `seen`.
    pub(crate) fn insert(&mut self, text: &str, metadata: Arc<dyn Any + Send + Sync>, name: String, seen: Instant) {
        if !self.is_on {
            return;
        }
        self.forget(text);
        if self.order.len() >= MAX_STATEMENTS
            && let Some(oldest) = self.order.front().cloned()
        {
            self.forget(&oldest);
        }
        self.order.push_back(text.to_owned());
        self.by_text.insert(text.to_owned(), Known { metadata, name, seen });
    }

    pub(crate) fn forget(&mut self, text: &str) {
        if let Some(known) = self.by_text.remove(text) {
            self.order.retain(|known| known != text);
            self.obsolete.push(known.name);
        }
    }

    /// Marks the name of a statement as obsolete.
    pub(crate) fn drop_name(&mut self, name: String) {
        if self.is_on {
            self.obsolete.push(name);
        }
    }

    /// Forgets all statements. Returns their names and the obsolete ones, so that the caller can close them.
    pub(crate) fn take_all(&mut self) -> Vec<String> {
        self.order.clear();
        let known = self.by_text.drain().map(|(_, known)| known.name);
        known.chain(self.obsolete.drain(..)).collect()
    }

    pub(crate) fn take_obsolete(&mut self) -> Vec<String> {
        std::mem::take(&mut self.obsolete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_is_closed() {
        let mut cache = StatementCache::new(true);
        let metadata: Arc<dyn Any + Send + Sync> = Arc::new(7_u32);
        let texts: Vec<String> = (0..=MAX_STATEMENTS).map(|number| format!("select {number}")).collect();
        let names: Vec<String> = texts.iter().map(|_| cache.new_name()).collect();
        for (text, name) in texts.iter().zip(&names) {
            cache.insert(text, Arc::clone(&metadata), name.clone(), Instant::now());
        }
        assert!(cache.get::<u32>(&texts[0]).is_none());
        assert_eq!(cache.get::<u32>(&texts[1]).unwrap().1, names[1]);
        assert_eq!(cache.take_obsolete(), [names[0].clone()]);
        assert_eq!(cache.take_all().len(), MAX_STATEMENTS);
    }

    #[test]
    fn what_was_seen_of_a_statement_does_not_count_for_ever() {
        let mut cache = StatementCache::new(true);
        let metadata: Arc<dyn Any + Send + Sync> = Arc::new(7_u32);
        let seen = Instant::now().checked_sub(SEEN_FOR).unwrap();
        cache.insert("select 1", Arc::clone(&metadata), "a".to_owned(), seen);
        cache.insert("select 2", metadata, "b".to_owned(), seen + SEEN_FOR);
        assert!(cache.get::<u32>("select 1").is_none());
        assert!(cache.get::<u32>("select 2").is_some());
        assert_eq!(cache.take_obsolete(), ["a"], "it is closed");
    }
}
