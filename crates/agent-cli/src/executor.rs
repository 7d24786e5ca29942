//! The boundary to the database, handed on: whoever brings an executor needs nothing else of `pg`.

pub use pg::{
    Begin, Chunk, Completed, ConnectError, DbExecutor, Delivery, Described, Direct, Executing, Failed, IsolationLevel,
    Outlet, Place, Query, ServerError, Target, Transaction,
};
