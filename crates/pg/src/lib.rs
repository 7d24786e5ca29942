//! The PostgreSQL client and the query layer over it. Entry types: [`ConnectOptions`], [`Session`], [`Pool`],
//! [`Reader`], [`SqlExecutor`]; [`value`] converts between PostgreSQL's text form and JSON.
//!
//! Only this crate opens connections. It has no notion of tools, manifests, the ledger or MCP. It does not decide by
//! SQL text: the prepared form of a statement shows what the statement is.
//!
//! ```text
//! query      gives statements a meaning: the read path of agents (`read`), statements of front ends (`sql_executor`),
//!            the pool of the crate `ledger` (`writer_pool`); types, plans, values as JSON
//!    v
//! client     runs statements in sessions (`session`), lends them from pools (`pool`), speaks the protocol (`wire`),
//!            parses connection strings (`connect_options`); it never uses the query layer
//!
//! outage     limits messages while PostgreSQL does not answer
//! fuzzing    entry points for the fuzz targets in `fuzz/`
//! ```

mod client;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(feature = "fuzzing", doc(hidden))]
pub mod fuzzing;
pub mod outage;
mod query;

pub use client::connect_options::{
    Address, AuthMethod, AuthPolicy, ChannelBinding, ClientCertificate, ConnectEnvironment, ConnectOptions,
    ConnectOptionsError, Conninfo, DEFAULT_CONNECT_TIMEOUT, Keepalive, ParameterOrigins, PasswordCommand, Pooler,
    RootCertificates, SshTunnel, SslMode, TargetSessionAttrs, TlsOptions, guard_ssh,
};
pub use client::error::{ConnectError, Error, ServerError};
pub use client::limits::TruncatedBy;
pub use client::pool::{Pool, PoolStatus, PooledSession};
pub use client::pooler::{PoolerReport, probe_pooler};
pub use client::search_path::{SearchPath, UntrustedSchema};
pub use client::session::{
    CallerSeal, CompleteResult, ContextStatements, PipelineError, PipelineStatement, RowRetention, Session,
    StatementDescription, StatementResult,
};
pub use client::session_settings::SessionSettings;
pub use client::wire::{FieldDescription, OtherEngine, scram_verifier};
pub use query::modifying_statement::{ModifyingStatement, ModifyingStatementError};
pub use query::plan::PlanResult;
pub use query::read::{
    MaskError, NextPage, PageProblem, Paging, ReadError, ReadFacts, ReadLimits, ReadRequest, ReadTrace, Reader,
    ResponsePermit, ResultSet,
};
pub use query::referenced_objects::referenced_objects;
pub use query::sql_executor::{
    BoxFuture, DirectExecutor, ExecuteError, IsolationLevel, NamedSession, SqlExecutor, Transaction, TransactionOptions,
};
pub use query::type_catalog::TypeCatalog;
pub use query::value;
pub use query::writer_pool::WriterPool;
pub use query::{Query, QueryDescription, QueryEvent, QuerySummary, RowDelivery, RowSink};
pub use types::RowFormat;
