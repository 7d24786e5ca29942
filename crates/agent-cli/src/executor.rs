//! Re-exports the interface to the database: an executor needs nothing else from `pg`.

pub use pg::{
    BoxFuture, ConnectError, ConnectOptions, DirectExecutor, ExecuteError, IsolationLevel, NamedSession, Query,
    QueryDescription, QueryEvent, QuerySummary, RowDelivery, RowSink, ServerError, SqlExecutor, Transaction,
    TransactionOptions,
};
