//! Which statements of agents a session has prepared.
//!
//! They have names that nobody can guess: SQL's EXECUTE reaches prepared statements, and one that executes itself takes
//! PostgreSQL 15 down. Their texts can be seen in `pg_prepared_statements`: before a query looks there, those of others are
//! closed (`functions`), so that it finds itself and statements of ours.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use super::shapes::Shape;

/// How many a session keeps: PostgreSQL holds a plan for each, some ten kilobytes.
const MAX_STATEMENTS: usize = 32;

/// The statements of one session, by their text.
#[derive(Debug)]
pub(crate) struct Remembered {
    /// Whether the session keeps any: not if the next transaction may have another backend.
    is_on: bool,
    secret: RandomState,
    count: u64,
    by_text: HashMap<String, (Arc<Shape>, String)>,
    /// The texts, the oldest first.
    order: VecDeque<String>,
    /// Names of statements that are of no use any more.
    obsolete: Vec<String>,
}

impl Remembered {
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

    /// The name of a text that was prepared as it was described by `shape`.
    pub(super) fn name_of(&self, text: &str, shape: &Arc<Shape>) -> Option<String> {
        let (known, name) = self.by_text.get(text)?;
        Arc::ptr_eq(known, shape).then(|| name.clone())
    }

    /// How a text was described here, and its name.
    pub(super) fn known(&self, text: &str) -> Option<(Arc<Shape>, String)> {
        self.by_text.get(text).cloned()
    }

    pub(super) fn put(&mut self, text: &str, shape: &Arc<Shape>, name: String) {
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
        self.by_text.insert(text.to_owned(), (Arc::clone(shape), name));
    }

    pub(super) fn forget(&mut self, text: &str) {
        if let Some((_, name)) = self.by_text.remove(text) {
            self.order.retain(|known| known != text);
            self.obsolete.push(name);
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
        let known = self.by_text.drain().map(|(_, (_, name))| name);
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
        let mut remembered = Remembered::new(true);
        let shape = Arc::new(Shape::new(Vec::new(), Vec::new(), Vec::new()));
        let texts: Vec<String> = (0..=MAX_STATEMENTS).map(|number| format!("select {number}")).collect();
        let names: Vec<String> = texts.iter().map(|_| remembered.new_name()).collect();
        for (text, name) in texts.iter().zip(&names) {
            remembered.put(text, &shape, name.clone());
        }
        assert_eq!(remembered.name_of(&texts[0], &shape), None);
        assert_eq!(remembered.name_of(&texts[1], &shape).as_ref(), Some(&names[1]));
        assert_eq!(remembered.take_obsolete(), [names[0].clone()]);
        let other = Arc::new(Shape::new(Vec::new(), Vec::new(), Vec::new()));
        assert_eq!(remembered.name_of(&texts[1], &other), None, "described anew, so to be prepared anew");
        assert_eq!(remembered.take_all().len(), MAX_STATEMENTS);
    }
}
