//! How a text was described the last time.
//!
//! A text is parsed with the types that it had, and PostgreSQL refuses a prepared statement whose columns are of other types
//! now; row types are compared each time. So a change of the schema shows at once, and the text is described anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::{Column, PgType};

use super::convert::Conversion;
use crate::types::RowTypes;

/// A statement that returns rows.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) params: Vec<Arc<PgType>>,
    pub(super) columns: Vec<Column>,
    /// Whether it has result columns; there may be none of them (`select`).
    pub(super) returns_rows: bool,
    /// The types of the columns as the server names them, to see whether they are still the same.
    pub(super) column_oids: Vec<u32>,
    /// What the columns need beyond their text; `None` for nearly every statement.
    pub(super) conversion: Option<Conversion>,
    /// What must still be as it was when the text comes again; `None` for most statements.
    pub(super) row_types: Option<RowTypes>,
}

impl Shape {
    pub(super) fn new(params: Vec<Arc<PgType>>, columns: Vec<Column>, column_oids: Vec<u32>) -> Self {
        let conversion = Conversion::of(&columns);
        let row_types = RowTypes::of(params.iter().chain(columns.iter().map(|column| &column.ty)));
        Self { params, columns, returns_rows: true, column_oids, conversion, row_types }
    }

    /// Whether PostgreSQL itself says so when it does not hold any more, and it is small enough to be kept.
    pub(super) fn stays(&self) -> bool {
        self.returns_rows && self.row_types.is_none() && self.params.len() + self.columns.len() <= MAX_WIDTH
    }

    /// Whether the columns can be read if they turn out to be others than these.
    fn can_change(&self) -> bool {
        let is_binary = self.conversion.as_ref().is_some_and(Conversion::has_binary);
        !is_binary && (self.conversion.is_none() || self.row_types.is_none())
    }
}

/// How many texts are remembered, how long one may be, and how many parameters and columns it may have: some megabytes at
/// the most. A short text may have 1,600 columns (`select * from wide`), of which 500 texts would take 90 MB.
const MAX_TEXTS: usize = 500;
pub(super) const MAX_TEXT_BYTES: usize = 8 * 1024;
const MAX_WIDTH: usize = 100;

#[derive(Debug, Default)]
pub(super) struct Shapes {
    by_text: Mutex<HashMap<String, Arc<Shape>>>,
}

impl Shapes {
    pub(super) fn get(&self, sql: &str) -> Option<Arc<Shape>> {
        self.lock().get(sql).cloned()
    }

    /// Whether it is remembered.
    pub(super) fn put(&self, sql: &str, shape: &Arc<Shape>) -> bool {
        let width = shape.params.len() + shape.columns.len();
        if sql.len() > MAX_TEXT_BYTES || width > MAX_WIDTH || !shape.can_change() {
            return false;
        }
        let mut by_text = self.lock();
        if by_text.len() >= MAX_TEXTS {
            // Agents repeat the latest texts, and the rest costs one round trip to learn again.
            by_text.clear();
        }
        by_text.insert(sql.to_owned(), Arc::clone(shape));
        true
    }

    pub(super) fn forget(&self, sql: &str) {
        self.lock().remove(sql);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Shape>>> {
        self.by_text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
