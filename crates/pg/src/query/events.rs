//! A statement of a caller's own, and what it gives on its way ([`RowSink`]).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;
use types::{Column, PgType};

use crate::client::error::ServerError;
use crate::query::value::{self, EncodeError};

/// One statement of the caller's own.
#[derive(Debug, Clone)]
pub struct Query {
    /// One statement.
    pub sql: String,
    /// `$1`, `$2`, ... as JSON; as many as the statement takes.
    pub params: Vec<Value>,
    /// Whether strings among them are in PostgreSQL's text form, whatever the type: for json the text of the JSON, not
    /// a JSON string.
    pub params_are_texts: bool,
    /// Whether it runs in a transaction that cannot write and is rolled back. Within a [`Transaction`](crate::Transaction), the mode of that transaction applies.
    pub read_only: bool,
    /// `statement_timeout`; zero means no limit.
    pub statement_timeout: Duration,
    /// `lock_timeout`; zero means no limit.
    pub lock_timeout: Duration,
    /// How its rows are delivered.
    pub delivery: RowDelivery,
}

impl Query {
    /// The text form of each parameter.
    pub(crate) fn encoded(&self, types: &[Arc<PgType>]) -> Result<Vec<Option<String>>, EncodeError> {
        match self.params_are_texts {
            true => value::encode_texts(&self.params, types),
            false => value::encode_with_json_texts(&self.params, types),
        }
    }
}

/// How rows are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowDelivery {
    /// All at once, at the end; more than this is [`ExecuteError::TooLarge`](crate::ExecuteError::TooLarge), and nothing was done.
    Inline {
        /// The most rows.
        max_rows: usize,
        /// The most bytes of all rows as JSON, each row by itself.
        max_bytes: usize,
    },
    /// As they arrive.
    Batches {
        /// Rows in a batch.
        rows: usize,
        /// A batch ends with the row that reaches so many bytes of JSON.
        bytes: usize,
    },
}

/// An event of a running statement.
#[derive(Debug)]
pub enum QueryEvent {
    /// Its result columns, names made unique, before any row; not for a statement that returns none.
    Columns(Vec<Column>),
    /// Some rows, at least one; at most one such chunk for [`RowDelivery::Inline`].
    Rows {
        /// A JSON array of objects by column name. Nobody looks whether it is one.
        json: String,
        /// The number of rows.
        count: u64,
    },
    /// A notice that PostgreSQL raised.
    Notice(Box<ServerError>),
    /// All rows have been sent, and nothing is committed yet.
    AwaitAck {
        /// Whoever has taken everything says so; if it is dropped instead, the statement is undone.
        taken: oneshot::Sender<()>,
        /// The correlation id, if the ledger will have a record.
        correlation_id: Option<String>,
    },
}

/// The result of a statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuerySummary {
    /// PostgreSQL's command tag; `None` where it does not say (a command within the ledger's transaction).
    pub tag: Option<String>,
    /// Whether it has result columns.
    pub returns_rows: bool,
    /// The rows it returned or, if it has no result columns, touched.
    pub row_count: u64,
    /// The rows as JSON, in bytes.
    pub payload_bytes: u64,
    /// The receipt of a write that the ledger has recorded.
    pub correlation_id: Option<String>,
}

/// The parameters and result columns of a statement, found without running it.
#[derive(Debug, Clone)]
pub struct QueryDescription {
    /// The type of each parameter.
    pub params: Vec<Arc<PgType>>,
    /// The result columns; `None` for a statement that returns none.
    pub columns: Option<Vec<Column>>,
}
