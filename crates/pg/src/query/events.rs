//! A statement of a front end's user, and the events of its execution ([`RowSink`]).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;
use types::{Column, PgType};

use crate::client::error::ServerError;
use crate::query::value::{self, EncodeError};

/// One statement of a front end's user.
#[derive(Debug, Clone)]
pub struct Query {
    pub sql: String,
    /// The values of `$1`, `$2`, ... as JSON, one for each parameter.
    pub params: Vec<Value>,
    /// Whether strings in `params` are in PostgreSQL's text form for every type. For json, a string is then the text
    /// of a JSON value, not a JSON string.
    pub params_are_texts: bool,
    /// Whether the statement runs in a transaction that cannot write and is rolled back. Within a
    /// [`Transaction`](crate::Transaction), the mode of that transaction applies.
    pub read_only: bool,
    /// `statement_timeout`; zero means no limit.
    pub statement_timeout: Duration,
    /// `lock_timeout`; zero means no limit.
    pub lock_timeout: Duration,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowDelivery {
    /// All at once, at the end. More than the limits is [`ExecuteError::TooLarge`](crate::ExecuteError::TooLarge), and
    /// the statement has no effect.
    Inline {
        /// The most rows.
        max_rows: usize,
        /// The most bytes of all rows as JSON.
        max_bytes: usize,
    },
    /// As they arrive.
    Batches {
        /// The maximum number of rows in a batch.
        rows: usize,
        /// The bytes of JSON after which a batch is complete.
        bytes: usize,
    },
}

#[derive(Debug)]
pub enum QueryEvent {
    /// The result columns with unique names, before any row. Not sent for a statement that returns no rows.
    Columns(Vec<Column>),
    /// At least one row. [`RowDelivery::Inline`] has at most one such event.
    Rows {
        /// A JSON array of objects by column name. It is not validated.
        json: String,
        count: u64,
    },
    /// A notice that PostgreSQL raised.
    Notice(Box<ServerError>),
    /// All rows have been sent, and nothing is committed yet.
    AwaitAck {
        /// The receiver sends on this channel when it has taken everything. If it drops the channel instead, the
        /// statement is undone.
        taken: oneshot::Sender<()>,
        /// The correlation id, if the ledger will have a record.
        correlation_id: Option<String>,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuerySummary {
    /// PostgreSQL's command tag; `None` for a command within the ledger's transaction, where PostgreSQL reports none.
    pub tag: Option<String>,
    /// Whether the statement has result columns.
    pub returns_rows: bool,
    /// The number of rows that it returned or, without result columns, changed.
    pub row_count: u64,
    /// The length of the rows as JSON, in bytes.
    pub payload_bytes: u64,
    /// The correlation id of a write that the ledger has recorded.
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
