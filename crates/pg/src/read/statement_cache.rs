//! Which statements of agents a session has prepared, and for how long it counts what was seen of them (`functions`).
//!
//! A statement means what it meant when it was parsed: `'now'` is a moment then, and CASE leaves out what that moment rules out.
//! So what was seen of a text holds for one statement in one session, and another session looks for itself. PostgreSQL parses
//! a prepared statement anew when what it reads has changed (a view is replaced, a table is analyzed), and says nothing:
//! hence not for ever.
//!
//! They have names that nobody can guess: SQL's EXECUTE reaches prepared statements, and one that executes itself takes
//! PostgreSQL 15 down. Their texts can be seen in `pg_prepared_statements`: before a query looks there, those of others are
//! closed (`functions`), so that it finds itself and statements of ours.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::statement_metadata::StatementMetadata;

/// How many a session keeps: PostgreSQL holds a plan for each, some ten kilobytes.
const MAX_STATEMENTS: usize = 32;

/// How long what was seen of a statement counts.
pub(super) const SEEN_FOR: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Known {
    shape: Arc<StatementMetadata>,
    name: String,
    seen: Instant,
}

/// The statements of one session, by their text.
#[derive(Debug)]
pub(crate) struct StatementCache {
    /// Whether the session keeps any: not if the next transaction may have another backend.
    is_on: bool,
    secret: RandomState,
    count: u64,
    by_text: HashMap<String, Known>,
    /// The texts, the oldest first.
    order: VecDeque<String>,
    /// Names of statements that are of no use any more.
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

    /// The name of a statement that is new in this session.
    pub(crate) fn new_name(&mut self) -> String {
        self.count += 1;
        let mut hasher = self.secret.build_hasher();
        hasher.write_u64(self.count);
        format!("agent_{:016x}", hasher.finish())
    }

    /// How a text was described here, and its name; not if it is to be looked at again.
    pub(super) fn known(&mut self, text: &str) -> Option<(Arc<StatementMetadata>, String)> {
        let known = self.by_text.get(text)?;
        if known.seen.elapsed() >= SEEN_FOR {
            self.forget(text);
            return None;
        }
        Some((Arc::clone(&known.shape), known.name.clone()))
    }

    /// A statement that was looked at then.
    pub(super) fn put(&mut self, text: &str, shape: &Arc<StatementMetadata>, name: String, seen: Instant) {
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
        self.by_text.insert(text.to_owned(), Known { shape: Arc::clone(shape), name, seen });
    }

    pub(super) fn forget(&mut self, text: &str) {
        if let Some(known) = self.by_text.remove(text) {
            self.order.retain(|known| known != text);
            self.obsolete.push(known.name);
        }
    }

    /// A statement that is not to be kept.
    pub(super) fn drop_name(&mut self, name: String) {
        if self.is_on {
            self.obsolete.push(name);
        }
    }

    /// Forgets all of them, and those that are of no use any more; their names, to close them at once.
    pub(crate) fn take_all(&mut self) -> Vec<String> {
        self.order.clear();
        let known = self.by_text.drain().map(|(_, known)| known.name);
        known.chain(self.obsolete.drain(..)).collect()
    }

    pub(super) fn take_obsolete(&mut self) -> Vec<String> {
        std::mem::take(&mut self.obsolete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_is_closed() {
        let mut remembered = StatementCache::new(true);
        let shape = Arc::new(StatementMetadata::new(Vec::new(), Vec::new(), Vec::new()));
        let texts: Vec<String> = (0..=MAX_STATEMENTS).map(|number| format!("select {number}")).collect();
        let names: Vec<String> = texts.iter().map(|_| remembered.new_name()).collect();
        for (text, name) in texts.iter().zip(&names) {
            remembered.put(text, &shape, name.clone(), Instant::now());
        }
        assert!(remembered.known(&texts[0]).is_none());
        assert_eq!(remembered.known(&texts[1]).unwrap().1, names[1]);
        assert_eq!(remembered.take_obsolete(), [names[0].clone()]);
        assert_eq!(remembered.take_all().len(), MAX_STATEMENTS);
    }

    #[test]
    fn what_was_seen_of_a_statement_does_not_count_for_ever() {
        let mut remembered = StatementCache::new(true);
        let shape = Arc::new(StatementMetadata::new(Vec::new(), Vec::new(), Vec::new()));
        let seen = Instant::now().checked_sub(SEEN_FOR).unwrap();
        remembered.put("select 1", &shape, "a".to_owned(), seen);
        remembered.put("select 2", &shape, "b".to_owned(), seen + SEEN_FOR);
        assert!(remembered.known("select 1").is_none());
        assert!(remembered.known("select 2").is_some());
        assert_eq!(remembered.take_obsolete(), ["a"], "it is closed");
    }
}
