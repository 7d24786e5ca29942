//! The interface to the database, re-exported: the author of an executor needs nothing else of `pg`.

pub use pg::{
    BoxFuture, ConnectError, ConnectOptions, DirectExecutor, ExecuteError, IsolationLevel, NamedSession, Query,
    QueryDescription, QueryEvent, QuerySummary, RowDelivery, RowSink, ServerError, SqlExecutor, Transaction,
    TransactionOptions,
};
