//! The description of a prepared text.
//!
//! PostgreSQL refuses a prepared statement whose columns have changed their types. Row types are compared each time.
//! So a change of the schema is noticed at once, and the text is described anew.

use std::sync::Arc;

use types::{Column, PgType};

use super::inspection::Inspection;
use super::server_json::ServerJson;
use crate::query::row_writer::ColumnMasks;
use crate::query::type_catalog::RowTypes;

/// A statement that returns rows.
#[derive(Debug)]
pub(crate) struct StatementMetadata {
    pub(crate) params: Vec<Arc<PgType>>,
    pub(crate) columns: Vec<Column>,
    /// Whether it has result columns; there may be none of them (`select`).
    pub(crate) returns_rows: bool,
    /// The types of the columns as the server names them, to see whether they are still the same.
    pub(crate) column_oids: Vec<u32>,
    /// The conversions that columns need beyond their text; `None` for nearly every statement.
    pub(crate) conversion: Option<ServerJson>,
    /// The row types, which must be unchanged when the text comes again; `None` for most statements.
    pub(crate) row_types: Option<RowTypes>,
    /// Whether the outermost node of its plan is a `Limit`.
    pub(crate) has_limit: bool,
    /// Whether its plan has parallel workers.
    pub(crate) is_parallel: bool,
    /// Whether it leaves nothing in its session that outlasts `ROLLBACK`.
    pub(crate) leaves_nothing: bool,
    /// The masks of its columns, if its caller has masks.
    pub(crate) masks: Option<ColumnMasks>,
    /// The tables that its plan reads, if the reader collects them.
    pub(crate) tables: Option<Arc<[String]>>,
}

impl StatementMetadata {
    pub(crate) fn new(params: Vec<Arc<PgType>>, columns: Vec<Column>, column_oids: Vec<u32>) -> Self {
        let conversion = ServerJson::of(&columns);
        let row_types = RowTypes::of(params.iter().chain(columns.iter().map(|column| &column.ty)));
        Self {
            params,
            columns,
            returns_rows: true,
            column_oids,
            conversion,
            row_types,
            has_limit: false,
            is_parallel: false,
            leaves_nothing: false,
            masks: None,
            tables: None,
        }
    }

    /// Adds what the plan has shown.
    pub(super) fn apply(&mut self, inspection: &Inspection) {
        self.has_limit = inspection.has_limit;
        self.is_parallel = inspection.is_parallel;
        self.leaves_nothing = inspection.leaves_nothing;
        self.tables.clone_from(&inspection.tables);
    }

    /// Whether PostgreSQL itself says so when it does not hold any more, and it is small enough to be kept with its text.
    pub(crate) fn is_cacheable(&self, sql: &str) -> bool {
        self.returns_rows && self.row_types.is_none() && self.is_small(sql)
    }

    /// Whether it is small enough to be kept with its text, and the columns can be read if they turn out to be others.
    pub(crate) fn is_cacheable_with_recheck(&self, sql: &str) -> bool {
        let is_binary = self.conversion.as_ref().is_some_and(ServerJson::has_binary);
        !is_binary && (self.conversion.is_none() || self.row_types.is_none()) && self.is_small(sql)
    }

    fn is_small(&self, sql: &str) -> bool {
        sql.len() <= MAX_TEXT_BYTES && self.params.len() + self.columns.len() <= MAX_WIDTH
    }
}

/// The maximum length of a text that is kept, and the maximum number of its parameters and columns. All of them
/// together take some megabytes. A short text may have 1,600 columns (`select * from wide`).
const MAX_TEXT_BYTES: usize = 8 * 1024;
const MAX_WIDTH: usize = 100;
