//! What is known of a prepared text.
//!
//! PostgreSQL refuses a prepared statement whose result columns have changed their types. Changes of row types are
//! not refused, so row types are compared on each call. So a change of the schema is noticed at once, and the text is
//! described again.

use std::sync::Arc;

use types::{Column, PgType};

use super::inspection::Inspection;
use super::server_json::ServerJson;
use crate::query::row_writer::ColumnMasks;
use crate::query::type_catalog::RowTypes;

/// What later calls of a text need to know of its statement, which may also return no rows.
#[derive(Debug)]
pub(crate) struct StatementMetadata {
    pub(crate) params: Vec<Arc<PgType>>,
    pub(crate) columns: Vec<Column>,
    /// Whether the statement has a result; it may have zero columns (`select`).
    pub(crate) returns_rows: bool,
    /// The types of the result columns as the server reports them, to detect changes.
    pub(crate) column_oids: Vec<u32>,
    /// The conversions that columns need beyond their text; `None` for nearly every statement.
    pub(crate) conversion: Option<ServerJson>,
    /// The row types, which must be unchanged when the text is used again; `None` for most statements.
    pub(crate) row_types: Option<RowTypes>,
    /// Whether the outermost node of its plan is a `Limit`.
    pub(crate) has_limit: bool,
    /// Whether its plan uses parallel workers.
    pub(crate) is_parallel: bool,
    /// Whether it has no effects on its session that outlast `ROLLBACK`.
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

    /// Adds the facts from the inspection of the plan.
    pub(super) fn apply(&mut self, inspection: &Inspection) {
        self.has_limit = inspection.has_limit;
        self.is_parallel = inspection.is_parallel;
        self.leaves_nothing = inspection.leaves_nothing && inspection.unverified.is_empty();
        self.tables.clone_from(&inspection.tables);
    }

    /// Whether the metadata may be cached: PostgreSQL reports when they become outdated, and they are small enough.
    pub(crate) fn is_cacheable(&self, sql: &str) -> bool {
        self.returns_rows && self.row_types.is_none() && self.is_small(sql)
    }

    /// Whether the metadata may be cached for a caller that checks the columns itself: they are small enough, and the
    /// columns can be read even if they have changed.
    pub(crate) fn is_cacheable_with_recheck(&self, sql: &str) -> bool {
        let is_binary = self.conversion.as_ref().is_some_and(ServerJson::has_binary);
        !is_binary && (self.conversion.is_none() || self.row_types.is_none()) && self.is_small(sql)
    }

    fn is_small(&self, sql: &str) -> bool {
        sql.len() <= MAX_TEXT_BYTES && self.params.len() + self.columns.len() <= MAX_WIDTH
    }
}

/// The maximum length of a cached text, and the maximum number of its parameters and columns. All cached texts
/// together take some megabytes. A short text may have 1,600 columns (`select * from wide`).
const MAX_TEXT_BYTES: usize = 8 * 1024;
const MAX_WIDTH: usize = 100;
