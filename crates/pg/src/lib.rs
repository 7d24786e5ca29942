//! The PostgreSQL execution core: connecting ([`Target`]), sessions and their pools, the read path ([`Reader`]), and
//! values between PostgreSQL's text form and JSON ([`value`]).
//!
//! It opens connections, and nobody else does. It knows nothing of tools, manifests, the ledger or MCP, and takes no
//! decision by looking at SQL text: what a statement is, its prepared form says.
//!
//! Where things are: `wire` speaks the protocol; `session` runs statements; `pool` lends sessions and takes only clean
//! ones back; `pooler` looks at what stands in between; `read` is the one way to read; `write` is for the crate `ledger` alone;
//! `describe` says what a statement takes and gives, for `manifest`; `types` knows a type by its oid.

mod columns;
mod describe;
mod error;
mod execute;
mod plan;
mod pool;
mod pooler;
mod reach;
mod read;
mod search_path;
mod session;
mod target;
mod type_catalog;
pub mod value;
mod wire;
mod write;

pub use error::{ConnectError, Error, ServerError};
pub use execute::{
    Begin, Chunk, Completed, DbExecutor, Delivery, Described, Direct, Executing, Failed, IsolationLevel, Outlet, Place,
    Query, Transaction,
};
pub use pool::{Lease, Pool, PoolUse};
pub use pooler::{Pooled, examine_pooler};
pub use reach::reach;
pub use read::{Layer, ReadError, ReadLimits, ReadRequest, Reader, ResultSet, Room, RowForm, TruncatedBy};
pub use search_path::{SearchPath, UntrustedSchema};
pub use session::{Explained, Keep, Outcome, RawColumn, RawShape, Session, SessionSettings, Step, StepError, Whole};
pub use target::{
    Address, AuthMethod, ChannelBinding, ClientCertificate, Conninfo, DEFAULT_CONNECT_TIMEOUT, Keepalive, Login,
    Origins, Pooler, Roots, SessionAttrs, Surroundings, Target, TargetError, Tls, TlsMode,
};
pub use type_catalog::TypeCatalog;
pub use wire::scram_verifier;
pub use write::Writer;
