//! The PostgreSQL client and the read path. Entry types: [`ConnectOptions`], [`Session`], [`Pool`], [`Reader`],
//! [`SqlExecutor`]; [`value`] converts between PostgreSQL's text form and JSON.
//!
//! Only this crate opens connections. It does not know tools, manifests, the ledger or MCP. It does not decide by SQL text:
//! the prepared form of a statement shows what the statement is.
//!
//! - The client: `connect_options` parses connection strings, `wire` speaks the protocol, `session` runs statements, `pool`
//!   lends sessions and takes only clean ones back, `pooler` probes for a connection pooler.
//! - The query layer: `read` is the one way to read, `plan` plans a statement, `describe` describes one for `manifest`,
//!   `type_catalog` has the types by their oid, `query` passes rows on, `sql_executor` is for the front ends, and
//!   `writer_pool` is for the crate `ledger` alone.

mod columns;
mod connect_options;
mod describe;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(feature = "fuzzing", doc(hidden))]
pub mod fuzzing;
mod json_rows;
mod limits;
mod plan;
mod pool;
mod pooler;
mod query;
mod read;
mod referenced_objects;
mod search_path;
mod session;
mod session_settings;
mod sql_executor;
mod type_catalog;
pub mod value;
mod wire;
mod writer_pool;

pub use connect_options::{
    Address, AuthMethod, AuthPolicy, ChannelBinding, ClientCertificate, ConnectEnvironment, ConnectOptions,
    ConnectOptionsError, Conninfo, DEFAULT_CONNECT_TIMEOUT, Keepalive, ParameterOrigins, Pooler, RootCertificates,
    SslMode, TargetSessionAttrs, TlsOptions,
};
pub use error::{ConnectError, Error, ServerError};
pub use json_rows::RowFormat;
pub use limits::TruncatedBy;
pub use plan::PlanResult;
pub use pool::{Pool, PoolStatus, PooledSession};
pub use pooler::{PoolerReport, probe_pooler};
pub use query::{Query, QueryDescription, QueryEvent, QuerySummary, RowDelivery, RowSink};
pub use read::{ReadError, ReadLimits, ReadRequest, Reader, ResponsePermit, ResultSet};
pub use referenced_objects::referenced_objects;
pub use search_path::{SearchPath, UntrustedSchema};
pub use session::{
    CompleteResult, PipelineError, PipelineStatement, RowRetention, Session, StatementDescription, StatementResult,
};
pub use session_settings::SessionSettings;
pub use sql_executor::{
    BoxFuture, DirectExecutor, ExecuteError, IsolationLevel, NamedSession, SqlExecutor, Transaction, TransactionOptions,
};
pub use type_catalog::TypeCatalog;
pub use wire::{FieldDescription, scram_verifier};
pub use writer_pool::WriterPool;
